// Stores values through `wasi:keyvalue`.

import { Cas, increment, swap } from "wasi:keyvalue/atomics@0.2.0-draft2";
import { open as openBucket } from "wasi:keyvalue/store@0.2.0-draft2";

export function open(name) {
  const bucket = openBucket(name);
  return {
    get: (key) => toBytes(bucket.get(key)),
    set: (key, bytes) => bucket.set(key, bytes),
    delete: (key) => bucket.delete(key),
    increment: (key, delta) => increment(bucket, key, delta),
    keys() {
      const keys = [];
      let cursor;
      do {
        const page = bucket.listKeys(cursor);
        keys.push(...page.keys);
        cursor = page.cursor ?? undefined;
      } while (cursor !== undefined);
      return keys;
    },
    snapshot(key) {
      const cas = Cas.new(bucket, key);
      return { current: () => toBytes(cas.current()), swap: (bytes) => trySwap(cas, bytes) };
    },
  };
}

/** Returns whether the value was replaced. It is not replaced if another call has changed it. */
function trySwap(cas, bytes) {
  try {
    swap(cas, bytes);
    return true;
  } catch (thrown) {
    const error = thrown?.payload ?? thrown;
    if (error?.tag === "cas-failed") return false;
    throw error?.tag === "store-error" ? error.val : thrown;
  }
}

function toBytes(value) {
  return value === null ? undefined : Uint8Array.from(value);
}
