// Values that are kept between calls. The manifest must request them: `[asks] key_value = true`.

/** A named collection of values, each stored under a key. */
export class Bucket {
  private constructor();
  /** Returns the JSON value of the key, or undefined if the key has no value. */
  get(key: string): any;
  /** Stores a JSON value. The maximum size of a key is 1 KiB, and that of a value 1 MiB. */
  set(key: string, value: unknown): void;
  getBytes(key: string): Uint8Array | undefined;
  setBytes(key: string, bytes: Uint8Array): void;
  delete(key: string): void;
  /** Returns the keys of all values, in sorted order. */
  keys(): string[];
  /** Adds `delta` (by default 1) to a number and returns the sum. The operation is atomic. */
  increment(key: string, delta?: number): number;
  /** Replaces the value with the result of `change`, which may be called several times. Returns the new value. */
  update<T = any>(key: string, change: (value: T | undefined) => T | undefined): T | undefined;
}

/** Opens the bucket with this name. If there is no such bucket, it is empty. */
export function open(name?: string): Bucket;

/** Returns the JSON value of a key in the default bucket, or undefined. */
export function get(key: string): any;
/** Stores a JSON value under a key of the default bucket. */
export function set(key: string, value: unknown): void;
/** Removes the value of a key in the default bucket. */
declare function remove(key: string): void;
export { remove as delete };
/** Returns the keys of the default bucket. */
export function keys(): string[];
/** Adds to a number in the default bucket. */
export function increment(key: string, delta?: number): number;
/** Changes a value of the default bucket. */
export function update<T = any>(key: string, change: (value: T | undefined) => T | undefined): T | undefined;
