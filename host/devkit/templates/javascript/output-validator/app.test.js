import assert from "node:assert/strict";
import test from "node:test";
import { outputValidator } from "./app.js";

const verdict = (text) => outputValidator.validate({ text }).tag;

test("unfinished answers are rejected", () => {
  assert.equal(verdict("The harbour opens at 6."), "accept");
  assert.equal(verdict("The harbour opens at TODO."), "reject");
});
