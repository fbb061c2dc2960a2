// Tools that the model can call. Available if the world exports `tool`.

#ifndef AGENT_HOST_TOOL_H
#define AGENT_HOST_TOOL_H

#include "plugin.h"

#include "json.h"
#include "result.h"

// Types of arguments. The schema of an argument of the type AH_ANY consists of its `keys`.
typedef enum { AH_STRING, AH_INTEGER, AH_NUMBER, AH_BOOLEAN, AH_ANY } ah_type;

// Whether an argument must be present.
typedef enum { AH_REQUIRED, AH_OPTIONAL } ah_presence;

// An argument of a tool. The model reads the description. `keys` contains further keys of the argument's JSON Schema,
// for example `"\"minimum\": 1, \"default\": 10"`, or is NULL.
typedef struct {
    const char *name;
    ah_type type;
    const char *description;
    ah_presence presence;
    const char *keys;
} ah_argument;

// A call of a tool. `json` contains the arguments, and `context` the id of the call and the session.
typedef struct {
    const char *json;
    const exports_agent_host_plugin_tool_call_context_t *context;
} ah_call;

// What a tool does to the world. Combine traits with `|`.
enum {
    AH_READ_ONLY = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_READ_ONLY,
    AH_DESTRUCTIVE = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_DESTRUCTIVE,
    AH_IDEMPOTENT = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_IDEMPOTENT,
    AH_SEQUENTIAL = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_SEQUENTIAL,
    AH_OPEN_WORLD = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_OPEN_WORLD,
    AH_NEEDS_APPROVAL = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_NEEDS_APPROVAL,
};

// The largest number of arguments of a tool.
#define AH_MAX_ARGUMENTS 16

// A tool. `result` is JSON Schema of the result, or NULL. `title` is for users, or NULL. Of the calls in one reply, the
// host runs only those whose tools have the highest `priority`.
typedef struct {
    const char *name;
    const char *title;
    const char *description;
    // The last argument is followed by an entry without a name.
    ah_argument arguments[AH_MAX_ARGUMENTS + 1];
    const char *result;
    uint8_t traits;
    int32_t priority;
    ah_result (*run)(const ah_call *call);
} ah_tool;

// Returns the JSON text of an argument, or NULL if it is missing.
static inline char *ah_argument_json(const ah_call *call, const char *name) { return ah_json_value(call->json, name); }

// Returns a text argument, or NULL if it is missing. The text ends at the first character U+0000.
static inline char *ah_argument_string(const ah_call *call, const char *name) { return ah_json_string(call->json, name); }

// Returns a number, or `otherwise` if the argument is missing.
static inline double ah_argument_number(const ah_call *call, const char *name, double otherwise) {
    return ah_json_number(call->json, name, otherwise);
}

// Returns a whole number, or `otherwise` if the argument is missing. Numbers beyond 2^53 may be rounded.
static inline int64_t ah_argument_integer(const ah_call *call, const char *name, int64_t otherwise) {
    return ah_json_integer(call->json, name, otherwise);
}

// Returns whether an argument is true, or `otherwise` if it is missing.
static inline bool ah_argument_boolean(const ah_call *call, const char *name, bool otherwise) {
    return ah_json_boolean(call->json, name, otherwise);
}

// Returns the id of the call. It is the same in every attempt, so it can be used as a key against repetitions.
static inline char *ah_call_id(const ah_call *call) { return ah_copy(call->context->id.ptr, call->context->id.len); }

// Returns the name of the user, or NULL if the agent knows none.
static inline char *ah_call_user(const ah_call *call) {
    const plugin_option_string_t *user = &call->context->scope.user;
    return user->is_some ? ah_copy(user->val.ptr, user->val.len) : NULL;
}

// The interface of the contract.

static inline char *ah_argument_schema(const ah_argument *argument) {
    static const char *const TYPES[] = {"string", "integer", "number", "boolean"};
    char *keys = NULL;
    if (argument->type != AH_ANY) ah_append(&keys, "\"type\":\"%s\"", TYPES[argument->type]);
    if (argument->keys != NULL) ah_append(&keys, "%s%s", keys == NULL ? "" : ",", argument->keys);
    if (argument->description != NULL) {
        ah_append(&keys, "%s\"description\":%s", keys == NULL ? "" : ",", ah_quote(argument->description));
    }
    return ah_format("{%s}", keys == NULL ? "" : keys);
}

static inline char *ah_input_schema(const ah_tool *tool) {
    char *properties = ah_format("%s", ""), *required = ah_format("%s", "");
    for (const ah_argument *argument = tool->arguments; argument->name != NULL; argument++) {
        char *name = ah_quote(argument->name);
        ah_append(&properties, "%s%s:%s", *properties ? "," : "", name, ah_argument_schema(argument));
        if (argument->presence == AH_REQUIRED) ah_append(&required, "%s%s", *required ? "," : "", name);
    }
    if (*required != 0) required = ah_format("\"required\":[%s],", required);
    return ah_format("{\"type\":\"object\",\"properties\":{%s},%s\"additionalProperties\":false}", properties, required);
}

