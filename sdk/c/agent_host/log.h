// Lines in the log of the plugin, which `-v` shows. Available if the world imports `wasi:logging/logging`.

#ifndef AGENT_HOST_LOG_H
#define AGENT_HOST_LOG_H

#include "plugin.h"

#include "text.h"

static inline void ah_log(wasi_logging_logging_level_t level, const char *message) {
    plugin_string_t context = {NULL, 0}, text;
    plugin_string_dup(&text, message);
    wasi_logging_logging_log(level, &context, &text);
}

static inline void ah_log_debug(const char *message) { ah_log(WASI_LOGGING_LOGGING_LEVEL_DEBUG, message); }

static inline void ah_log_info(const char *message) { ah_log(WASI_LOGGING_LOGGING_LEVEL_INFO, message); }

static inline void ah_log_warn(const char *message) { ah_log(WASI_LOGGING_LOGGING_LEVEL_WARN, message); }

static inline void ah_log_error(const char *message) { ah_log(WASI_LOGGING_LOGGING_LEVEL_ERROR, message); }

#endif
