// A tool plugin in C: one tool that succeeds, and one that fails.

#include "tool_plugin.h"

#include <stdlib.h>
#include <string.h>

static bool equals(const tool_plugin_string_t *text, const char *other) {
    return text->len == strlen(other) && memcmp(text->ptr, other, text->len) == 0;
}

static void define(exports_agent_host_plugin_tool_definition_t *tool, const char *name, const char *description,
                   const char *schema) {
    memset(tool, 0, sizeof *tool);
    tool_plugin_string_dup(&tool->name, name);
    tool_plugin_string_dup(&tool->description, description);
    tool_plugin_string_dup(&tool->input_schema, schema);
    tool->traits = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_READ_ONLY;
}

void exports_agent_host_plugin_tool_definitions(exports_agent_host_plugin_tool_list_definition_t *ret) {
    ret->len = 2;
    ret->ptr = calloc(ret->len, sizeof *ret->ptr);
    define(&ret->ptr[0], "c.reverse", "Writes a text backwards, byte by byte.",
           "{\"type\": \"object\", \"required\": [\"text\"],"
           " \"properties\": {\"text\": {\"type\": \"string\", \"pattern\": \"^[a-z ]*$\"}}}");
    define(&ret->ptr[1], "c.fail", "Fails: what it looks for is not there.", "{\"type\": \"object\"}");
}

// The arguments match the schema, so they contain one string without escapes and quotation marks.
static void reverse(const tool_plugin_string_t *args, tool_plugin_string_t *reversed) {
    const uint8_t *end = args->ptr + args->len;
    const uint8_t *text = memchr(args->ptr, ':', args->len);
    text = text == NULL ? end : memchr(text, '"', end - text);
    const uint8_t *last = text == NULL ? NULL : memchr(text + 1, '"', end - text - 1);
    reversed->len = last == NULL ? 0 : last - text - 1;
    reversed->ptr = malloc(reversed->len);
    for (size_t index = 0; index < reversed->len; index++) reversed->ptr[index] = last[-1 - (ptrdiff_t)index];
}

bool exports_agent_host_plugin_tool_call(tool_plugin_string_t *name, exports_agent_host_plugin_tool_json_t *args,
                                         exports_agent_host_plugin_tool_call_context_t *context,
                                         exports_agent_host_plugin_tool_outcome_t *ret,
                                         exports_agent_host_plugin_tool_error_t *err) {
    (void)context;
    if (!equals(name, "c.reverse")) {
        err->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_NOT_FOUND;
        tool_plugin_string_dup(&err->val.not_found, "it is not there");
        return false;
    }
    memset(ret, 0, sizeof *ret);
    ret->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_OUTCOME_DONE;
    ret->val.done.content.len = 1;
    ret->val.done.content.ptr = calloc(1, sizeof *ret->val.done.content.ptr);
    ret->val.done.content.ptr[0].tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_CONTENT_TEXT;
    reverse(args, &ret->val.done.content.ptr[0].val.text);
    return true;
}
