import assert from "node:assert/strict";
import test from "node:test";
import { contextBuilder } from "./app.js";

const names = (user) => contextBuilder.init({ scope: { user } }).system.map((section) => section.name);

test("the prompt names the user if the user is known", () => {
  assert.deepEqual(names(undefined), ["answering"]);
  assert.deepEqual(names("ada"), ["answering", "reader"]);
});
