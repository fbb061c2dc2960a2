// Tools: their definitions, results and errors, as the host sees them.

import assert from "node:assert/strict";
import test from "node:test";
import { Done, ToolError, integer, object, pending, string, tool } from "agent-host-sdk";
import { TestHost, call } from "agent-host-sdk/testing";
import { exportTools } from "../src/tool.js";

const of = (run, options = {}) => [tool({ name: "t.x", description: "A tool.", ...options }, run)];
const settled = (promise) => promise;
const wit = (tools, args = {}) => exportTools(tools, settled).call("t.x", JSON.stringify(args), {});

test("a definition contains the schemas and the traits", () => {
  const tools = of(() => {}, {
    title: "X",
    arguments: { text: string() },
    result: object({ n: integer() }),
    readOnly: true,
    needsApproval: true,
    priority: 2,
  });
  const [definition] = exportTools(tools, settled).definitions();
  assert.equal(definition.priority, 2);
  assert.deepEqual(definition.traits, {
    readOnly: true,
    destructive: false,
    idempotent: false,
    sequential: false,
    openWorld: false,
    needsApproval: true,
  });
  assert.deepEqual(JSON.parse(definition.inputSchema).required, ["text"]);
  assert.deepEqual(JSON.parse(definition.outputSchema).properties, { n: { type: "integer" } });
});

test("a tool without arguments accepts only an empty object", async () => {
  assert.equal((await call(of(() => "done"), "t.x")).texts, "done");
  await assert.rejects(call(of(() => "done"), "t.x", { a: 1 }), { kind: "invalid-arguments" });
});

test("plain JSON Schema is passed on, and the host checks it", async () => {
  const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
  const tools = of(({ a }) => a + 1, { arguments: schema });
  assert.deepEqual(JSON.parse(exportTools(tools, settled).definitions()[0].inputSchema), schema);
  assert.equal((await call(tools, "t.x", { a: 1 })).value, 2);
});

test("wrong declarations are refused", () => {
  assert.throws(() => tool({ name: "a b", description: "" }, () => {}), /the name of a tool/);
  assert.throws(() => tool({ name: "a", description: "x" }), /no function/);
  assert.throws(() => of(() => {}, { readonly: true }), /unknown option `readonly`/);
  assert.throws(() => of(() => {}, { arguments: { a: string(), b: { type: "string" } } }), /mix schemas/);
});

test("results become the content that the contract defines", async () => {
  const outcome = async (value, options) => (await wit(of(() => value, options))).val;
  assert.deepEqual(await outcome("hi"), { content: [{ tag: "text", val: "hi" }], structured: undefined });
  assert.deepEqual(await outcome(undefined), { content: [], structured: undefined });
  assert.deepEqual((await outcome([1])).content, [{ tag: "json", val: "[1]" }]);
  assert.deepEqual((await outcome(null)).content, [{ tag: "json", val: "null" }]);
  const result = object({ n: integer() });
  assert.deepEqual(await outcome({ n: 1 }, { result }), { content: [], structured: '{"n":1}' });
  assert.deepEqual(await outcome(Done.structured({ n: 1 }, "one"), { result }), {
    content: [{ tag: "text", val: "one" }],
    structured: '{"n":1}',
  });
  const media = Done.media(new Uint8Array([1]), "image/png", "a.png").andStored("sha256:x").andText("see");
  assert.deepEqual(await outcome(media), {
    content: [
      { tag: "new-media", val: { mimeType: "image/png", data: new Uint8Array([1]), name: "a.png" } },
      { tag: "stored-media", val: "sha256:x" },
      { tag: "text", val: "see" },
    ],
    structured: undefined,
  });
});

test("a service request becomes pending", async () => {
  const request = pending("com.example.work", { a: 1 }, { answer: object({ ok: string() }), within: 500 });
  const { tag, val } = await wit(of(() => request));
  assert.equal(tag, "pending");
  assert.deepEqual([val.eventType, val.data, val.domain, val.answerWithin], ["com.example.work", '{"a":1}', undefined, 500]);
  assert.equal(JSON.parse(val.answerSchema).properties.ok.type, "string");
});

test("defaults reach the function, together with the call", async () => {
  const tools = of(({ n }, { id, scope }) => ({ n, id, user: scope.user }), { arguments: { n: integer().default(7) } });
  const outcome = await new TestHost().call(tools, "t.x", {}, { id: "c1", scope: { user: "ada" } });
  assert.deepEqual(outcome.value, { n: 7, id: "c1", user: "ada" });
});

test("errors have the kinds of the contract", () => {
  const value = (error) => error.toWit();
  assert.deepEqual(value(ToolError.invalid("/a", "bad")), {
    tag: "invalid-arguments",
    val: [{ pointer: "/a", message: "bad" }],
  });
  assert.deepEqual(value(ToolError.notFound("gone")), { tag: "not-found", val: "gone" });
  assert.deepEqual(value(ToolError.denied("no")), { tag: "denied", val: "no" });
  assert.deepEqual(value(ToolError.unavailable("later", { retryAfter: 10.2 })), {
    tag: "unavailable",
    val: { message: "later", retryAfter: 11 },
  });
  assert.deepEqual(value(ToolError.failed("why")), { tag: "failed", val: "why" });
});

test("an exception becomes an error with its name, and its stack is logged", async () => {
  const host = new TestHost();
  const run = async () => {
    try {
      null.x;
    } catch (cause) {
      throw new RangeError("outside", { cause });
    }
  };
  await assert.rejects(host.call(of(run), "t.x"), { kind: "failed", message: "RangeError: outside" });
  const lines = host.log.map(({ level, message }) => `${level} ${message}`);
  assert.equal(lines[0], "error RangeError: outside");
  assert.ok(lines.some((line) => /^error +at .*tool\.test\.js/.test(line)), lines.join("\n"));
  assert.ok(lines.some((line) => line.startsWith("error caused by TypeError: ")), lines.join("\n"));
  await assert.rejects(call(of(() => Promise.reject("a text")), "t.x"), { message: "a text" });
  await assert.rejects(call(of(() => 1n), "t.x"), { message: /^TypeError: / });
  await assert.rejects(call(of(() => {}), "t.y"), { kind: "not-found", message: "this plugin has no tool `t.y`" });
});
