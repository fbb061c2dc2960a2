// Numbers, times and sizes for people.

const number = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const dateTime = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "long" });

export const count = (value) => number.format(value);
export const compactCount = (value) => compact.format(value);

/** Formats "1 message", "2 messages". */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Formats a duration in microseconds. */
export function duration(microseconds) {
  if (microseconds < 1_000) return `${Math.round(microseconds)} µs`;
  if (microseconds < 1_000_000) return `${trim(microseconds / 1_000)} ms`;
  if (microseconds < 60_000_000) return `${trim(microseconds / 1_000_000)} s`;
  const minutes = Math.floor(microseconds / 60_000_000);
  return `${minutes} min ${Math.round((microseconds % 60_000_000) / 1_000_000)} s`;
}

/** Formats a number of bytes. */
export function bytes(value) {
  if (value < 1_024) return `${value} B`;
  if (value < 1_048_576) return `${trim(value / 1_024)} KiB`;
  return `${trim(value / 1_048_576)} MiB`;
}

/** Formats a cost in billionths of a dollar. */
export function dollars(nanodollars) {
  const value = nanodollars / 1e9;
  if (value === 0) return "$0";
  if (value < 0.00005) return "less than $0.0001";
  return value < 0.1 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`;
}

function trim(value) {
  return value >= 100 ? String(Math.round(value)) : String(Math.round(value * 10) / 10);
}

/** Formats a time, given as RFC 3339 or in milliseconds, as people say it: "5 minutes ago". */
export function ago(time) {
  const seconds = (new Date(time).getTime() - Date.now()) / 1_000;
  const [unit, size] = [["day", 86_400], ["hour", 3_600], ["minute", 60]].find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  if (unit === "second") return seconds > 5 ? "in a moment" : "just now";
  if (unit === "day" && Math.abs(seconds) > 14 * 86_400) return dateTime.format(new Date(time));
  return relative.format(Math.round(seconds / size), unit);
}

/** Formats a time exactly. */
export function exactTime(time) {
  return dateTime.format(new Date(time));
}
