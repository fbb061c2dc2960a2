// A context builder: it adds sections to the prompt at the start of a turn.

// The same text in every turn, so that prompt caches of providers work.
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
