// Questions to the agent's model. The manifest must request tokens: `[asks] model_tokens = 20000`.

import type { JsonSchema, Schema } from "./index.js";

export interface Question {
  /** Instructions. */
  system?: string;
  /** The question, unless `messages` is given. */
  text?: string;
  /** Oldest first, the last one from the user. */
  messages?: { role: "user" | "assistant"; text: string }[];
  /** Models are told of this schema, but the host does not check the answer. */
  outputSchema?: Schema<any, any> | JsonSchema;
  /** Maximum number of tokens of the answer. */
  maxTokens?: number;
}

export interface Answer {
  text: string;
  /** Why the model stopped: it was done, it reached the limit, or a filter stopped it. */
  ending: "complete" | "length" | "filtered";
  promptTokens: number;
  completionTokens: number;
  /** Tokens that remain in the plugin's budget in this turn. */
  tokensLeft: number;
  /** `provider/model` that answered. */
  model: string;
}

/** Sends a question and waits for the complete answer. The model gets only this question. */
export function ask(question: string | Question): Promise<Answer>;
