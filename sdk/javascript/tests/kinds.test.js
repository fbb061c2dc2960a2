// Context builders, output validators and media policies.

import assert from "node:assert/strict";
import test from "node:test";
import {
  Failure,
  accept,
  acceptJson,
  acceptText,
  downscale,
  dynamic,
  fixed,
  keep,
  mask,
  reject,
  textOf,
} from "agent-host-sdk";
import { buildContext, decideMedia, stepContext, validateOutput } from "agent-host-sdk/testing";
import { exportOutputValidator } from "../src/kinds.js";
import { exportTools } from "../src/tool.js";

test("a context builder returns sections, or a prompt with a state for the steps", async () => {
  const prompt = await buildContext(async ({ scope }) => [fixed("a", "x"), dynamic("b", scope.user)], {
    scope: { user: "ada" },
  });
  assert.deepEqual(prompt, {
    system: [
      { name: "a", text: "x", stability: "fixed" },
      { name: "b", text: "ada", stability: "dynamic" },
    ],
    history: "keep",
    messages: [],
    state: undefined,
  });
  const other = await buildContext(() => ({ history: "leave-out", state: { n: 1 } }));
  assert.deepEqual([other.system, other.history, new TextDecoder().decode(other.state)], [[], "leave-out", '{"n":1}']);
  const sections = await stepContext(({ state, step }) => [dynamic("n", `${state.n} ${step}`)], { state: { n: 1 } });
  assert.deepEqual(sections, [{ name: "n", text: "1 0", stability: "dynamic" }]);
});

test("a context builder reads JSON input and the schemas of tools", async () => {
  const tools = [{ name: "t", description: "", inputSchema: '{"type":"object"}', tokens: 1 }];
  const build = ({ input, tools }) => [fixed("a", `${input.val.n} ${tools[0].inputSchema.type}`)];
  const prompt = await buildContext(build, { input: { tag: "json", val: '{"n":2}' }, tools });
  assert.equal(prompt.system[0].text, "2 object");
});

test("an output validator gets the text and the JSON", async () => {
  const validator = ({ text, json, outputSchema }) => {
    if (text === "") return reject("is empty");
    return json === undefined ? acceptText(text.trim()) : outputSchema ? acceptJson({ ...json, checked: true }) : accept();
  };
  assert.deepEqual(await validateOutput(validator, ""), { tag: "reject", val: [{ pointer: "", message: "is empty" }] });
  assert.deepEqual(await validateOutput(validator, " a "), { tag: "accept-as", val: { tag: "text", val: "a" } });
  assert.deepEqual(await validateOutput(validator, '{"a":1}'), { tag: "accept" });
  assert.deepEqual(await validateOutput(validator, '{"a":1}', { outputSchema: {} }), {
    tag: "accept-as",
    val: { tag: "json", val: '{"a":1,"checked":true}' },
  });
});

test("a media policy is asked about each item", async () => {
  const policy = async ({ seenCount, media }, { messages }) =>
    seenCount > 0 ? mask(`${media.mimeType} of ${messages}`) : media.size > 9 ? downscale(8, 4) : keep();
  assert.deepEqual(await decideMedia(policy, [{}, { seenCount: 1 }, { media: { size: 10 } }]), [
    { tag: "keep" },
    { tag: "mask", val: "image/png of 3" },
    { tag: "downscale", val: { width: 8, height: 4 } },
  ]);
});

test("a failure has the kinds of the contract, and other exceptions become failures", () => {
  const thrown = (error) => {
    const run = (promise) => {
      promise.catch(() => {});
      throw error;
    };
    try {
      exportOutputValidator(() => accept(), run).validate({ text: "", structured: null, outputSchema: null });
    } catch (failure) {
      return failure;
    }
  };
  assert.deepEqual(thrown(Failure.invalidInput("no")), { tag: "invalid-input", val: "no" });
  assert.deepEqual(thrown(Failure.unavailable("later")), { tag: "unavailable", val: "later" });
  assert.deepEqual(thrown(new TypeError("x")), { tag: "failed", val: "TypeError: x" });
});

test("the texts of a message are joined", () => {
  const parts = [{ tag: "text", val: "a" }, { tag: "json", val: "1" }, { tag: "text", val: "b" }];
  assert.equal(textOf({ role: "user", parts, seenCount: 0 }), "a\nb");
});

test("an export of the wrong type is refused when the component is built", () => {
  assert.throws(() => exportOutputValidator({ validate() {} }), /`outputValidator` must be a function/);
  assert.throws(() => exportTools([{ name: "x" }]), /must be an array of tools/);
});
