import assert from "node:assert/strict";
import test from "node:test";
import { buildContext } from "agent-host-sdk/testing";
import { contextBuilder } from "./app.js";

const names = async (scope) => (await buildContext(contextBuilder, { scope })).system.map((section) => section.name);

test("the prompt names the user if the user is known", async () => {
  assert.deepEqual(await names({}), ["answering"]);
  assert.deepEqual(await names({ user: "ada" }), ["answering", "reader"]);
});
