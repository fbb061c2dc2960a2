import assert from "node:assert/strict";
import test from "node:test";
import { TestHost } from "agent-host-sdk/testing";
import { tools } from "./app.js";

// Calls the tool for the order 7 with a test host, which answers the request to the API.
const call = (answer) =>
  new TestHost().http("GET https://api.example.com/v1/orders/7", answer).call(tools, "my-plugin.order", { number: 7 });

test("returns the fields of the order", async () => {
  const outcome = await call({ json: { state: "packed", items: 3, warehouse: "north" } });
  assert.deepEqual(outcome.value, { state: "packed", items: 3 });
});

test("explains errors of the API", async () => {
  await assert.rejects(call({ status: 404 }), { kind: "not-found", message: "there is no order 7" });
  await assert.rejects(call({ status: 503 }), { kind: "unavailable" });
  await assert.rejects(call({ text: "no JSON" }), { kind: "failed" });
});
