// A context builder: it adds sections to the prompt at the start of a turn. The build writes the header `agent_host.h`, which connects
// the function to the host.

#include "agent_host.h"
#include "logic.h"

static void build(const ah_context *context, ah_prompt *prompt) {
    ah_fixed(prompt, "answering", ANSWERING);
    if (context->user != NULL) ah_dynamic(prompt, "reader", reader(context->user, strlen(context->user)));
}

AH_EXPORT_CONTEXT_BUILDER(build)
