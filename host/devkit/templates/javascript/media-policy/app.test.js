import assert from "node:assert/strict";
import test from "node:test";
import { decideMedia } from "agent-host-sdk/testing";
import { mediaPolicy } from "./app.js";

const media = { name: "chart.png", mimeType: "image/png" };

test("media that the model has seen are replaced by a line of text", async () => {
  const [first, second] = await decideMedia(mediaPolicy, [{ media }, { seenCount: 1, media }]);
  assert.equal(first.tag, "keep");
  assert.deepEqual(second, { tag: "mask", val: "[chart.png, image/png: seen before]" });
});
