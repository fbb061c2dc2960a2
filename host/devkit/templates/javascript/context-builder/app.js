// A context builder: it adds sections to the prompt at the start of a turn.

import { dynamic, fixed } from "agent-host-sdk";

// The text of this section is the same in every turn, so that providers can cache the prompt.
const ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for.";

/** @type {import("agent-host-sdk").ContextBuilder} */
export const contextBuilder = (request) => {
  const sections = [fixed("answering", ANSWERING)];
  if (request.scope.user) {
    sections.push(dynamic("reader", `You write for ${request.scope.user}.`));
  }
  return sections;
};
