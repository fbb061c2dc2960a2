// Help about the key at the cursor of an editor, from the JSON Schema of agent.toml.

/**
 * Returns the help for a position of a text: `{ name, description, facts, keys }`. `keys` are the keys of the table, each with the
 * first sentence about it.
 */
export function helpFor(schema, text, position) {
  const lines = text.slice(0, position).split("\n");
  const line = text.split("\n")[lines.length - 1] ?? "";
  const header = headerOf(line) ?? lines.slice(0, -1).reverse().map(headerOf).find((found) => found) ?? [];
  const isHeader = headerOf(line) !== null;
  const key = isHeader ? [] : keyOf(line);
  const table = resolve(schema, schema, header);
  const path = [...header, ...key];
  const found = key.length === 0 ? table : resolve(schema, table, key);
  const keys = found?.properties ?? (key.length === 0 ? table?.properties : null) ?? {};
  return {
    name: isHeader ? `[${header.join(".")}]` : path.join("."),
    description: found?.description ?? "",
    facts: found && key.length > 0 ? factsOf(found) : [],
    keys: Object.entries(keys).map(([name, property]) => [name, firstSentence(resolve(schema, property, [])?.description ?? "")]),
  };
}

function headerOf(line) {
  const match = /^\s*\[\[?\s*([^\]#]+?)\s*\]\]?\s*(#.*)?$/.exec(line);
  return match ? parts(match[1]) : null;
}

function keyOf(line) {
  const match = /^\s*#?\s*([A-Za-z0-9_."'-]+)\s*=/.exec(line);
  return match ? parts(match[1]) : [];
}

function parts(text) {
  return text.split(".").map((part) => part.trim().replace(/^["']|["']$/g, ""));
}

/** Returns the schema of the value at a path below `schema`. */
function resolve(root, schema, path) {
  let found = schema;
  for (const step of [null, ...path]) {
    if (step !== null) found = found?.properties?.[step] ?? (typeof found?.additionalProperties === "object" ? found.additionalProperties : null);
    const reference = found?.$ref;
    if (typeof reference === "string" && reference.startsWith("#/$defs/")) found = { ...root.$defs?.[reference.slice(8)], ...found, $ref: undefined };
    if (!found) return null;
  }
  return found;
}

function factsOf(schema) {
  const kind = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type;
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return [
    kind && ["Type", kind],
    schema.enum && ["Values", schema.enum.map(text).join(", ")],
    schema.default !== undefined && ["Default", text(schema.default)],
    schema.minimum !== undefined && ["At least", text(schema.minimum)],
    schema.maximum !== undefined && ["At most", text(schema.maximum)],
    schema.examples && ["Example", schema.examples.map(text).join(", ")],
  ].filter(Boolean);
}

function firstSentence(text) {
  return /^.*?[.!?](?=\s|$)/s.exec(text)?.[0] ?? text;
}
