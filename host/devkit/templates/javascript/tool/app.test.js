import assert from "node:assert/strict";
import test from "node:test";
import { tool } from "./app.js";

const call = (args) => tool.call("my-plugin.count", JSON.stringify(args), {});

test("counts words in any case", () => {
  const outcome = call({ text: "One two, and ONE more.", word: "one" });
  assert.deepEqual(JSON.parse(outcome.val.structured), { times: 2 });
});

test("rejects an argument that is not one word", () => {
  assert.throws(
    () => call({ text: "", word: "two words" }),
    (error) => error.tag === "invalid-arguments" && error.val[0].pointer === "/word",
  );
});
