// The SDK for plugins in C. Include this header in exactly one source file of a plugin whose world is named `plugin`.
//
// | header     | content                                                                              | requested in `[asks]` with |
// |------------|--------------------------------------------------------------------------------------|----------------------------|
// | `text.h`   | memory and texts: `ah_format`, `ah_append`                                           | nothing                    |
// | `json.h`   | reading and writing JSON: `ah_json_string`, `ah_json_item`, `ah_quote` …             | nothing                    |
// | `result.h` | results and errors of tools: `ah_text`, `ah_json`, `ah_invalid`, `ah_not_found` …    | nothing                    |
// | `tool.h`   | tools: `ah_tool`, `ah_argument_string` …, `AH_EXPORT_TOOLS`                          | nothing                    |
// | `kinds.h`  | `AH_EXPORT_CONTEXT_BUILDER`, `AH_EXPORT_STEP_CONTEXT`, `AH_EXPORT_OUTPUT_VALIDATOR`, | nothing                    |
// |            | `AH_EXPORT_MEDIA_POLICY`                                                             |                            |
// | `files.h`  | files in granted trees: `ah_files_read_text`, `ah_files_write_text`, `ah_files_list` | `files = "read"`, or       |
// |            | `ah_files_create_folder`, `ah_files_remove`, `ah_files_trees`                        | `"read-write"`             |
// | `http.h`   | requests: `ah_http_get`, `ah_http_post`, `ah_http_send`, `ah_expect_ok`              | `http = ["GET https://…"]` |
// | `values.h` | stored values: `ah_values_open`, then `ah_values_get`, `ah_values_set`,              | `key_value = true`         |
// |            | `ah_values_delete`, `ah_values_keys`, `ah_values_increment`, `ah_values_update`      |                            |
// | `settings.h` | settings: `ah_config_get`                                                          | `config = ["KEY"]`         |
// | `log.h`    | lines in the log: `ah_log_info` …                                                    | nothing                    |
//
// `agent-host plugin build` generates a world with the interfaces that the manifest requests, unless the project has its own world in
// the folder `wit`. If an interface is missing in the world, its functions do not exist.
//
// Each call runs in a new instance of the component, so the functions allocate memory and never free it. Texts end with a zero byte.

#ifndef AGENT_HOST_H
#define AGENT_HOST_H

#include "plugin.h"

#include "agent_host/text.h"

#include "agent_host/json.h"
#include "agent_host/result.h"

#ifdef EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_READ_ONLY
#include "agent_host/tool.h"
#endif

#if defined(EXPORTS_AGENT_HOST_PLUGIN_CONTEXT_BUILDER_HISTORY_KEEP) ||                                                   \
    defined(EXPORTS_AGENT_HOST_PLUGIN_OUTPUT_VALIDATOR_VERDICT_ACCEPT) ||                                                \
    defined(EXPORTS_AGENT_HOST_PLUGIN_MEDIA_POLICY_DECISION_KEEP)
#include "agent_host/kinds.h"
#endif

#include "agent_host/files.h"

#ifdef WASI_HTTP_TYPES_METHOD_GET
#include "agent_host/http.h"
#endif

#if defined(WASI_KEYVALUE_STORE_ERROR_ACCESS_DENIED) && defined(WASI_KEYVALUE_ATOMICS_CAS_ERROR_CAS_FAILED)
#include "agent_host/values.h"
#endif

#ifdef WASI_CONFIG_STORE_ERROR_UPSTREAM
#include "agent_host/settings.h"
#endif

#ifdef WASI_LOGGING_LOGGING_LEVEL_INFO
#include "agent_host/log.h"
#endif

#endif
