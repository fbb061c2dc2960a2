// Answers the SDK's module `model` in tests, from the state of the current `TestHost`.

import { state } from "./host.js";

export function ask(question) {
  const { modelAnswers, questions } = state();
  if (modelAnswers.length <= questions.length) throw { tag: "denied" };
  const text = modelAnswers[questions.length];
  questions.push(question);
  const usage = { promptTokens: 1, completionTokens: 1 };
  return { text, ending: "complete", usage, tokensLeft: 1000, model: "test/test" };
}
