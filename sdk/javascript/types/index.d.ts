// The types of the SDK for plugins in JavaScript and TypeScript.

/** A value that JSON can express. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** A JSON Schema (2020-12). */
export type JsonSchema = { [keyword: string]: unknown };

/** Whether a property may be missing: never, possibly, or it then has a default value. */
type Presence = "required" | "optional" | "default";

/** Describes a JSON value. A schema produces the JSON Schema for the model, and checks values. Schemas are immutable. */
export class Schema<T, P extends Presence = "required"> {
  private readonly value: T;
  private readonly presence: P;
  /** Allows that the property is missing. */
  optional(): Schema<T, "optional">;
  /** Sets the description that the model reads. */
  describe(description: string): Schema<T, P>;
  /** Sets the value that the tool receives if the property is missing. */
  default(value: T): Schema<T, "default">;
  /** Also accepts null. */
  nullable(): Schema<T | null>;
  /** Returns the JSON Schema. */
  toJSON(): JsonSchema;
  /** Checks a value. Returns the value with its defaults, and what is wrong with the value. */
  check(value: unknown): { value: T; violations: Violation[] };
}

type AnySchema = Schema<any, Presence>;
type Properties = { [name: string]: AnySchema };
type OptionalKeys<S extends Properties> = {
  [K in keyof S]: S[K] extends Schema<any, "optional"> ? K : never;
}[keyof S];
type Simplified<T> = { [K in keyof T]: T[K] };

/** The type of the values that a schema describes. */
export type Infer<S> = S extends Schema<infer T, any> ? T : never;
/** The type of an object with properties of these schemas. */
export type InferObject<S extends Properties> = Simplified<
  { [K in Exclude<keyof S, OptionalKeys<S>>]: Infer<S[K]> } & { [K in OptionalKeys<S>]?: Infer<S[K]> }
>;

/** A text. Lengths count characters. */
export function string(limits?: {
  minLength?: number;
  maxLength?: number;
  pattern?: string | RegExp;
  /** A format that the model reads, such as `date`. It is not checked. */
  format?: string;
}): Schema<string>;

interface NumberLimits {
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
}

/** A whole number. */
export function integer(limits?: NumberLimits): Schema<number>;
/** A number. */
export function number(limits?: NumberLimits): Schema<number>;
/** True or false. */
export function boolean(): Schema<boolean>;
/** A list whose items all have the same schema. */
export function array<T>(
  items: Schema<T, any>,
  limits?: { minItems?: number; maxItems?: number; uniqueItems?: boolean },
): Schema<T[]>;
/** An object with these properties. Other properties are errors, unless `additionalProperties` is true. */
export function object<S extends Properties>(
  properties: S,
  options?: { additionalProperties?: boolean },
): Schema<InferObject<S>>;
/** An object with any property names, whose values all have the same schema. */
export function record<T>(values: Schema<T, any>): Schema<{ [name: string]: T }>;
/** Exactly this value. */
export function literal<const T extends string | number | boolean | null>(value: T): Schema<T>;
/** Any JSON value. */
export function any(): Schema<any>;
/** One of these values, or a value with one of these schemas. */
export function oneOf<const C extends (string | number | boolean | null | AnySchema)[]>(
  ...choices: C
): Schema<C[number] extends infer X ? (X extends Schema<infer T, any> ? T : X) : never>;

/** What is wrong with a value, and where. */
export interface Violation {
  /** A JSON pointer, such as `/rows/3/price`. Empty for the whole value. */
  pointer: string;
  message: string;
}

/** For whom a plugin works. */
export interface Scope {
  /** The configured name of the agent. */
  agent: string;
  /** The subject of the session. */
  session: string;
  /** The subject of the session that delegated the work, or null. */
  delegatedBy: string | null;
  /** The user, or null if the agent's configuration names none. */
  user: string | null;
  /** Number of the turn in its session, from 1. */
  turn: number;
  /** The trace of the call, as W3C Trace Context. */
  trace: { traceparent: string; tracestate: string | null };
}

