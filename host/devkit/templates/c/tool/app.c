// A plugin with one tool, `my-plugin.count`. The functions implement the world in `wit/`. The build generates `plugin.h` from
// this world.

#include "logic.h"
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// JSON Schemas of the arguments and of the result. The model reads the descriptions in them.
static const char ARGUMENTS[] =
    "{\"type\": \"object\", \"properties\": {"
    "  \"text\": {\"type\": \"string\", \"description\": \"The text to look in.\"},"
    "  \"word\": {\"type\": \"string\", \"description\": \"The word to count; upper and lower case are the same.\"}"
    "}, \"required\": [\"text\", \"word\"], \"additionalProperties\": false}";
static const char RESULT[] =
    "{\"type\": \"object\", \"properties\": {"
    "  \"times\": {\"type\": \"integer\", \"description\": \"How often the word occurs.\"}"
    "}, \"required\": [\"times\"]}";

void exports_agent_host_plugin_tool_definitions(exports_agent_host_plugin_tool_list_definition_t *ret) {
    exports_agent_host_plugin_tool_definition_t *tool = calloc(1, sizeof *tool);
    plugin_string_dup(&tool->name, "my-plugin.count");
    plugin_string_dup(&tool->description,
                      "Counts how often a word occurs in a text. Use it instead of counting yourself.");
    plugin_string_dup(&tool->input_schema, ARGUMENTS);
    tool->output_schema.is_some = true;
    plugin_string_dup(&tool->output_schema.val, RESULT);
    tool->traits = EXPORTS_AGENT_HOST_PLUGIN_TOOL_TRAITS_READ_ONLY;
    ret->ptr = tool;
    ret->len = 1;
}

// Sets the error for an invalid argument. `pointer` is a JSON pointer that names the argument.
static void set_invalid_argument(exports_agent_host_plugin_tool_error_t *error, const char *pointer, const char *message) {
    error->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_ERROR_INVALID_ARGUMENTS;
    error->val.invalid_arguments.ptr = calloc(1, sizeof *error->val.invalid_arguments.ptr);
    error->val.invalid_arguments.len = 1;
    plugin_string_dup(&error->val.invalid_arguments.ptr->pointer, pointer);
    plugin_string_dup(&error->val.invalid_arguments.ptr->message, message);
}

bool exports_agent_host_plugin_tool_call(plugin_string_t *name, exports_agent_host_plugin_tool_json_t *args,
                                         exports_agent_host_plugin_tool_call_context_t *context,
                                         exports_agent_host_plugin_tool_outcome_t *ret,
                                         exports_agent_host_plugin_tool_error_t *err) {
    (void)name, (void)context;
    char *text = json_string((const char *)args->ptr, args->len, "text");
    char *word = json_string((const char *)args->ptr, args->len, "word");
    bool is_good = text != NULL && word != NULL && is_word(word);
    if (is_good) {
        char result[32];
        snprintf(result, sizeof result, "{\"times\": %d}", count(text, word));
        memset(ret, 0, sizeof *ret);
        ret->tag = EXPORTS_AGENT_HOST_PLUGIN_TOOL_OUTCOME_DONE;
        ret->val.done.structured.is_some = true;
        plugin_string_dup(&ret->val.done.structured.val, result);
    } else {
        set_invalid_argument(err, "/word", "must be one word of letters and digits");
    }
    free(text);
    free(word);
    return is_good;
}
