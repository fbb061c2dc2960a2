// Tests of plugins in Node.js, without a host. The functions of the SDK call a `TestHost` instead of agent-host.

import {
  exportContextBuilder,
  exportMediaPolicy,
  exportOutputValidator,
  exportStepContext,
} from "../src/kinds.js";
import { findTool } from "../src/tool.js";
import { emptyState, withState } from "./host.js";
import { store } from "./media.js";

/** A host for tests. It grants only what its methods add. */
export class TestHost {
  #state = emptyState();

  /** Grants a setting. */
  config(key, value) {
    this.#state.config.set(key, value);
    return this;
  }

  /**
   * Grants a request, and sets its answer: `{ status, headers, text, json, bytes }`, or `{ error }` with the name of an
   * error code of `wasi:http`. `request` is a method and an address, such as `GET https://api.example.com/v1/`.
   */
  http(request, { status = 200, headers = {}, text, json, bytes, error } = {}) {
    const body = json === undefined ? (text ?? "") : JSON.stringify(json);
    const types = json === undefined ? {} : { "content-type": "application/json" };
    this.#state.answers.set(request, {
      status,
      headers: Object.entries({ ...types, ...headers }),
      bytes: bytes ?? new TextEncoder().encode(body),
      error,
    });
    return this;
  }

  /** Grants a directory. */
  tree(path) {
    this.#state.trees.push(path);
    return this;
  }

  /** Grants stored values. */
  values() {
    this.#state.buckets ??= new Map();
    return this;
  }

  /** Grants the model, and sets its next answer. */
  modelAnswer(text) {
    this.#state.modelAnswers.push(text);
    return this;
  }

  /** Adds a media item to the session, and returns its description. */
  addMedia(bytes, mimeType, name) {
    return store(bytes, mimeType, name, this.#state);
  }

  /** The requests that the plugin has sent: `{ method, url, headers, body }`. */
  get requests() {
    return this.#state.requests;
  }

  /** The log lines that the plugin has written: `{ level, message }`. */
  get log() {
    return this.#state.log;
  }

  /** The questions that the plugin has asked the model. */
  get questions() {
    return this.#state.questions;
  }

  /** Calls a function whose calls of the SDK reach this host. */
  run(call) {
    return withState(this.#state, call);
  }

  /** Calls a tool as the host does. Returns a `Done` or a `ServiceRequest`, or throws a `ToolError`. */
  call(tools, name, args = {}, call = {}) {
    const json = JSON.parse(JSON.stringify(args));
    return this.run(() => findTool(tools, name).call(json, testCall(call)));
  }
}

/** Calls a tool with a host that grants nothing. */
export function call(tools, name, args, context) {
  return new TestHost().call(tools, name, args, context);
}

const settled = (promise) => promise;

/** Calls a context builder. The fields of the request that are not given have usual values. */
export function buildContext(contextBuilder, request = {}) {
  return exportContextBuilder(contextBuilder, settled).init({
    lifecycle: "init",
    model: { provider: "test", name: "test", window: 128_000 },
    input: { tag: "text", val: "" },
    tools: [],
    memory: { history: [], hidden: 0, summary: null, recollections: [] },
    budget: { available: 100_000, reserved: 4_000, tools: 0 },
    ...request,
    scope: testScope(request.scope),
  });
}

/** Calls a function that adds sections to a step. `state` is the state that the context builder has returned. */
export function stepContext(step, { state, ...request } = {}) {
  const bytes = state === undefined ? null : new TextEncoder().encode(JSON.stringify(state));
  return exportStepContext(step, settled).step({
    lifecycle: "init",
    model: { provider: "test", name: "test", window: 128_000 },
    step: 0,
    stepsLeft: 1,
    latest: [],
    budget: { available: 100_000, reserved: 4_000, tools: 0 },
    ...request,
    state: bytes,
    scope: testScope(request.scope),
  });
}

/** Asks an output validator about a text. */
export function validateOutput(outputValidator, text, { outputSchema, ...request } = {}) {
  let structured = null;
  try {
    structured = JSON.stringify(JSON.parse(text));
  } catch {
    // The text is not JSON.
  }
  return exportOutputValidator(outputValidator, settled).validate({
    text,
    structured,
    outputSchema: outputSchema === undefined ? null : JSON.stringify(outputSchema),
    attempt: 1,
    correctionsLeft: 2,
    turn: [],
    ...request,
    scope: testScope(request.scope),
  });
}

/** Asks a media policy about these items. The fields of the items that are not given have usual values. */
export function decideMedia(mediaPolicy, items, request = {}) {
  const complete = ({ media, ...item }, index) => ({
    position: { message: index, part: 0, item: null },
    role: "user",
    seenCount: 0,
    masked: false,
    ...item,
    media: {
      digest: `sha256:${"0".repeat(64)}`,
      mimeType: "image/png",
      size: 1,
      dimensions: null,
      name: null,
      ...media,
    },
  });
  return exportMediaPolicy(mediaPolicy, settled).decide({
    model: { provider: "test", name: "test", window: 128_000 },
    messages: items.length,
    ...request,
    items: items.map(complete),
    scope: testScope(request.scope),
  });
}

function testCall(call) {
  return { id: "call-1", attempt: 1, timeLimit: 30_000, ...call, scope: testScope(call.scope) };
}

function testScope(scope) {
  return {
    agent: "test",
    session: "test/session",
    delegatedBy: null,
    user: null,
    turn: 1,
    trace: { traceparent: `00-${"1".repeat(32)}-${"1".repeat(16)}-01`, tracestate: null },
    ...scope,
  };
}
