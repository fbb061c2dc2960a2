// Typed tools for plugins in C. Include this header in exactly one source file of a plugin whose world is named `plugin`.
//
// Each call runs in a new instance of the component, so the functions allocate memory and never free it.

#ifndef AGENT_HOST_H
#define AGENT_HOST_H

#include "plugin.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Types of arguments.
typedef enum { AH_STRING, AH_INTEGER, AH_NUMBER, AH_BOOLEAN, AH_ANY } ah_type;

// Whether an argument must be present.
typedef enum { AH_REQUIRED, AH_OPTIONAL } ah_presence;

// An argument of a tool. The model reads the description.
typedef struct {
    const char *name;
    ah_type type;
    const char *description;
    ah_presence presence;
} ah_argument;

// A call of a tool. `json` contains the arguments, and `context` the id of the call and the session.
typedef struct {
    const char *json;
    size_t length;
    const exports_agent_host_plugin_tool_call_context_t *context;
} ah_call;

// The result or the error of a call. Create it with the functions below.
typedef struct {
    bool is_error;
    // Whether `text` is JSON.
    bool is_json;
    uint8_t error_kind;
    const char *text;
    // For an invalid argument, a JSON pointer to the argument.
    const char *pointer;
} ah_result;

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

// A tool. `result` is JSON Schema of the result, or NULL. The last argument is followed by an entry without a name.
typedef struct {
    const char *name;
    const char *description;
    ah_argument arguments[AH_MAX_ARGUMENTS + 1];
    const char *result;
    uint8_t traits;
    ah_result (*run)(const ah_call *call);
} ah_tool;

// Returns memory of this size that contains zeros. Traps if there is no memory.
static inline void *ah_allocate(size_t size) {
    void *memory = calloc(1, size > 0 ? size : 1);
    if (memory == NULL) abort();
    return memory;
}

// Returns a new text, formatted as `printf` does.
__attribute__((format(printf, 1, 2))) static inline char *ah_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) abort();
    char *text = ah_allocate((size_t)length + 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

// Returns the text as a JSON string, with quotation marks.
static inline char *ah_quote(const char *text) {
    char *quoted = ah_allocate(strlen(text) * 6 + 3), *to = quoted;
    *to++ = '"';
    for (; *text != 0; text++) {
        if (*text == '"' || *text == '\\') *to++ = '\\';
        if ((unsigned char)*text < 0x20) to += sprintf(to, "\\u%04x", (unsigned)*text);
        else *to++ = *text;
    }
    *to = '"';
    return quoted;
}

// Results.

// A text for the model.
static inline ah_result ah_text(const char *text) { return (ah_result){.text = text}; }

// A JSON value. If the tool has a result schema, it is the machine-readable result.
static inline ah_result ah_json(const char *json) { return (ah_result){.text = json, .is_json = true}; }

static inline ah_result ah_error(uint8_t kind, const char *pointer, const char *message) {
    return (ah_result){.is_error = true, .error_kind = kind, .pointer = pointer, .text = message};
}

// An argument is invalid. `pointer` is a JSON pointer to the argument, for example `/word`.
static inline ah_result ah_invalid(const char *pointer, const char *message) {
    return ah_error(EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_INVALID_ARGUMENTS, pointer, message);
}

// The call refers to something that does not exist.
static inline ah_result ah_not_found(const char *message) {
    return ah_error(EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_NOT_FOUND, NULL, message);
}

// The call is not allowed, and would fail again.
static inline ah_result ah_denied(const char *message) {
    return ah_error(EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_DENIED, NULL, message);
}

// The call may succeed later.
static inline ah_result ah_unavailable(const char *message) {
    return ah_error(EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_UNAVAILABLE, NULL, message);
}

// The call failed for another reason.
static inline ah_result ah_failed(const char *message) {
    return ah_error(EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_FAILED, NULL, message);
}

// Reading JSON. The functions expect valid JSON, as the host sends it.

static inline const char *ah_skip_space(const char *at, const char *end) {
    while (at < end && isspace((unsigned char)*at)) at++;
    return at;
}

// Returns the position behind the string that begins at `at` with a quotation mark.
static inline const char *ah_skip_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++) at += *at == '\\';
    return at < end ? at + 1 : end;
}

// Returns the position behind the value that begins at `at`.
static inline const char *ah_skip_value(const char *at, const char *end) {
    for (int depth = 0; at < end;) {
        if (*at == '"') {
            at = ah_skip_string(at, end);
            continue;
        }
        if (depth == 0 && (*at == ',' || *at == '}' || *at == ']')) break;
        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        at++;
    }
    return at;
}

