// Tests of plugins in Node.js, without a host.

import type {
  Call,
  ContextBuilder,
  ContextRequest,
  Decision,
  Done,
  Media,
  MediaItem,
  MediaPolicy,
  MediaRequest,
  OutputRequest,
  OutputValidator,
  Scope,
  Section,
  ServiceRequest,
  StepContext,
  StepRequest,
  Tool,
  Verdict,
} from "./index.js";

type CallFields = Partial<Omit<Call, "scope">> & { scope?: Partial<Scope> };
type Fields<T> = Partial<Omit<T, "scope">> & { scope?: Partial<Scope> };

/** A host for tests. It grants only what its methods add. */
export class TestHost {
  /** Grants a setting. */
  config(key: string, value: string): this;
  /** Grants a request such as `GET https://api.example.com/v1/`, and sets its answer. */
  http(
    request: string,
    answer?: {
      status?: number;
      headers?: { [name: string]: string };
      text?: string;
      json?: unknown;
      bytes?: Uint8Array;
      /** The name of an error code of `wasi:http`, such as `connection-refused`. */
      error?: string;
    },
  ): this;
  /** Grants a directory. */
  tree(path: string): this;
  /** Grants stored values. */
  values(): this;
  /** Grants the model, and sets its next answer. */
  modelAnswer(text: string): this;
  /** Adds a media item to the session, and returns its description. */
  addMedia(bytes: Uint8Array, mimeType: string, name?: string): Media;
  /** The requests that the plugin has sent. */
  readonly requests: { method: string; url: string; headers: { [name: string]: string }; body: string }[];
  /** The log lines that the plugin has written. */
  readonly log: { level: string; message: string }[];
  /** The questions that the plugin has asked the model. */
  readonly questions: { system?: string; messages: { role: string; text: string }[]; maxTokens?: number }[];
  /** Calls a function whose calls of the SDK reach this host. */
  run<T>(call: () => T | Promise<T>): Promise<T>;
  /** Calls a tool as the host does, or throws a `ToolError`. */
  call(tools: Tool[], name: string, args?: object, call?: CallFields): Promise<Done & ServiceRequest>;
}

/** Calls a tool with a host that grants nothing. */
export function call(tools: Tool[], name: string, args?: object, call?: CallFields): Promise<Done & ServiceRequest>;
/** Calls a context builder. */
export function buildContext(
  contextBuilder: ContextBuilder,
  request?: Fields<ContextRequest>,
): Promise<{ system: Section[]; history: "keep" | "leave-out"; messages: unknown[]; state?: Uint8Array }>;
/** Calls a function that adds sections to a step. */
export function stepContext(stepContext: StepContext, request?: Fields<StepRequest>): Promise<Section[]>;
/** Asks an output validator about a text. */
export function validateOutput(
  outputValidator: OutputValidator,
  text: string,
  request?: Fields<OutputRequest>,
): Promise<Verdict>;
/** Asks a media policy about these items. */
export function decideMedia(
  mediaPolicy: MediaPolicy,
  items: (Partial<Omit<MediaItem, "media">> & { media?: Partial<Media> })[],
  request?: Fields<MediaRequest>,
): Promise<Decision[]>;