/** The circumstances of a call. */
export interface Call {
  /** The id of the call. It is the same in every attempt, so it can be used as an idempotency key. */
  id: string;
  /** 1 for the first attempt. */
  attempt: number;
  /** The wall time of this attempt in milliseconds. */
  timeLimit: number;
  scope: Scope;
}

/** The definition of a tool. */
export interface ToolOptions<A> {
  /** 1 to 128 letters, digits, `_`, `-` and `.`, for example `table.filter`. */
  name: string;
  /** A title that is shown to users, for example `Filter a table`. */
  title?: string;
  /** For the model: the effect and the result of the tool, and when to use it. At most 2 KiB. */
  description: string;
  /** The arguments: the schemas of the properties, a schema, or JSON Schema. By default, there are none. */
  arguments?: A;
  /** The schema of the result. The host checks the result. */
  result?: AnySchema | JsonSchema;
  /** The tool changes nothing. The host may run and repeat calls at any time. */
  readOnly?: boolean;
  /** The tool may delete or overwrite data. */
  destructive?: boolean;
  /** A second call with the same id has no further effect. */
  idempotent?: boolean;
  /** The tool must not run in parallel with another call. */
  sequential?: boolean;
  /** The tool uses external systems, such as the web or mail. */
  openWorld?: boolean;
  /** A user must approve each call. */
  needsApproval?: boolean;
  /** Of the calls in one reply, the host runs only those with the highest priority. The default is 0. */
  priority?: number;
}

/** The type of the arguments that the function of a tool receives. */
export type Arguments<A> =
  A extends Schema<infer T, any> ? T : A extends Properties ? InferObject<A> : { [name: string]: any };

/** What the function of a tool may return: a text, a JSON value, nothing, or an explicit result. */
export type ToolResult = unknown;

/** A tool. Export the tools of a plugin as `export const tools = […]`. */
export class Tool {
  private constructor();
  readonly name: string;
}

/** Declares a tool. Exceptions become errors of the tool, and their stacks are written to the log. */
export function tool<const A extends Properties | AnySchema | JsonSchema = {}>(
  options: ToolOptions<A>,
  run: (args: Arguments<A>, call: Call) => ToolResult | Promise<ToolResult>,
): Tool;

/** A finished result: content for the model, and optionally a machine-readable result. */
export class Done {
  static nothing(): Done;
  /** A text for the model. */
  static text(text: string): Done;
  /** A JSON value for the model. If the tool has a result schema, it is also the machine-readable result. */
  static json(value: unknown): Done;
  /** A machine-readable result, and a text for the model. */
  static structured(value: unknown, text?: string): Done;
  /** A new media item of at most 4 MiB. */
  static media(bytes: Uint8Array, mimeType: string, name?: string): Done;
  /** A media item that this session has already stored, by its digest. */
  static stored(digest: string): Done;
  andText(text: string): Done;
  andJson(value: unknown): Done;
  andMedia(bytes: Uint8Array, mimeType: string, name?: string): Done;
  andStored(digest: string): Done;
  /** All texts and JSON texts of the content, joined with line breaks. */
  readonly texts: string;
  /** The machine-readable result, or the content if it is a single JSON value, or undefined. */
  readonly value: any;
  /** The media items of the content. */
  readonly media: ({ mimeType: string; data: Uint8Array; name?: string } | { digest: string })[];
}

/** A request to an external service. Create it with `pending`. */
export class ServiceRequest {
  private constructor();
  readonly eventType: string;
  readonly data: unknown;
}

/**
 * Requests work from an external service. The turn waits for the answer, which becomes the result of the call. The
 * manifest must request the event type.
 */
export function pending(
  eventType: string,
  data: unknown,
  options?: {
    /** Selects one of several services with the same event type. */
    domain?: string;
    /** The schema of the answer. */
    answer?: AnySchema | JsonSchema;
    /** The time limit for the answer in milliseconds. */
    within?: number;
  },
): ServiceRequest;

