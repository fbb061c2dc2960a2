// Timers, which wait with the clock of the host.

import { subscribeDuration } from "wasi:clocks/monotonic-clock@0.2.0";
import { poll } from "wasi:io/poll@0.2.0";
import { waitFor } from "./promise.js";

const active = new Set();
let last = 0;

export function setTimeout(callback, milliseconds = 0, ...args) {
  last += 1;
  const timer = last;
  active.add(timer);
  const source = subscribeDuration(Math.max(0, Math.round(milliseconds * 1_000_000)));
  waitFor(source, poll).then(() => {
    source[Symbol.dispose]?.();
    if (active.delete(timer)) callback(...args);
  });
  return timer;
}

export function clearTimeout(timer) {
  active.delete(timer);
}
