import assert from "node:assert/strict";
import test from "node:test";
import { call } from "agent-host-sdk/testing";
import { tools } from "./app.js";

test("counts words in any case", async () => {
  const outcome = await call(tools, "my-plugin.count", { text: "One two, and ONE more.", word: "one" });
  assert.deepEqual(outcome.value, { times: 2 });
});

test("rejects an argument that is not one word", async () => {
  await assert.rejects(call(tools, "my-plugin.count", { text: "", word: "two words" }), {
    kind: "invalid-arguments",
    violations: [{ pointer: "/word", message: "must be one word of letters and digits" }],
  });
});