/** An error of a tool, which the model reads. Throw it from the function of a tool. */
export class ToolError extends Error {
  readonly kind: "invalid-arguments" | "not-found" | "denied" | "unavailable" | "failed";
  readonly violations: Violation[];
  readonly retryAfter?: number;
  /** An argument is invalid. `pointer` is a JSON pointer to the argument. */
  static invalid(pointer: string, message: string): ToolError;
  /** Several arguments are invalid. */
  static invalidAll(violations: Violation[]): ToolError;
  /** The call refers to something that does not exist. */
  static notFound(message: string): ToolError;
  /** The call is not allowed, and would fail again. */
  static denied(message: string): ToolError;
  /** The call may succeed later. `retryAfter` is in milliseconds. */
  static unavailable(message: string, options?: { retryAfter?: number }): ToolError;
  /** The call failed for another reason. */
  static failed(message: string): ToolError;
}

/** A failure of a context builder, an output validator or a media policy. It ends the turn. */
export class Failure extends Error {
  readonly kind: "invalid-input" | "unavailable" | "failed";
  static invalidInput(message: string): Failure;
  static unavailable(message: string): Failure;
  static failed(message: string): Failure;
}

/** Size of an image in pixels. */
export interface Dimensions {
  width: number;
  height: number;
}

/** The description of a stored media item. */
export interface Media {
  digest: string;
  mimeType: string;
  /** Length in bytes. */
  size: number;
  dimensions: Dimensions | null;
  name: string | null;
}

/** Content of a tool result. `json` is JSON text. */
export type Content = { tag: "text"; val: string } | { tag: "json"; val: string } | { tag: "media"; val: Media };

/** A part of a message. `json` and the arguments of a call are JSON text. */
export type Part =
  | Content
  | { tag: "tool-call"; val: { id: string; name: string; arguments: string } }
  | { tag: "tool-result"; val: { callId: string; name: string; content: Content[]; isError: boolean } };

/** A message of the conversation. */
export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  parts: Part[];
  /** Model calls in which this message has been sent. 0 for a new message. */
  seenCount: number;
}

/** Returns the texts of a message, joined with line breaks. */
export function textOf(message: Message): string;

/** The model that a prompt is for. */
export interface Model {
  provider: string;
  name: string;
  /** Context window in tokens. */
  window: number;
}

/** Why a prompt is built. */
export type Lifecycle = "init" | "tool-result" | "output-error-feedback";

/** Tokens, as the host counts them for the model. */
export interface Budget {
  available: number;
  reserved: number;
  tools: number;
}

/** A named piece of the system text. Create it with `fixed` or `dynamic`. */
export interface Section {
  name: string;
  text: string;
  stability: "fixed" | "dynamic";
}

/** A section whose text is the same in every turn, so that providers can cache the prompt. */
export function fixed(name: string, text: string): Section;
/** A section whose text may change. */
export function dynamic(name: string, text: string): Section;

export interface ContextRequest {
  lifecycle: Lifecycle;
  scope: Scope;
  model: Model;
  input: { tag: "text"; val: string } | { tag: "json"; val: Json } | { tag: "message"; val: Message };
  /** The tools that the model will be offered. */
  tools: { name: string; description: string; inputSchema: JsonSchema; tokens: number }[];
  memory: {
    /** The earlier turns of the session that are sent, oldest first. */
    history: Message[];
    hidden: number;
    summary: string | null;
    recollections: { id: string; text: string; written: string; score: number }[];
  };
  budget: Budget;
}

/** The prompt with which a turn begins. */
export interface Prompt {
  system?: Section[];
  /** Whether the earlier turns are sent. The default is `keep`. */
  history?: "keep" | "leave-out";
  /** Begin this turn, after the history. By default, the host adds one user message with the input. */
  messages?: Message[];
  /** A JSON value for `stepContext`, of at most 64 KiB. */
  state?: unknown;
}

