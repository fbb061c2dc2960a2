// Errors that the host tells the model about, and what happens with other exceptions.

import { error as logError } from "./log.js";

/** The maximum number of exceptions whose stacks are logged: an exception, its cause, the cause of its cause, and so on. */
const MAX_CAUSES = 8;

/** An error of a tool. The static methods create the kinds of errors that the host distinguishes. */
export class ToolError extends Error {
  name = "ToolError";
  /** `invalid-arguments`, `not-found`, `denied`, `unavailable` or `failed`. */
  kind;
  /** What is wrong with the arguments: `{ pointer, message }` for each problem. Empty for other kinds. */
  violations;
  /** Milliseconds after which the call may succeed, or undefined. */
  retryAfter;

  constructor(message, { kind = "failed", violations = [], retryAfter, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    Object.assign(this, { kind, violations, retryAfter });
  }

  /** An argument is invalid. `pointer` is a JSON pointer to the argument, for example `/rows/3/price`. */
  static invalid(pointer, message) {
    return ToolError.invalidAll([{ pointer, message }]);
  }

  /** Several arguments are invalid. */
  static invalidAll(violations) {
    const lines = violations.map(({ pointer, message }) => (pointer === "" ? message : `${pointer}: ${message}`));
    return new ToolError(lines.join("\n"), { kind: "invalid-arguments", violations });
  }

  /** The call refers to something that does not exist, such as a missing file. */
  static notFound(message) {
    return new ToolError(message, { kind: "not-found" });
  }

  /** The call is not allowed, and would fail again. The message should name the missing permission. */
  static denied(message) {
    return new ToolError(message, { kind: "denied" });
  }

  /** The call may succeed later. `retryAfter` is the number of milliseconds until then; by default, the host decides. */
  static unavailable(message, { retryAfter } = {}) {
    return new ToolError(message, { kind: "unavailable", retryAfter });
  }

  /** The call failed for another reason. */
  static failed(message) {
    return new ToolError(message);
  }

  /** Returns the error as the contract defines it. */
  toWit() {
    switch (this.kind) {
      case "invalid-arguments":
        return { tag: this.kind, val: this.violations };
      case "unavailable":
        return { tag: this.kind, val: { message: this.message, retryAfter: wholeMilliseconds(this.retryAfter) } };
      default:
        return { tag: this.kind, val: this.message };
    }
  }
}

/** A failure of a context builder, an output validator or a media policy. It ends the turn. */
export class Failure extends Error {
  name = "Failure";
  /** `invalid-input`, `unavailable` or `failed`. */
  kind;

  constructor(message, { kind = "failed" } = {}) {
    super(message);
    this.kind = kind;
  }

  /** The plugin was not made for this input. */
  static invalidInput(message) {
    return new Failure(message, { kind: "invalid-input" });
  }

  /** Something that the plugin needs does not answer now. */
  static unavailable(message) {
    return new Failure(message, { kind: "unavailable" });
  }

  /** The plugin failed for another reason. */
  static failed(message) {
    return new Failure(message);
  }

  /** Returns the failure as the contract defines it. */
  toWit() {
    return { tag: this.kind, val: this.message };
  }
}

/** Converts anything that a tool has thrown to a `ToolError`. The stack of an unexpected exception is logged. */
export function toToolError(thrown) {
  if (thrown instanceof ToolError) return thrown;
  logStack(thrown);
  return new ToolError(describe(thrown), { cause: thrown });
}

/** Converts anything that a plugin of another kind has thrown to a `Failure`. The stack of an exception is logged. */
export function toFailure(thrown) {
  if (thrown instanceof Failure) return thrown;
  logStack(thrown);
  return new Failure(describe(thrown));
}

/** Returns the name and the message of an exception, for example `TypeError: not a function`. */
function describe(thrown) {
  if (thrown instanceof Error) return `${thrown.name}: ${thrown.message}`;
  return typeof thrown === "string" ? thrown : (JSON.stringify(thrown) ?? String(thrown));
}

/** Logs the stack of an exception and of its causes, one line for each frame. */
function logStack(thrown) {
  let error = thrown;
  for (let depth = 0; error instanceof Error && depth < MAX_CAUSES; depth += 1) {
    // Some engines begin the stack with the message, and others do not.
    const stack = (error.stack ?? "").replace(`${describe(error)}\n`, "");
    logError(`${depth === 0 ? "" : "caused by "}${describe(error)}`);
    // The build adds this function, which replaces positions in the built file by positions in the source files.
    const frames = globalThis.__agentHostPositions?.(stack) ?? stack;
    frames.split("\n").filter((frame) => frame.trim() !== "").forEach((frame) => logError(frame));
    error = error.cause;
  }
}

function wholeMilliseconds(time) {
  return time === undefined ? undefined : Math.min(Math.max(Math.ceil(time), 0), 0xffffffff);
}
