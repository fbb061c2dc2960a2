// A context builder: it adds sections to the prompt at the start of a turn. The functions implement the world in `wit/`.
// The build generates `plugin.h` from this world.

#include "logic.h"
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

typedef exports_agent_host_plugin_context_builder_section_t section_t;

static void set_section(section_t *section, const char *name, const char *text, uint8_t stability) {
    plugin_string_dup(&section->name, name);
    plugin_string_dup(&section->text, text);
    section->stability = stability;
}

bool exports_agent_host_plugin_context_builder_init(exports_agent_host_plugin_context_builder_request_t *request,
                                                    exports_agent_host_plugin_context_builder_prompt_t *ret,
                                                    exports_agent_host_plugin_context_builder_failure_t *err) {
    (void)err;
    memset(ret, 0, sizeof *ret);
    ret->history = EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_HISTORY_KEEP;
    ret->system.ptr = calloc(2, sizeof *ret->system.ptr);
    set_section(&ret->system.ptr[0], "answering", ANSWERING, EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_STABILITY_FIXED);
    ret->system.len = 1;
    if (request->scope.user.is_some) {
        char *text = reader((const char *)request->scope.user.val.ptr, request->scope.user.val.len);
        set_section(&ret->system.ptr[1], "reader", text, EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_STABILITY_DYNAMIC);
        ret->system.len = 2;
        free(text);
    }
    return true;
}
