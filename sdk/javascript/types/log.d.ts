// Log lines, which the host stores together with the plugin's name. `console` writes to the same log.

export type Level = "trace" | "debug" | "info" | "warn" | "error" | "critical";

/** Logs a line at this level. Parts that are not texts are written as JSON. */
export function log(level: Level, ...parts: unknown[]): void;
export function trace(...parts: unknown[]): void;
export function debug(...parts: unknown[]): void;
export function info(...parts: unknown[]): void;
export function warn(...parts: unknown[]): void;
export function error(...parts: unknown[]): void;
