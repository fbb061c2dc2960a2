// A plugin with one tool, `my-plugin.count`. The build writes the header `agent_host.h`, which connects the tools to the host.

#include "agent_host.h"
#include "logic.h"

static ah_result run_count(const ah_call *call) {
    const char *text = ah_argument_string(call, "text");
    const char *word = ah_argument_string(call, "word");
    if (!is_word(word)) {
        // The schema cannot express this rule, so the tool checks it and returns an error that names the argument.
        return ah_invalid("/word", "must be one word of letters and digits");
    }
    return ah_json(ah_format("{\"times\": %d}", count(text, word)));
}

static const ah_tool TOOLS[] = {
    {
        .name = "my-plugin.count",
        .description = "Counts how often a word occurs in a text. Use it instead of counting yourself.",
        .arguments =
            {
                {"text", AH_STRING, "The text to look in."},
                {"word", AH_STRING, "The word to count; upper and lower case are the same."},
            },
        // JSON Schema of the result.
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"times\": {\"type\": \"integer\", \"description\": \"How often the word occurs.\"}"
                  "}, \"required\": [\"times\"]}",
        .traits = AH_READ_ONLY,
        .run = run_count,
    },
};

AH_EXPORT_TOOLS(TOOLS)
