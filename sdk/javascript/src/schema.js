// Schemas of arguments and results. A schema produces the JSON Schema that the model sees, and checks values in the same
// way.

/** The largest number of violations that one error contains. The host accepts at most 64. */
const MAX_VIOLATIONS = 64;

/** Describes a JSON value. Schemas are immutable: each method returns a new schema. */
export class Schema {
  /** Whether a property with this schema may be missing. */
  isOptional = false;
  /** The value of a property that is missing, or undefined. */
  defaultValue = undefined;
  #json;
  #check;

  /**
   * Creates a schema from its JSON Schema and a function that checks a value. The function receives the value, its JSON
   * pointer and a function that reports a violation, and returns the value with its defaults.
   */
  constructor(json, check) {
    this.#json = json;
    this.#check = check;
  }

  /** Allows that the property is missing. */
  optional() {
    return this.#with({}, { isOptional: true });
  }

  /** Sets the description that the model reads. */
  describe(description) {
    return this.#with({ description });
  }

  /** Sets the value that the tool receives if the property is missing. */
  default(value) {
    return this.#with({ default: value }, { isOptional: true, defaultValue: value });
  }

  /** Also accepts null. */
  nullable() {
    return oneOf(this, literal(null));
  }

  /** Returns the JSON Schema. */
  toJSON() {
    return this.#json;
  }

  /** Checks a value. Returns the value with its defaults, and what is wrong with the value. */
  check(value) {
    const violations = [];
    const report = (pointer, message) => {
      if (violations.length < MAX_VIOLATIONS) violations.push({ pointer, message });
    };
    return { value: this.checkAt(value, "", report), violations };
  }

  /** Checks a value that is a part of another value. */
  checkAt(value, pointer, report) {
    return this.#check(value, pointer, report);
  }

  #with(json, fields = {}) {
    const { isOptional, defaultValue } = this;
    return Object.assign(new Schema({ ...this.#json, ...json }, this.#check), { isOptional, defaultValue, ...fields });
  }
}

/** A text. */
export function string({ minLength, maxLength, pattern, format } = {}) {
  const source = pattern instanceof RegExp ? pattern.source : pattern;
  const expression = source === undefined ? undefined : new RegExp(source, "u");
  return new Schema(defined({ type: "string", minLength, maxLength, pattern: source, format }), (value, pointer, report) => {
    if (typeof value !== "string") return report(pointer, `must be a string, but it is ${kindOf(value)}`);
    const length = minLength === undefined && maxLength === undefined ? 0 : [...value].length;
    if (length < (minLength ?? 0)) report(pointer, `must have at least ${count(minLength, "character")}`);
    if (length > (maxLength ?? Infinity)) report(pointer, `must have at most ${count(maxLength, "character")}`);
    if (expression && !expression.test(value)) report(pointer, `must match the pattern ${source}`);
    return value;
  });
}

/** A whole number. */
export function integer(limits = {}) {
  return numeric("integer", Number.isInteger, "a whole number", limits);
}

/** A number. */
export function number(limits = {}) {
  return numeric("number", Number.isFinite, "a number", limits);
}

function numeric(type, isValid, expected, { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf }) {
  const json = defined({ type, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf });
  return new Schema(json, (value, pointer, report) => {
    if (!isValid(value)) return report(pointer, `must be ${expected}, but it is ${kindOf(value)}`);
    if (value < minimum) report(pointer, `must be at least ${minimum}`);
    if (value > maximum) report(pointer, `must be at most ${maximum}`);
    if (value <= exclusiveMinimum) report(pointer, `must be greater than ${exclusiveMinimum}`);
    if (value >= exclusiveMaximum) report(pointer, `must be less than ${exclusiveMaximum}`);
    if (multipleOf !== undefined && !Number.isInteger(value / multipleOf)) {
      report(pointer, `must be a multiple of ${multipleOf}`);
    }
    return value;
  });
}

/** True or false. */
export function boolean() {
  return new Schema({ type: "boolean" }, (value, pointer, report) => {
    if (typeof value !== "boolean") report(pointer, `must be true or false, but it is ${kindOf(value)}`);
    return value;
  });
}

/** A list whose items all have the same schema. */
export function array(items, { minItems, maxItems, uniqueItems } = {}) {
  const json = defined({ type: "array", items: items.toJSON(), minItems, maxItems, uniqueItems });
  return new Schema(json, (value, pointer, report) => {
    if (!Array.isArray(value)) return report(pointer, `must be an array, but it is ${kindOf(value)}`);
    if (value.length < minItems) report(pointer, `must have at least ${count(minItems, "item")}`);
    if (value.length > maxItems) report(pointer, `must have at most ${count(maxItems, "item")}`);
    if (uniqueItems && new Set(value.map((item) => JSON.stringify(item))).size < value.length) {
      report(pointer, "must not contain the same item twice");
    }
    return value.map((item, index) => items.checkAt(item, `${pointer}/${index}`, report));
  });
}

/** An object with these properties. Other properties are errors, unless `additionalProperties` is true. */
export function object(properties, { additionalProperties = false } = {}) {
  const required = Object.keys(properties).filter((name) => !properties[name].isOptional);
  const json = {
    type: "object",
    properties: Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, schema.toJSON()])),
    ...(required.length > 0 ? { required } : {}),
    additionalProperties,
  };
  return new Schema(json, (value, pointer, report) => {
    if (!isObject(value)) return report(pointer, `must be an object, but it is ${kindOf(value)}`);
    const result = {};
    for (const [name, schema] of Object.entries(properties)) {
      if (Object.hasOwn(value, name)) {
        result[name] = schema.checkAt(value[name], `${pointer}/${escapePointer(name)}`, report);
      } else if (schema.defaultValue !== undefined) {
        result[name] = schema.defaultValue;
      } else if (!schema.isOptional) {
        report(pointer, `the property \`${name}\` is missing`);
      }
    }
    for (const name of Object.keys(value).filter((name) => !Object.hasOwn(properties, name))) {
      if (additionalProperties) result[name] = value[name];
      else report(pointer, `there is no property \`${name}\``);
    }
    return result;
  });
}

