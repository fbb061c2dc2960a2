// Log lines, which the host stores together with the plugin's name.

import { log as write } from "#host/log";

/** Logs a line for details of the control flow. */
export const trace = (...parts) => log("trace", ...parts);
/** Logs a line for debugging. */
export const debug = (...parts) => log("debug", ...parts);
/** Logs a line about normal operation. */
export const info = (...parts) => log("info", ...parts);
/** Logs a line about a problem that does not make the call fail. */
export const warn = (...parts) => log("warn", ...parts);
/** Logs a line about an error. */
export const error = (...parts) => log("error", ...parts);

/** Logs a line at this level. Parts that are not texts are written as JSON. */
export function log(level, ...parts) {
  write(level, parts.map(text).join(" "));
}

function text(part) {
  if (typeof part === "string") return part;
  if (part instanceof Error) return part.stack ? `${part.name}: ${part.message}\n${part.stack}` : String(part);
  return JSON.stringify(part) ?? String(part);
}
