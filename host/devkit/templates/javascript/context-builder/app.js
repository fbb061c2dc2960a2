// A context builder: what stands in the prompt with which a turn begins.

// The same in every turn, so that providers' prompt caches hit.
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
