// A plugin that uses each function of the header for tools, except HTTP.

#include "agent_host.h"

// Returns the arguments, as the functions of the header read them.
static ah_result echo(const ah_call *call) {
    const char *text = ah_argument_string(call, "text");
    const char *any = ah_argument_json(call, "any");
    return ah_json(ah_format("{\"text\": %s, \"integer\": %lld, \"number\": %g, \"boolean\": %s, \"any\": %s}",
                             text == NULL ? "null" : ah_quote(text), (long long)ah_argument_integer(call, "integer", -1),
                             ah_argument_number(call, "number", 0.5),
                             ah_argument_boolean(call, "boolean", true) ? "true" : "false", any == NULL ? "null" : any));
}

// Fails in the way that the argument names.
static ah_result fail(const ah_call *call) {
    const char *how = ah_argument_string(call, "how");
    if (strcmp(how, "invalid") == 0) return ah_invalid("/how", "is invalid");
    if (strcmp(how, "missing") == 0) return ah_not_found("it is not there");
    if (strcmp(how, "denied") == 0) return ah_denied("it is not allowed");
    if (strcmp(how, "busy") == 0) return ah_unavailable("it is busy");
    if (strcmp(how, "failed") == 0) return ah_failed("it went wrong");
    return ah_text(ah_json_string("{\"a\": [1, \"}\"], \"b\\n\": \"found\"}", "b\n"));
}

static const ah_tool TOOLS[] = {
    {
        .name = "c.echo",
        .description = "Returns its arguments.",
        .arguments =
            {
                {"text", AH_STRING, "A \"quoted\" description.", AH_OPTIONAL},
                {"integer", AH_INTEGER, "A whole number.", AH_OPTIONAL},
                {"number", AH_NUMBER, "A number.", AH_OPTIONAL},
                {"boolean", AH_BOOLEAN, "True or false.", AH_OPTIONAL},
                {"any", AH_ANY, "Any value.", AH_OPTIONAL},
            },
        .traits = AH_READ_ONLY,
        .run = echo,
    },
    {
        .name = "c.fail",
        .description = "Fails.",
        .arguments = {{"how", AH_STRING, "How to fail."}},
        // A tool that is neither read-only nor idempotent is not repeated if it is busy.
        .run = fail,
    },
};

AH_EXPORT_TOOLS(TOOLS)
