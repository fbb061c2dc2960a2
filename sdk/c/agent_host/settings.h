// Settings that the agent grants to the plugin. The manifest must request each key: `[asks] config = ["KEY"]`.
// Available if the world imports `wasi:config/store@0.2.0-rc.1`.

#ifndef AGENT_HOST_SETTINGS_H
#define AGENT_HOST_SETTINGS_H

#include "plugin.h"

#include "text.h"

// Returns the value of a setting, or `otherwise` if it has no value or is not granted.
static inline const char *ah_config_get(const char *key, const char *otherwise) {
    plugin_string_t text;
    plugin_string_dup(&text, key);
    plugin_option_string_t value = {.is_some = false};
    wasi_config_store_error_t error;
    if (!wasi_config_store_get(&text, &value, &error) || !value.is_some) return otherwise;
    return ah_copy(value.val.ptr, value.val.len);
}

#endif
