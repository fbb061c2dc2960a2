import assert from "node:assert/strict";
import test from "node:test";
import { mediaPolicy } from "./app.js";

const item = (seenCount) => ({ seenCount, media: { name: "chart.png", mimeType: "image/png" } });

test("media that the model has seen are replaced by a line of text", () => {
  const [first, second] = mediaPolicy.decide({ items: [item(0), item(1)] });
  assert.equal(first.tag, "keep");
  assert.deepEqual(second, { tag: "mask", val: "[chart.png, image/png: seen before]" });
});
