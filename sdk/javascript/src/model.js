// Questions to the agent's model. The manifest must request tokens: `[asks] model_tokens = 20000`.

import * as host from "#host/model";
import { ToolError } from "./errors.js";

/**
 * Sends a question and waits for the complete answer. The model gets only this question. `question` is a text, or an
 * object with the fields `text` or `messages`, and optionally `system`, `outputSchema` and `maxTokens`.
 */
export async function ask(question) {
  const { system, text, messages, outputSchema, maxTokens } =
    typeof question === "string" ? { text: question } : question;
  const request = {
    system,
    messages: messages ?? [{ role: "user", text }],
    outputSchema: outputSchema === undefined ? undefined : JSON.stringify(outputSchema),
    maxTokens,
  };
  try {
    const { usage, ...answer } = host.ask(request);
    return { ...answer, promptTokens: usage.promptTokens, completionTokens: usage.completionTokens };
  } catch (thrown) {
    throw toolError(thrown?.payload ?? thrown) ?? thrown;
  }
}

function toolError({ tag, val }) {
  switch (tag) {
    case "denied":
      return ToolError.denied("using the agent's model is not granted");
    case "budget-exhausted":
      return ToolError.failed(
        `the model was not asked: only ${val} tokens are left of the plugin's budget in this turn`,
      );
    case "invalid":
      return ToolError.failed(`the model was not asked: ${val}`);
    case "unavailable":
      return ToolError.unavailable(`no model is available: ${val}`);
    case "failed":
      return ToolError.failed(`the model failed: ${val}`);
    default:
      return undefined;
  }
}
