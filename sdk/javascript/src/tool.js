// Tools that the model can call.

import { ToolError, toToolError } from "./errors.js";
import { toOutcome } from "./outcome.js";
import { Schema, object } from "./schema.js";

const TRAITS = ["readOnly", "destructive", "idempotent", "sequential", "openWorld", "needsApproval"];
const OPTIONS = ["name", "title", "description", "arguments", "result", "priority", ...TRAITS];

/** A tool, which consists of a definition and the function that runs when the model calls the tool. */
export class Tool {
  #definition;
  #input;
  #hasResultSchema;
  #run;

  constructor(options, run) {
    checkOptions(options, run);
    const { name, title, description, result, priority = 0 } = options;
    this.name = name;
    this.#input = inputSchema(options.arguments);
    this.#hasResultSchema = result !== undefined;
    this.#run = run;
    this.#definition = {
      name,
      title,
      description,
      inputSchema: JSON.stringify(this.#input),
      outputSchema: result === undefined ? undefined : JSON.stringify(result),
      traits: Object.fromEntries(TRAITS.map((trait) => [trait, options[trait] === true])),
      priority,
    };
  }

  /** Returns the definition as the contract defines it. */
  definition() {
    return this.#definition;
  }

  /** Checks the arguments and runs the tool. Returns a `Done` or a `ServiceRequest`, or throws a `ToolError`. */
  async call(args, call) {
    try {
      return toOutcome(await this.#run(this.#checked(args), call));
    } catch (thrown) {
      throw toToolError(thrown);
    }
  }

  /** Runs the tool with arguments as JSON text, and returns the result as the contract defines it. */
  async callWithText(text, call) {
    const outcome = await this.call(JSON.parse(text), call);
    return outcome.toWit({ hasSchema: this.#hasResultSchema });
  }

  #checked(args) {
    if (!(this.#input instanceof Schema)) return args;
    const { value, violations } = this.#input.check(args);
    if (violations.length > 0) throw ToolError.invalidAll(violations);
    return value;
  }
}

/**
 * Declares a tool. `options` contains the `name`, the `description` and the `arguments`, and optionally `title`,
 * `result`, `priority` and the traits `readOnly`, `destructive`, `idempotent`, `sequential`, `openWorld` and
 * `needsApproval`. `run` receives the arguments and the call.
 */
export function tool(options, run) {
  return new Tool(options, run);
}

/** Returns the functions of the contract's interface `tool`. `wait` runs a promise to its end. */
export function exportTools(tools, wait) {
  if (!Array.isArray(tools) || !tools.every((one) => one instanceof Tool)) {
    throw new TypeError("`tools` must be an array of tools: export const tools = [tool({ … }, (args) => …)]");
  }
  return {
    definitions: () => tools.map((tool) => tool.definition()),
    call(name, args, call) {
      try {
        return wait(findTool(tools, name).callWithText(args, call));
      } catch (thrown) {
        throw toToolError(thrown).toWit();
      }
    },
  };
}

/** Returns the tool with this name, or throws the error `not-found`. */
export function findTool(tools, name) {
  const found = tools.find((tool) => tool.name === name);
  if (found === undefined) throw ToolError.notFound(`this plugin has no tool \`${name}\``);
  return found;
}

/** The schema of the arguments: a schema, or the properties of an object, or JSON Schema. */
function inputSchema(args = {}) {
  if (args instanceof Schema) return args;
  const isProperties = Object.values(args).every((value) => value instanceof Schema);
  return isProperties ? object(args) : args;
}

function checkOptions(options, run) {
  const { name, description } = options;
  if (typeof name !== "string" || !/^[\w.-]{1,128}$/.test(name)) {
    throw new TypeError(`the name of a tool has 1 to 128 letters, digits, \`_\`, \`-\` and \`.\`, but it is ${name}`);
  }
  if (typeof description !== "string") throw new TypeError(`the tool ${name} has no description`);
  if (typeof run !== "function") throw new TypeError(`the tool ${name} has no function to run`);
  const unknown = Object.keys(options).find((option) => !OPTIONS.includes(option));
  if (unknown !== undefined) throw new TypeError(`the tool ${name} has the unknown option \`${unknown}\``);
  const mixed = options.arguments instanceof Schema ? [] : Object.values(options.arguments ?? {});
  if (mixed.some((value) => value instanceof Schema) && !mixed.every((value) => value instanceof Schema)) {
    throw new TypeError(`the arguments of the tool ${name} mix schemas with JSON Schema`);
  }
}
