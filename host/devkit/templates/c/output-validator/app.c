// An output validator: it decides whether an answer may end the turn. The functions implement the world in `wit/`. The build
// generates `plugin.h` from this world.

#include "logic.h"
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool exports_agent_host_plugin_output_validator_validate(exports_agent_host_plugin_output_validator_request_t *request,
                                                         exports_agent_host_plugin_output_validator_verdict_t *ret,
                                                         exports_agent_host_plugin_output_validator_failure_t *err) {
    (void)err;
    memset(ret, 0, sizeof *ret);
    const char *mark = find_unfinished((const char *)request->text.ptr, request->text.len);
    if (mark == NULL) {
        ret->tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT;
        return true;
    }
    // The model reads this message, so the message explains how to fix the answer.
    char message[100];
    snprintf(message, sizeof message, "The answer says `%s`. Write what belongs there.", mark);
    ret->tag = EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_REJECT;
    ret->val.reject.ptr = calloc(1, sizeof *ret->val.reject.ptr);
    ret->val.reject.len = 1;
    plugin_string_dup(&ret->val.reject.ptr->pointer, "");
    plugin_string_dup(&ret->val.reject.ptr->message, message);
    return true;
}
