// Schemas: the JSON Schema that the model sees, and the checks.

import assert from "node:assert/strict";
import test from "node:test";
import { any, array, boolean, integer, literal, number, object, oneOf, record, string } from "agent-host-sdk";

const json = (schema) => JSON.parse(JSON.stringify(schema));
const messages = (schema, value) =>
  schema.check(value).violations.map(({ pointer, message }) => `${pointer}: ${message}`);

test("schemas become JSON Schema", () => {
  const schema = object({
    name: string({ minLength: 1, pattern: /^\p{L}+$/u }).describe("A name."),
    size: integer({ minimum: 0 }).default(3),
    ratio: number({ exclusiveMaximum: 1 }).optional(),
    tags: array(string(), { maxItems: 2, uniqueItems: true }).optional(),
    unit: oneOf("mm", "inch"),
    on: boolean().nullable(),
    extra: record(integer()),
    version: literal(1),
    other: any(),
  });
  assert.deepEqual(json(schema), {
    type: "object",
    properties: {
      name: { type: "string", minLength: 1, pattern: "^\\p{L}+$", description: "A name." },
      size: { type: "integer", minimum: 0, default: 3 },
      ratio: { type: "number", exclusiveMaximum: 1 },
      tags: { type: "array", items: { type: "string" }, maxItems: 2, uniqueItems: true },
      unit: { type: "string", enum: ["mm", "inch"] },
      on: { anyOf: [{ type: "boolean" }, { const: null }] },
      extra: { type: "object", additionalProperties: { type: "integer" } },
      version: { const: 1 },
      other: {},
    },
    required: ["name", "unit", "on", "extra", "version", "other"],
    additionalProperties: false,
  });
});

test("a schema does not change when another is derived from it", () => {
  const base = string();
  base.describe("A text.").optional();
  assert.deepEqual(json(base), { type: "string" });
  assert.equal(base.isOptional, false);
  const described = string().default("a").describe("A text.");
  assert.deepEqual([described.isOptional, described.defaultValue], [true, "a"]);
});

test("violations name the place and what would be right", () => {
  const rows = object({ rows: array(object({ "a/b": integer({ minimum: 1 }) }), { minItems: 1 }) });
  assert.deepEqual(messages(rows, { rows: [{ "a/b": 1 }, { "a/b": 0 }] }), ["/rows/1/a~1b: must be at least 1"]);
  assert.deepEqual(messages(rows, { rows: [] }), ["/rows: must have at least 1 item"]);
  assert.deepEqual(messages(rows, {}), [": the property `rows` is missing"]);
  assert.deepEqual(messages(rows, { rows: null, more: 1 }), [
    "/rows: must be an array, but it is null",
    ": there is no property `more`",
  ]);
  assert.deepEqual(messages(string({ maxLength: 2 }), "😀😀😀"), [": must have at most 2 characters"]);
  assert.deepEqual(messages(string({ maxLength: 3 }), "😀😀😀"), []);
  assert.deepEqual(messages(integer(), 1.5), [": must be a whole number, but it is a number"]);
  assert.deepEqual(messages(number({ multipleOf: 5 }), 7), [": must be a multiple of 5"]);
  assert.deepEqual(messages(oneOf("a", "b"), "c"), [': must be one of "a", "b"']);
  assert.deepEqual(messages(array(integer(), { uniqueItems: true }), [1, 1]), [
    ": must not contain the same item twice",
  ]);
});

test("a value of several schemas must match one of them", () => {
  const schema = oneOf(object({ path: string() }), object({ url: string() }), "none");
  assert.deepEqual(schema.check({ url: "x" }), { value: { url: "x" }, violations: [] });
  assert.deepEqual(schema.check("none").violations, []);
  assert.match(messages(schema, { path: 1 })[0], /^: \/path: must be a string, but it is a number, or /);
  assert.throws(() => oneOf(), TypeError);
});

test("defaults are filled in, and other properties are kept only on request", () => {
  const schema = object({ size: integer().default(3), inner: object({ on: boolean().default(false) }) });
  assert.deepEqual(schema.check({ inner: {} }).value, { size: 3, inner: { on: false } });
  const open = object({ size: integer() }, { additionalProperties: true });
  assert.deepEqual(open.check({ size: 1, more: 2 }), { value: { size: 1, more: 2 }, violations: [] });
});

test("an error contains at most 64 violations", () => {
  assert.equal(array(integer()).check(new Array(100).fill("x")).violations.length, 64);
});