static inline void ah_define(const ah_tool *tools, size_t number, exports_agent_host_plugin_tool_list_definition_t *ret) {
    ret->ptr = ah_allocate(number * sizeof *ret->ptr);
    ret->len = number;
    for (size_t index = 0; index < number; index++) {
        const ah_tool *tool = &tools[index];
        exports_agent_host_plugin_tool_definition_t *definition = &ret->ptr[index];
        plugin_string_dup(&definition->name, tool->name);
        definition->title.is_some = tool->title != NULL;
        if (tool->title != NULL) plugin_string_dup(&definition->title.val, tool->title);
        plugin_string_dup(&definition->description, tool->description);
        plugin_string_dup(&definition->input_schema, ah_input_schema(tool));
        definition->output_schema.is_some = tool->result != NULL;
        if (tool->result != NULL) plugin_string_dup(&definition->output_schema.val, tool->result);
        definition->traits = tool->traits;
        definition->priority = tool->priority;
    }
}

static inline void ah_add_content(exports_agent_host_plugin_tool_done_t *done, uint8_t tag, const char *text) {
    done->content.ptr = ah_allocate(sizeof *done->content.ptr);
    done->content.len = 1;
    done->content.ptr->tag = tag;
    // A text and JSON have the same representation.
    plugin_string_dup(&done->content.ptr->val.text, text);
}

static inline void ah_return(const ah_tool *tool, ah_result result, exports_agent_host_plugin_tool_outcome_t *ret) {
    memset(ret, 0, sizeof *ret);
    exports_agent_host_plugin_tool_done_t *done = &ret->val.done;
    bool is_structured = result.kind == AH_DONE_STRUCTURED || (result.kind == AH_DONE_JSON && tool->result != NULL);
    if (result.kind == AH_PENDING) {
        ret->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_OUTCOME_PENDING;
        plugin_string_dup(&ret->val.pending.event_type, result.text);
        plugin_string_dup(&ret->val.pending.data, result.json);
        return;
    }
    ret->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_OUTCOME_DONE;
    if (is_structured) {
        done->structured.is_some = true;
        plugin_string_dup(&done->structured.val, result.json);
    }
    if (result.text != NULL) ah_add_content(done, EXPORTS_AGENT_HOST_PLUGIN_TOOL_CONTENT_TEXT, result.text);
    else if (result.json != NULL && !is_structured) {
        ah_add_content(done, EXPORTS_AGENT_HOST_PLUGIN_TOOL_CONTENT_JSON, result.json);
    }
}

static inline void ah_throw(ah_result result, exports_agent_host_plugin_tool_error_t *err) {
    memset(err, 0, sizeof *err);
    err->tag = (uint8_t)result.error_kind;
    switch (result.error_kind) {
        case AH_INVALID_ARGUMENTS:
            err->val.invalid_arguments.ptr = ah_allocate(result.violation_count * sizeof *err->val.invalid_arguments.ptr);
            err->val.invalid_arguments.len = result.violation_count;
            for (size_t index = 0; index < result.violation_count; index++) {
                plugin_string_dup(&err->val.invalid_arguments.ptr[index].pointer, result.violations[index].pointer);
                plugin_string_dup(&err->val.invalid_arguments.ptr[index].message, result.violations[index].message);
            }
            break;
        case AH_UNAVAILABLE:
            plugin_string_dup(&err->val.unavailable.message, result.text);
            err->val.unavailable.retry_after.is_some = result.retry_after > 0;
            err->val.unavailable.retry_after.val = result.retry_after;
            break;
        default:
            // The other errors are texts.
            plugin_string_dup(&err->val.failed, result.text);
    }
}

static inline bool ah_run(const ah_tool *tools, size_t number, const plugin_string_t *name, ah_call call,
                          exports_agent_host_plugin_tool_outcome_t *ret, exports_agent_host_plugin_tool_error_t *err) {
    for (size_t index = 0; index < number; index++) {
        const ah_tool *tool = &tools[index];
        if (name->len != strlen(tool->name) || memcmp(name->ptr, tool->name, name->len) != 0) continue;
        ah_result result = tool->run(&call);
        if (result.kind == AH_ERROR) ah_throw(result, err);
        else ah_return(tool, result, ret);
        return result.kind != AH_ERROR;
    }
    ah_throw(ah_not_found(ah_format("this plugin has no tool `%.*s`", (int)name->len, (const char *)name->ptr)), err);
    return false;
}

// Exports an array of `ah_tool` from the component.
#define AH_EXPORT_TOOLS(tools)                                                                                          \
    void exports_agent_host_plugin_tool_definitions(exports_agent_host_plugin_tool_list_definition_t *ret) {           \
        ah_define(tools, sizeof(tools) / sizeof *(tools), ret);                                                        \
    }                                                                                                                  \
    bool exports_agent_host_plugin_tool_call(plugin_string_t *name, exports_agent_host_plugin_tool_json_t *args,       \
                                             exports_agent_host_plugin_tool_call_context_t *context,                   \
                                             exports_agent_host_plugin_tool_outcome_t *ret,                            \
                                             exports_agent_host_plugin_tool_error_t *err) {                            \
        ah_call call = {ah_copy(args->ptr, args->len), context};                                                       \
        return ah_run(tools, sizeof(tools) / sizeof *(tools), name, call, ret, err);                                   \
    }

#endif