/** Adds sections to the prompt at the start of each turn. Export it as `contextBuilder`. */
export type ContextBuilder = (request: ContextRequest) => Section[] | Prompt | Promise<Section[] | Prompt>;

export interface StepRequest {
  lifecycle: Lifecycle;
  scope: Scope;
  model: Model;
  /** Model calls of this turn so far. */
  step: number;
  /** Model calls that may still come, including this one. */
  stepsLeft: number;
  /** What was added since the step before. */
  latest: Message[];
  budget: Budget;
  /** The state that the context builder has returned, or undefined. */
  state: any;
}

/** Adds sections to the prompt of one step. Export it as `stepContext`, beside `contextBuilder`. */
export type StepContext = (request: StepRequest) => Section[] | Promise<Section[]>;

export interface OutputRequest {
  scope: Scope;
  /** The reply without a tool call. */
  text: string;
  /** The text as a JSON value, or undefined if it is not JSON. */
  json: any;
  /** The agent's output schema, or undefined. */
  outputSchema: JsonSchema | undefined;
  /** 1 for the first output of the turn. */
  attempt: number;
  /** Corrections that the model may still make. 0: a rejection ends the turn. */
  correctionsLeft: number;
  /** The turn so far, oldest message first. */
  turn: Message[];
}

/** The decision of an output validator. Create it with `accept`, `acceptText`, `acceptJson`, `reject` or `rejectAll`. */
export type Verdict =
  | { tag: "accept" }
  | { tag: "accept-as"; val: { tag: "text" | "json"; val: string } }
  | { tag: "reject"; val: Violation[] };

/** Decides whether an answer may end the turn, within 250 ms. Export it as `outputValidator`. */
export type OutputValidator = (request: OutputRequest) => Verdict | Promise<Verdict>;

/** Accepts an output. */
export function accept(): Verdict;
/** Accepts an output, and replaces it by this text. */
export function acceptText(text: string): Verdict;
/** Accepts an output, and replaces it by this JSON value. */
export function acceptJson(value: unknown): Verdict;
/** Rejects an output. The model reads the message. `pointer` is a JSON pointer to the wrong value. */
export function reject(message: string, pointer?: string): Verdict;
/** Rejects an output for several problems. */
export function rejectAll(problems: Violation[]): Verdict;

export interface MediaItem {
  position: { message: number; part: number; item: number | null };
  role: Message["role"];
  /** Model calls in which it has been sent. 0: the model has not seen it. */
  seenCount: number;
  media: Media;
  /** An earlier decision of this session masks it. */
  masked: boolean;
}

export interface MediaRequest {
  scope: Scope;
  model: Model;
  /** Number of messages in the prompt. */
  messages: number;
  items: MediaItem[];
}

/** What a model provider gets instead of a media item. Create it with `keep`, `mask` or `downscale`. */
export type Decision = { tag: "keep" } | { tag: "mask"; val: string } | { tag: "downscale"; val: Dimensions };

/** Decides about one media item of a prompt; all decisions within 250 ms. Export it as `mediaPolicy`. */
export type MediaPolicy = (item: MediaItem, request: MediaRequest) => Decision | Promise<Decision>;

/** Sends a media item unchanged. */
export function keep(): Decision;
/** Sends this text instead of a media item. */
export function mask(text: string): Decision;
/** Sends an image scaled down to fit this size in pixels. */
export function downscale(width: number, height: number): Decision;

/** An HTTP request that has no answer, or whose answer cannot be used. */
export class HttpError extends ToolError {
  /** The status of the answer, or undefined if there is no answer. */
  readonly status?: number;
}

export * as config from "./config.js";
export * as files from "./files.js";
export * as http from "./http.js";
export * as log from "./log.js";
export * as media from "./media.js";
export * as model from "./model.js";
export * as values from "./values.js";
