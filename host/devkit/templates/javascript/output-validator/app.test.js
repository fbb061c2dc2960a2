import assert from "node:assert/strict";
import test from "node:test";
import { validateOutput } from "agent-host-sdk/testing";
import { outputValidator } from "./app.js";

const verdict = async (text) => (await validateOutput(outputValidator, text)).tag;

test("unfinished answers are rejected", async () => {
  assert.equal(await verdict("The harbour opens at 6."), "accept");
  assert.equal(await verdict("The harbour opens at TODO."), "reject");
});
