// A form made from the JSON Schema of a tool's arguments. Simple properties get a field of their own; everything else is written
// as JSON. The server checks the arguments, so that the form only helps to write them.

import { h, outside, uniqueId } from "../core/dom.js";

/**
 * Returns a form. `read()` returns the arguments, or throws an `Error` with a sentence, after it has marked the field.
 */
export function schemaForm(schema) {
  const properties = Object.entries(isObject(schema?.properties) ? schema.properties : {});
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const isSimple = properties.length > 0 && properties.length <= 30;
  const fields = isSimple ? properties.map(([name, property]) => field(name, isObject(property) ? property : {}, required.has(name))) : [jsonField()];
  const element = h("div", { class: "stack" },
    properties.length === 0 && isObject(schema) && schema.additionalProperties === false
      ? h("p", { class: "muted" }, "The tool has no arguments.") : fields.map((one) => one.element));
  const read = () => {
    if (!isSimple) return fields[0].element.isConnected ? fields[0].read() : {};
    const values = {};
    for (const one of fields) {
      const value = one.read();
      if (value !== undefined) values[one.name] = value;
    }
    return values;
  };
  return { element, read };
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function kindOf(property) {
  if (Array.isArray(property.enum) && property.enum.every((choice) => typeof choice === "string")) return "choice";
  const kinds = (Array.isArray(property.type) ? property.type : [property.type]).filter((kind) => kind !== "null");
  return kinds.length === 1 && ["string", "number", "integer", "boolean"].includes(kinds[0]) ? kinds[0] : "json";
}

function field(name, property, isRequired) {
  const kind = kindOf(property);
  const [id, hint, problem] = [uniqueId("field"), uniqueId("hint"), uniqueId("problem")];
  const common = { id, "aria-describedby": `${hint} ${problem}`, required: isRequired };
  const initial = property.default;
  const control = {
    choice: () => h("select", common, !isRequired && h("option", { value: "" }, "not set"), property.enum?.map((choice) => h("option", { value: choice, selected: choice === initial }, choice))),
    boolean: () => h("select", common, !isRequired && h("option", { value: "" }, "not set"), ["true", "false"].map((choice) => h("option", { value: choice, selected: String(initial) === choice }, choice))),
    number: () => h("input", { ...common, type: "text", inputmode: "decimal", autocomplete: "off", value: initial === undefined ? "" : String(initial) }),
    integer: () => h("input", { ...common, type: "text", inputmode: "numeric", autocomplete: "off", value: initial === undefined ? "" : String(initial) }),
    string: () => h("textarea", { ...common, rows: "1", spellcheck: "false", value: typeof initial === "string" ? initial : "" }),
    json: () => h("textarea", { ...common, rows: "3", class: "mono", spellcheck: "false", placeholder: "JSON", value: initial === undefined ? "" : JSON.stringify(initial, null, 2) }),
  }[kind]();
  const error = h("span", { class: "error", id: problem });
  const description = typeof property.description === "string" ? property.description : "";
  const word = kind === "json" ? "JSON" : kind === "string" ? "text" : kind;
  const element = h("div", { class: "field" },
    h("label", { for: id }, outside(name, { class: "mono" })),
    h("span", { class: "hint", id: hint }, `${word}, ${isRequired ? "required" : "optional"}`, description && [". ", outside(description)]),
    control, error);
  const fail = (sentence) => {
    control.setAttribute("aria-invalid", "true");
    error.textContent = sentence;
    control.focus();
    throw new Error(`${name}: ${sentence}`);
  };
  const read = () => {
    control.removeAttribute("aria-invalid");
    error.textContent = "";
    const text = control.value;
    // An empty text is a value of its own only where a text is required.
    if (text === "" && !(isRequired && kind === "string")) return isRequired ? fail("A value is required.") : undefined;
    switch (kind) {
      case "boolean": return text === "true";
      case "number": return Number.isFinite(Number(text)) ? Number(text) : fail("This is not a number.");
      case "integer": return Number.isSafeInteger(Number(text)) ? Number(text) : fail("This is not a whole number.");
      case "json": try { return JSON.parse(text); } catch (cause) { return fail(`This is not JSON: ${cause.message}.`); }
      default: return text;
    }
  };
  return { name, element, read };
}

function jsonField() {
  const one = field("arguments", { description: "All arguments as one JSON object." }, true);
  const read = () => {
    const value = one.read();
    if (!isObject(value)) throw new Error("The arguments must be a JSON object.");
    return value;
  };
  one.element.querySelector("textarea").value = "{}";
  return { ...one, read };
}
