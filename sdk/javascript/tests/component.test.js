// The parts of the SDK that only a component uses: promises, text encoding, names of interfaces, and source positions.

import assert from "node:assert/strict";
import test from "node:test";
import { lineTable, positionsCode } from "../source_map.mjs";
import { restoreNames, toPlaceholders } from "../wasi_names.mjs";
import { TextDecoder as Decoder, TextEncoder as Encoder } from "../component/encoding.js";

/** Imports the promises, and restores the globals that this module replaces. */
async function importPromises() {
  const { Promise: native, queueMicrotask: nativeQueue } = globalThis;
  const nativeFromAsync = Array.fromAsync;
  const module = await import("../component/promise.js");
  Object.assign(globalThis, { Promise: native, queueMicrotask: nativeQueue });
  Object.defineProperty(Array, "fromAsync", { value: nativeFromAsync, writable: true, configurable: true });
  return module;
}

const { Promise: Own, run, waitFor } = await importPromises();

test("promises run to their end without the engine's own jobs", () => {
  const order = [];
  const work = Own.resolve(1)
    .then((value) => (order.push("then"), value + 1))
    .finally(() => order.push("finally"))
    .then((value) => new Own((resolve) => resolve(value * 10)));
  order.push("sync");
  assert.equal(run(work), 20);
  assert.deepEqual(order, ["sync", "then", "finally"]);
  assert.throws(() => run(Own.reject(new RangeError("x"))), RangeError);
  assert.equal(run(Own.reject("x").catch((reason) => `${reason}!`)), "x!");
  assert.equal(run(5), 5);
});

test("promises combine as ECMAScript defines it", () => {
  const never = new Own(() => {});
  assert.deepEqual(run(Own.all([1, Own.resolve(2), { then: (resolve) => resolve(3) }])), [1, 2, 3]);
  assert.deepEqual(run(Own.all([])), []);
  assert.deepEqual(run(Own.allSettled([1, Own.reject(2)])), [
    { status: "fulfilled", value: 1 },
    { status: "rejected", reason: 2 },
  ]);
  assert.equal(run(Own.any([Own.reject(1), never, Own.resolve(2)])), 2);
  assert.throws(() => run(Own.any([Own.reject(1)])), { name: "AggregateError", errors: [1] });
  assert.equal(run(Own.race([never, Own.resolve(1)])), 1);
  const { promise, resolve } = Own.withResolvers();
  resolve(1);
  resolve(2);
  assert.equal(run(promise), 1);
  assert.throws(() => run(Own.try(() => JSON.parse("{"))), SyntaxError);
  let self;
  self = new Own((resolve) => Own.resolve().then(() => resolve(self)));
  assert.throws(() => run(self), TypeError);
});

test("a promise that nothing resolves is an error, not an endless wait", () => {
  assert.throws(() => run(new Own(() => {})), /waits for a promise that nothing resolves/);
});

test("events of the host are waited for together", () => {
  const waits = [];
  const block = (sources) => (waits.push([...sources]), [sources.length - 1]);
  const finished = [];
  const all = Own.all(["a", "b"].map((name) => waitFor(name, block).then(() => finished.push(name))));
  run(all);
  assert.deepEqual([waits, finished], [[["a", "b"], ["a"]], ["b", "a"]]);
});

test("text is encoded and decoded as UTF-8", () => {
  const text = "aé€😀\u0000";
  assert.deepEqual([...new Encoder().encode(text)], [...new TextEncoder().encode(text)]);
  assert.deepEqual([...new Encoder().encode("\ud800")], [0xef, 0xbf, 0xbd]);
  const long = "😀é".repeat(10_000);
  assert.equal(new Decoder().decode(new TextEncoder().encode(long)), long);
  const broken = [
    [0x61, 0xff, 0x62],
    [0xe2, 0x82],
    [0xe2, 0x82, 0x41],
    [0xed, 0xa0, 0x80],
    [0xf0, 0x9f, 0x98, 0x80, 0x80],
    [0xc0, 0xaf],
    [0xf4, 0x90, 0x80, 0x80],
  ];
  for (const bytes of broken.map((bytes) => new Uint8Array(bytes))) {
    assert.equal(new Decoder().decode(bytes), new TextDecoder().decode(bytes), String(bytes));
    assert.throws(() => new Decoder("utf-8", { fatal: true }).decode(bytes), TypeError);
  }
  assert.equal(new Decoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x61])), "a");
  assert.equal(new Decoder().decode(new Uint8Array([0, 0x61, 0x62]).subarray(1)), "ab");
  assert.throws(() => new Decoder("latin1"), RangeError);
});

test("names of interfaces are replaced, and restored only in the imports of a component", () => {
  const name = "wasi:http/types@0.2.0";
  assert.equal(toPlaceholders(`import "${name}"; use wasi:io/poll; wasi:logging/logging`),
    `import "host:http/types@0.2.0"; use host:io/poll; wasi:logging/logging`);
  const text = Buffer.from(toPlaceholders(name));
  const section = (id) => Buffer.concat([Buffer.from([id, text.length]), text]);
  const restored = restoreNames(Buffer.concat([Buffer.alloc(8), section(10), section(0)])).toString("latin1");
  assert.ok(restored.includes(name) && restored.endsWith("host:http/types@0.2.0"), restored);
});

test("stacks name the source files", () => {
  // The second line of the bundle comes from the third line of the first source, and the third line from the helper.
  const map = { sources: ["../app.js", "\0helper.js"], mappings: ";AAEA;ACAA" };
  const table = lineTable({ code: "a\nb\nc", map }, { build: `${process.cwd()}/build`, sdk: "/sdk" });
  (0, eval)(positionsCode(table));
  const stack = "    at f (/plugin.js:2:5)\n    at g (/plugin.js:3:1)\n    at next (native)\n    at h (other.js:1)";
  assert.equal(globalThis.__agentHostPositions(stack), "    at f (app.js:3)\n    at h (other.js:1)");
  delete globalThis.__agentHostPositions;
});