static inline unsigned ah_hexadecimal(const char *at) {
    char digits[5] = {at[0], at[1], at[2], at[3], 0};
    return (unsigned)strtoul(digits, NULL, 16);
}

static inline char *ah_write_utf8(char *to, unsigned code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char FIRST[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(FIRST[more] | code >> (6 * more));
    while (more-- > 0) *to++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return to;
}

// Returns the decoded text of the JSON string between `at` and `end`.
static inline char *ah_decode(const char *at, const char *end) {
    char *text = ah_allocate((size_t)(end - at) + 1), *to = text;
    for (at++; at < end - 1; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        static const char ESCAPES[] = "\"\\/bfnrt", UNESCAPED[] = "\"\\/\b\f\n\r\t";
        const char *escape = strchr(ESCAPES, *++at);
        if (escape != NULL) {
            *to++ = UNESCAPED[escape - ESCAPES];
            continue;
        }
        if (end - at < 5) break;
        unsigned code = ah_hexadecimal(at + 1);
        at += 4;
        // Characters beyond U+FFFF are written as two escapes.
        if (code >= 0xD800 && code < 0xDC00 && end - at > 6 && at[1] == '\\' && at[2] == 'u') {
            code = 0x10000 + ((code - 0xD800) << 10) + (ah_hexadecimal(at + 3) - 0xDC00);
            at += 6;
        }
        to = ah_write_utf8(to, code);
    }
    return text;
}

// Returns the beginning of the value of a key in a JSON object, or NULL if the object has no such key. Sets `*value_end`
// to the end of the value.
static inline const char *ah_find(const char *json, size_t length, const char *key, const char **value_end) {
    const char *end = json + length, *at = ah_skip_space(json, end);
    while (at < end && *at != '}') {
        at = ah_skip_space(at + 1, end);
        if (at >= end || *at != '"') break;
        const char *name_end = ah_skip_string(at, end);
        bool is_found = strcmp(ah_decode(at, name_end), key) == 0;
        at = ah_skip_space(ah_skip_space(name_end, end) + 1, end);
        *value_end = ah_skip_value(at, end);
        if (is_found) return at;
        at = *value_end;
    }
    return NULL;
}

// Returns the JSON text of the value of a key in a JSON object, or NULL if the object has no such key.
static inline char *ah_json_value(const char *json, const char *key) {
    const char *value_end, *value = ah_find(json, strlen(json), key, &value_end);
    return value == NULL ? NULL : ah_format("%.*s", (int)(value_end - value), value);
}

// Returns the text of a key in a JSON object, or NULL if the object has no text with this key.
static inline char *ah_json_string(const char *json, const char *key) {
    const char *value_end, *value = ah_find(json, strlen(json), key, &value_end);
    return value == NULL || *value != '"' ? NULL : ah_decode(value, ah_skip_string(value, value_end));
}

// Arguments of a call.

// Returns the JSON text of an argument, or NULL if it is missing.
static inline char *ah_argument_json(const ah_call *call, const char *name) {
    const char *value_end, *value = ah_find(call->json, call->length, name, &value_end);
    return value == NULL ? NULL : ah_format("%.*s", (int)(value_end - value), value);
}

// Returns a text argument, or NULL if it is missing. The text ends at the first character U+0000.
static inline char *ah_argument_string(const ah_call *call, const char *name) {
    const char *value_end, *value = ah_find(call->json, call->length, name, &value_end);
    return value == NULL || *value != '"' ? NULL : ah_decode(value, ah_skip_string(value, value_end));
}

// Returns a number, or `otherwise` if the argument is missing.
static inline double ah_argument_number(const ah_call *call, const char *name, double otherwise) {
    const char *value = ah_argument_json(call, name);
    return value == NULL ? otherwise : strtod(value, NULL);
}

// Returns a whole number, or `otherwise` if the argument is missing. Numbers beyond 2^53 may be rounded.
static inline int64_t ah_argument_integer(const ah_call *call, const char *name, int64_t otherwise) {
    const char *value = ah_argument_json(call, name);
    return value == NULL ? otherwise : (int64_t)strtod(value, NULL);
}

// Returns whether an argument is true, or `otherwise` if it is missing.
static inline bool ah_argument_boolean(const ah_call *call, const char *name, bool otherwise) {
    const char *value = ah_argument_json(call, name);
    return value == NULL ? otherwise : *value == 't';
}

// The interface of the contract.

static inline char *ah_input_schema(const ah_tool *tool) {
    static const char *const TYPES[] = {"string", "integer", "number", "boolean"};
    char *properties = "", *required = "";
    for (const ah_argument *argument = tool->arguments; argument->name != NULL; argument++) {
        const char *type = argument->type == AH_ANY ? "" : ah_format("\"type\":\"%s\",", TYPES[argument->type]);
        const char *description = argument->description == NULL ? "" : argument->description;
        properties = ah_format("%s%s%s:{%s\"description\":%s}", properties, *properties ? "," : "",
                               ah_quote(argument->name), type, ah_quote(description));
        if (argument->presence == AH_REQUIRED) {
            required = ah_format("%s%s%s", required, *required ? "," : "", ah_quote(argument->name));
        }
    }
    return ah_format("{\"type\":\"object\",\"properties\":{%s},\"required\":[%s],\"additionalProperties\":false}",
                     properties, required);
}

static inline void ah_define(const ah_tool *tools, size_t number, exports_agent_host_plugin_tool_list_definition_t *ret) {
    ret->ptr = ah_allocate(number * sizeof *ret->ptr);
    ret->len = number;
    for (size_t index = 0; index < number; index++) {
        exports_agent_host_plugin_tool_definition_t *definition = &ret->ptr[index];
        plugin_string_dup(&definition->name, tools[index].name);
        plugin_string_dup(&definition->description, tools[index].description);
        plugin_string_dup(&definition->input_schema, ah_input_schema(&tools[index]));
        definition->output_schema.is_some = tools[index].result != NULL;
        if (tools[index].result != NULL) plugin_string_dup(&definition->output_schema.val, tools[index].result);
        definition->traits = tools[index].traits;
    }
}

static inline void ah_return(const ah_tool *tool, ah_result result, exports_agent_host_plugin_tool_outcome_t *ret) {
    exports_agent_host_plugin_tool_done_t *done = &ret->val.done;
    memset(ret, 0, sizeof *ret);
    ret->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_OUTCOME_DONE;
    if (result.is_json && tool->result != NULL) {
        done->structured.is_some = true;
        plugin_string_dup(&done->structured.val, result.text);
        return;
    }
    done->content.ptr = ah_allocate(sizeof *done->content.ptr);
    done->content.len = 1;
    // A text and JSON have the same representation.
    done->content.ptr->tag = result.is_json ? EXPORTS_AGENT_HOST_PLUGIN_TOOL_CONTENT_JSON : EXPORTS_AGENT_HOST_PLUGIN_TOOL_CONTENT_TEXT;
    plugin_string_dup(&done->content.ptr->val.text, result.text);
}

static inline void ah_throw(ah_result result, exports_agent_host_plugin_tool_error_t *err) {
    memset(err, 0, sizeof *err);
    err->tag = result.error_kind;
    switch (result.error_kind) {
        case EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_INVALID_ARGUMENTS:
            err->val.invalid_arguments.ptr = ah_allocate(sizeof *err->val.invalid_arguments.ptr);
            err->val.invalid_arguments.len = 1;
            plugin_string_dup(&err->val.invalid_arguments.ptr->pointer, result.pointer);
            plugin_string_dup(&err->val.invalid_arguments.ptr->message, result.text);
            break;
        case EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_UNAVAILABLE:
            plugin_string_dup(&err->val.unavailable.message, result.text);
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
        if (result.is_error) ah_throw(result, err);
        else ah_return(tool, result, ret);
        return !result.is_error;
    }
    ah_throw(ah_not_found("this plugin has no such tool"), err);
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
        ah_call call = {(const char *)args->ptr, args->len, context};                                                  \
        return ah_run(tools, sizeof(tools) / sizeof *(tools), name, call, ret, err);                                   \
    }

// HTTP. To use it, define AGENT_HOST_HTTP before you include this header, and import `wasi:http/outgoing-handler@0.2.0`
// in the world.

#ifdef AGENT_HOST_HTTP

// The answer to a request. If there is none, `error` is the reason and `status` is 0. `body` ends with a zero byte that
// `length` does not count.
typedef struct {
    int status;
    char *body;
    size_t length;
    const char *error;
    // Whether the agent does not grant the request.
    bool is_denied;
} ah_response;

// The largest body of an answer in bytes.
#ifndef AH_MAX_BODY
#define AH_MAX_BODY (1024 * 1024)
#endif

static inline ah_response ah_no_response(const wasi_http_types_error_code_t *code) {
    bool is_denied = code->tag == WASI_HTTP_TYPES_ERROR_CODE_HTTP_REQUEST_DENIED ||
                     code->tag == WASI_HTTP_TYPES_ERROR_CODE_DESTINATION_IP_PROHIBITED;
    if (is_denied) return (ah_response){.error = "the request is not granted", .is_denied = true};
    if (code->tag == WASI_HTTP_TYPES_ERROR_CODE_INTERNAL_ERROR && code->val.internal_error.is_some) {
        const plugin_string_t *text = &code->val.internal_error.val;
        return (ah_response){.error = ah_format("there is no answer: %.*s", (int)text->len, (const char *)text->ptr)};
    }
    return (ah_response){.error = ah_format("there is no answer: error %d of wasi:http", (int)code->tag)};
}

static inline ah_response ah_read_response(wasi_http_types_own_incoming_response_t incoming) {
    ah_response response = {0};
    response.status = wasi_http_types_method_incoming_response_status(wasi_http_types_borrow_incoming_response(incoming));
    wasi_http_types_own_incoming_body_t body;
    wasi_http_types_own_input_stream_t stream;
    if (!wasi_http_types_method_incoming_response_consume(wasi_http_types_borrow_incoming_response(incoming), &body) ||
        !wasi_http_types_method_incoming_body_stream(wasi_http_types_borrow_incoming_body(body), &stream)) {
        return (ah_response){.error = "the answer has no body"};
    }
    response.body = ah_allocate(AH_MAX_BODY + 1);
    for (;;) {
        plugin_list_u8_t chunk;
        wasi_io_streams_stream_error_t error;
        if (!wasi_io_streams_method_input_stream_blocking_read(wasi_io_streams_borrow_input_stream(stream), 65536, &chunk,
                                                               &error)) {
            if (error.tag != WASI_IO_STREAMS_STREAM_ERROR_CLOSED) return (ah_response){.error = "the answer was interrupted"};
            break;
        }
        if (response.length + chunk.len > AH_MAX_BODY) return (ah_response){.error = "the answer is too large"};
        memcpy(response.body + response.length, chunk.ptr, chunk.len);
        response.length += chunk.len;
        plugin_list_u8_free(&chunk);
    }
    wasi_io_streams_input_stream_drop_own(stream);
    wasi_http_types_incoming_body_drop_own(body);
    wasi_http_types_incoming_response_drop_own(incoming);
    return response;
}

// Sends a GET request and waits for the complete answer. An error status, such as 404, is an answer.
static inline ah_response ah_http_get(const char *url) {
    bool is_https = strncmp(url, "https://", 8) == 0;
    if (!is_https && strncmp(url, "http://", 7) != 0) return (ah_response){.error = "the address is not http or https"};
    const char *authority = url + (is_https ? 8 : 7);
    size_t authority_length = strcspn(authority, "/?#");
    const char *path = authority + authority_length;
    size_t path_length = strcspn(path, "#");
    plugin_string_t authority_text, path_text;
    plugin_string_dup(&authority_text, ah_format("%.*s", (int)authority_length, authority));
    plugin_string_dup(&path_text, ah_format("%s%.*s", *path == '/' ? "" : "/", (int)path_length, path));
    wasi_http_types_method_t method = {.tag = WASI_HTTP_TYPES_METHOD_GET};
    wasi_http_types_scheme_t scheme = {.tag = is_https ? WASI_HTTP_TYPES_SCHEME_HTTPS : WASI_HTTP_TYPES_SCHEME_HTTP};

    wasi_http_types_own_outgoing_request_t request =
        wasi_http_types_constructor_outgoing_request(wasi_http_types_constructor_fields());
    wasi_http_types_borrow_outgoing_request_t borrowed = wasi_http_types_borrow_outgoing_request(request);
    if (!wasi_http_types_method_outgoing_request_set_method(borrowed, &method) ||
        !wasi_http_types_method_outgoing_request_set_scheme(borrowed, &scheme) ||
        !wasi_http_types_method_outgoing_request_set_authority(borrowed, &authority_text) ||
        !wasi_http_types_method_outgoing_request_set_path_with_query(borrowed, &path_text)) {
        return (ah_response){.error = "the address is invalid"};
    }
    wasi_http_outgoing_handler_own_future_incoming_response_t pending;
    wasi_http_types_error_code_t error;
    if (!wasi_http_outgoing_handler_handle(request, NULL, &pending, &error)) return ah_no_response(&error);
    wasi_http_types_borrow_future_incoming_response_t waiting = wasi_http_types_borrow_future_incoming_response(pending);
    wasi_io_poll_own_pollable_t ready = wasi_http_types_method_future_incoming_response_subscribe(waiting);
    wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(ready));
    wasi_io_poll_pollable_drop_own(ready);
    wasi_http_types_result_result_own_incoming_response_error_code_void_t answer;
    if (!wasi_http_types_method_future_incoming_response_get(waiting, &answer) || answer.is_err) {
        return (ah_response){.error = "the answer is missing"};
    }
    wasi_http_types_future_incoming_response_drop_own(pending);
    if (answer.val.ok.is_err) return ah_no_response(&answer.val.ok.val.err);
    return ah_read_response(answer.val.ok.val.ok);
}

#endif
#endif
