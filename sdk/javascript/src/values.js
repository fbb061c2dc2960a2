// Values that are kept between calls. The manifest must request them: `[asks] key_value = true`. Plugins do not share
// values, and a plugin has separate values for each agent that uses it.

import * as host from "#host/values";
import { ToolError } from "./errors.js";

/** The name of the bucket that the functions of this module use. */
const DEFAULT_BUCKET = "default";
/** The maximum number of attempts of `update`. */
const ATTEMPTS = 16;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A named collection of values, each stored under a key. Create it with `open`. */
export class Bucket {
  #bucket;

  constructor(bucket) {
    this.#bucket = bucket;
  }

  /** Returns the JSON value of the key, or undefined if the key has no value. */
  get(key) {
    return parse(this.getBytes(key), key);
  }

  /** Stores a JSON value under the key. The maximum size of a key is 1 KiB, and that of a value 1 MiB. */
  set(key, value) {
    this.setBytes(key, serialize(value));
  }

  /** Returns the bytes that are stored under the key, or undefined. */
  getBytes(key) {
    return attempt(() => this.#bucket.get(key)) ?? undefined;
  }

  /** Stores bytes under the key. */
  setBytes(key, bytes) {
    attempt(() => this.#bucket.set(key, bytes));
  }

  /** Removes the value of the key, if there is one. */
  delete(key) {
    attempt(() => this.#bucket.delete(key));
  }

  /** Returns the keys of all values, in sorted order. */
  keys() {
    return attempt(() => this.#bucket.keys());
  }

  /** Adds `delta` to the number that is stored under the key and returns the sum. The operation is atomic. */
  increment(key, delta = 1) {
    return attempt(() => this.#bucket.increment(key, delta));
  }

  /**
   * Replaces the value of the key with the result of `change`, and returns the new value. If another call changes the
   * value at the same time, this function calls `change` again. If `change` returns undefined, the value stays
   * unchanged.
   */
  update(key, change) {
    for (let attempts = 0; attempts < ATTEMPTS; attempts += 1) {
      const snapshot = attempt(() => this.#bucket.snapshot(key));
      const before = parse(attempt(() => snapshot.current()) ?? undefined, key);
      const after = change(before);
      if (after === undefined) return before;
      if (attempt(() => snapshot.swap(serialize(after)))) return after;
    }
    throw ToolError.unavailable(`other calls keep changing the value of \`${key}\``);
  }
}

/** Opens the bucket with this name. If there is no such bucket, it is empty. */
export function open(name = DEFAULT_BUCKET) {
  return new Bucket(attempt(() => host.open(name)));
}

/** Returns the JSON value of a key in the default bucket, or undefined. */
export const get = (key) => open().get(key);
/** Stores a JSON value under a key of the default bucket. */
export const set = (key, value) => open().set(key, value);
/** Removes the value of a key in the default bucket. */
const remove = (key) => open().delete(key);
// `delete` is a reserved word, so a constant cannot have this name, but a module can export it.
export { remove as delete };
/** Returns the keys of the default bucket. */
export const keys = () => open().keys();
/** Adds to a number in the default bucket. */
export const increment = (key, delta) => open().increment(key, delta);
/** Changes a value of the default bucket. */
export const update = (key, change) => open().update(key, change);

function serialize(value) {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError("the value cannot be written as JSON");
  return encoder.encode(text);
}

function parse(bytes, key) {
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch {
    throw ToolError.failed(`the value of \`${key}\` is not JSON; read it with getBytes`);
  }
}

/** Calls the host, and converts its errors. */
function attempt(call) {
  try {
    return call();
  } catch (thrown) {
    const error = thrown?.payload ?? thrown;
    switch (error?.tag) {
      case "access-denied":
        throw ToolError.denied("storing values is not granted");
      case "no-such-store":
        throw ToolError.failed("there is no such bucket");
      case "other":
        throw ToolError.failed(error.val);
      default:
        throw thrown;
    }
  }
}
