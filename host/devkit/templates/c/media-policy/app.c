// A media policy: it decides which images and files are sent to the provider. The functions implement the world in `wit/`.
// The build generates `plugin.h` from this world.

#include "logic.h"
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

typedef exports_agent_host_plugin_media_policy_item_t item_t;
typedef exports_agent_host_plugin_media_policy_decision_t decision_t;

static void decide(const item_t *item, decision_t *decision) {
    const plugin_string_t *name = item->media.name.is_some ? &item->media.name.val : &item->media.mime_type;
    char *text = replacement((const char *)name->ptr, name->len, item->seen_count);
    if (text == NULL) {
        decision->tag = EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_KEEP;
        return;
    }
    decision->tag = EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_MASK;
    plugin_string_dup(&decision->val.mask, text);
    free(text);
}

// Returns one decision for each item, in the same order. A decision does not change the stored media.
bool exports_agent_host_plugin_media_policy_decide(exports_agent_host_plugin_media_policy_request_t *request,
                                                   exports_agent_host_plugin_media_policy_list_decision_t *ret,
                                                   exports_agent_host_plugin_media_policy_failure_t *err) {
    (void)err;
    ret->len = request->items.len;
    ret->ptr = calloc(ret->len, sizeof *ret->ptr);
    for (size_t index = 0; index < ret->len; index++) decide(&request->items.ptr[index], &ret->ptr[index]);
    return true;
}