/** An object with any property names, whose values all have the same schema. */
export function record(values) {
  return new Schema({ type: "object", additionalProperties: values.toJSON() }, (value, pointer, report) => {
    if (!isObject(value)) return report(pointer, `must be an object, but it is ${kindOf(value)}`);
    const checked = ([name, item]) => [name, values.checkAt(item, `${pointer}/${escapePointer(name)}`, report)];
    return Object.fromEntries(Object.entries(value).map(checked));
  });
}

/** Exactly this text, number, boolean or null. */
export function literal(expected) {
  return new Schema({ const: expected }, (value, pointer, report) => {
    if (value !== expected) report(pointer, `must be ${JSON.stringify(expected)}`);
    return value;
  });
}

/** Any JSON value. */
export function any() {
  return new Schema({}, (value) => value);
}

/** One of these values, or a value with one of these schemas. */
export function oneOf(...choices) {
  if (choices.length === 0) throw new TypeError("oneOf needs at least one value or schema");
  if (!choices.some((choice) => choice instanceof Schema)) return oneOfValues(choices);
  const schemas = choices.map((choice) => (choice instanceof Schema ? choice : literal(choice)));
  return new Schema({ anyOf: schemas.map((schema) => schema.toJSON()) }, (value, pointer, report) => {
    const results = schemas.map((schema) => schema.check(value));
    const found = results.find((result) => result.violations.length === 0);
    if (found) return found.value;
    const reasons = results.map(({ violations: [{ pointer, message }] }) => (pointer ? `${pointer}: ${message}` : message));
    return report(pointer, [...new Set(reasons)].join(", or "));
  });
}

function oneOfValues(values) {
  const types = new Set(values.map((value) => (value === null ? "null" : typeof value)));
  const type = types.size === 1 ? [...types][0] : undefined;
  return new Schema(defined({ type, enum: values }), (value, pointer, report) => {
    if (!values.includes(value)) {
      report(pointer, `must be one of ${values.map((choice) => JSON.stringify(choice)).join(", ")}`);
    }
    return value;
  });
}

/** Returns the object without properties that are undefined. */
function defined(json) {
  return Object.fromEntries(Object.entries(json).filter(([, value]) => value !== undefined));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function kindOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return { object: "an object", undefined: "missing" }[typeof value] ?? `a ${typeof value}`;
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function escapePointer(name) {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
