// The other kinds of plugins: context builders, output validators and media policies. Each is a function that receives
// the request of the host. A failure ends the turn.

import { toFailure } from "./errors.js";

/** A section of the prompt whose text is the same in every turn, so that providers can cache the prompt. */
export function fixed(name, text) {
  return { name, text, stability: "fixed" };
}

/** A section of the prompt whose text may change. */
export function dynamic(name, text) {
  return { name, text, stability: "dynamic" };
}

/** Accepts an output. */
export function accept() {
  return { tag: "accept" };
}

/** Accepts an output, and replaces it by this text. */
export function acceptText(text) {
  return { tag: "accept-as", val: { tag: "text", val: text } };
}

/** Accepts an output, and replaces it by this JSON value. */
export function acceptJson(value) {
  return { tag: "accept-as", val: { tag: "json", val: JSON.stringify(value) } };
}

/**
 * Rejects an output. The model reads the message, which should say what is wrong and what would be right. `pointer` is a
 * JSON pointer to the wrong value. It is empty if the message is about the whole output.
 */
export function reject(message, pointer = "") {
  return rejectAll([{ pointer, message }]);
}

/** Rejects an output for several problems: `{ pointer, message }` for each. */
export function rejectAll(problems) {
  return { tag: "reject", val: problems };
}

/** Sends a media item unchanged. */
export function keep() {
  return { tag: "keep" };
}

/** Sends this text instead of a media item. */
export function mask(text) {
  return { tag: "mask", val: text };
}

/** Sends an image scaled down to fit this size in pixels. */
export function downscale(width, height) {
  return { tag: "downscale", val: { width, height } };
}

/** Returns the texts of a message, joined with line breaks. */
export function textOf(message) {
  return message.parts
    .filter(({ tag }) => tag === "text")
    .map(({ val }) => val)
    .join("\n");
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Returns the functions of the contract's interface `context-builder`. */
export function exportContextBuilder(build, wait) {
  checkFunction("contextBuilder", build);
  return {
    init: withFailures(wait, async (request) => {
      const { input, tools } = request;
      const prompt = await build({
        ...request,
        input: input.tag === "json" ? { ...input, val: JSON.parse(input.val) } : input,
        tools: tools.map((tool) => ({ ...tool, inputSchema: JSON.parse(tool.inputSchema) })),
      });
      const { system = [], history = "keep", messages = [], state } = Array.isArray(prompt) ? { system: prompt } : prompt;
      const bytes = state === undefined ? undefined : encoder.encode(JSON.stringify(state));
      return { system, history, messages, state: bytes };
    }),
  };
}

/** Returns the functions of the contract's interface `step-context`. */
export function exportStepContext(build, wait) {
  checkFunction("stepContext", build);
  return {
    step: withFailures(wait, (request) => {
      const { state } = request;
      return build({ ...request, state: state == null ? undefined : JSON.parse(decoder.decode(Uint8Array.from(state))) });
    }),
  };
}

/** Returns the functions of the contract's interface `output-validator`. */
export function exportOutputValidator(validate, wait) {
  checkFunction("outputValidator", validate);
  const parsed = (text) => (text == null ? undefined : JSON.parse(text));
  return {
    validate: withFailures(wait, ({ structured, outputSchema, ...request }) =>
      validate({ ...request, json: parsed(structured), outputSchema: parsed(outputSchema) }),
    ),
  };
}

/** Returns the functions of the contract's interface `media-policy`. `decide` is called for each item. */
export function exportMediaPolicy(decide, wait) {
  checkFunction("mediaPolicy", decide);
  return {
    decide: withFailures(wait, (request) => Promise.all(request.items.map((item) => decide(item, request)))),
  };
}

function checkFunction(name, value) {
  if (typeof value !== "function") throw new TypeError(`\`${name}\` must be a function, but it is ${typeof value}`);
}

/** Returns a function that runs `call` to its end, and throws failures as the contract defines them. */
function withFailures(wait, call) {
  const run = async (request) => call(request);
  return (request) => {
    try {
      return wait(run(request));
    } catch (thrown) {
      throw toFailure(thrown).toWit();
    }
  };
}
