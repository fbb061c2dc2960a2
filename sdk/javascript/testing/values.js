// Answers the SDK's module `values` in tests, from the state of the current `TestHost`.

import { state } from "./host.js";

export function open(name) {
  const { buckets } = state();
  if (buckets === undefined) throw { tag: "access-denied" };
  if (!buckets.has(name)) buckets.set(name, new Map());
  const bucket = buckets.get(name);
  return {
    get: (key) => bucket.get(checked(key)),
    set: (key, bytes) => void bucket.set(checked(key), bytes),
    delete: (key) => void bucket.delete(checked(key)),
    keys: () => [...bucket.keys()].sort(),
    increment(key, delta) {
      const before = bucket.get(checked(key));
      const number = before === undefined ? 0 : Number(new TextDecoder().decode(before));
      if (!Number.isSafeInteger(number)) throw { tag: "other", val: "the value is not a number" };
      bucket.set(key, new TextEncoder().encode(String(number + delta)));
      return number + delta;
    },
    snapshot(key) {
      const before = bucket.get(checked(key));
      return {
        current: () => before,
        swap(bytes) {
          if (bucket.get(key) !== before) return false;
          bucket.set(key, bytes);
          return true;
        },
      };
    },
  };
}

function checked(key) {
  const length = new TextEncoder().encode(key).length;
  if (length < 1 || length > 1024) throw { tag: "other", val: `the key has ${length} bytes; it must have 1 to 1024` };
  return key;
}
