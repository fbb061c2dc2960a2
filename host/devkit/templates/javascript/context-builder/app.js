// A context builder: it adds sections to the prompt at the start of a turn.

// A section of the prompt. Its text is the same in every turn, so that providers can cache the prompt.
const ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for.";

export const contextBuilder = {
  init(request) {
    const system = [{ name: "answering", text: ANSWERING, stability: "fixed" }];
    if (request.scope.user) {
      system.push({ name: "reader", text: `You write for ${request.scope.user}.`, stability: "dynamic" });
    }
    return { system, history: "keep", messages: [], state: undefined };
  },
};
