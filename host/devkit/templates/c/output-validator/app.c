// An output validator: it decides whether an answer may end the turn. The build writes the header `agent_host.h`, which connects the
// function to the host.

#include "agent_host.h"
#include "logic.h"

static ah_verdict validate(const ah_output *output) {
    const char *mark = find_unfinished(output->text, strlen(output->text));
    if (mark == NULL) return ah_accept();
    // The model reads this message, so the message explains how to fix the answer.
    return ah_reject("", ah_format("The answer says `%s`. Write what belongs there.", mark));
}

AH_EXPORT_OUTPUT_VALIDATOR(validate)
