// A context builder: it adds sections to the prompt at the start of a turn, and before each call of the model.

import { dynamic, fixed } from "agent-host-sdk";

/** @type {import("agent-host-sdk").ContextBuilder} */
export const contextBuilder = ({ scope }) => {
  const user = scope.user ?? "somebody";
  return {
    system: [
      // The text is the same in every turn, so that providers can cache the prompt.
      fixed("answering", "Answer in at most five sentences."),
      dynamic("reader", `You write for ${user}. This is turn ${scope.turn}.`),
    ],
    // The host passes the state to each step of the turn.
    state: user,
  };
};

/** @type {import("agent-host-sdk").StepContext} */
export const stepContext = ({ stepsLeft, state }) =>
  stepsLeft > 1 ? [] : [dynamic("end", `This is the last step: answer ${state} now.`)];
