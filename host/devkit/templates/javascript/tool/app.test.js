import assert from "node:assert/strict";
import test from "node:test";
import { tool } from "./app.js";

const call = (args) => tool.call("my-plugin.count", JSON.stringify(args), {});

test("words are counted in any case", () => {
  const outcome = call({ text: "One two, and ONE more.", word: "one" });
  assert.deepEqual(JSON.parse(outcome.val.structured), { times: 2 });
});

test("what is no word is refused with its place", () => {
  assert.throws(
    () => call({ text: "", word: "two words" }),
    (error) => error.tag === "invalid-arguments" && error.val[0].pointer === "/word",
  );
});
