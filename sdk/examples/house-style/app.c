// A context builder: it adds sections to the prompt at the start of a turn, and before each call of the model.

#include "agent_host.h"

static void build(const ah_context *context, ah_prompt *prompt) {
    const char *user = context->user == NULL ? "somebody" : context->user;
    // The text is the same in every turn, so that providers can cache the prompt.
    ah_fixed(prompt, "answering", "Answer in at most five sentences.");
    ah_dynamic(prompt, "reader", ah_format("You write for %s. This is turn %u.", user, (unsigned)context->turn));
    // The host passes the state to each step of the turn.
    prompt->state = user;
}

AH_EXPORT_CONTEXT_BUILDER(build)

static void add(const ah_step *step, ah_prompt *prompt) {
    if (step->steps_left > 1) return;
    ah_dynamic(prompt, "end", ah_format("This is the last step: answer %s now.", step->state));
}

AH_EXPORT_STEP_CONTEXT(add)
