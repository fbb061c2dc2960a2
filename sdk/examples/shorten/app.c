// A tool with typed arguments: the SDK generates the schema for the model from the list of arguments.

#include "agent_host.h"

// Returns the position behind this number of characters. The bytes that begin with the bits 10 continue a character.
static const char *skip_characters(const char *at, int64_t number) {
    for (; *at != 0 && number > 0; number--) {
        do at++;
        while ((*at & 0xC0) == 0x80);
    }
    return at;
}

static ah_result run_text(const ah_call *call) {
    const char *text = ah_argument_string(call, "text");
    int64_t length = ah_argument_integer(call, "length", 80);
    const char *ending = ah_argument_string(call, "ending");
    bool is_word = ending == NULL || strcmp(ending, "word") == 0;
    if (*skip_characters(text, length) == 0) return ah_text(text);
    // The last character of the result is the ellipsis.
    const char *end = skip_characters(text, length - 1);
    if (is_word && *end != ' ') {
        const char *space = end;
        while (space > text && *space != ' ') space--;
        if (*space == ' ') end = space;
    }
    while (end > text && end[-1] == ' ') end--;
    return ah_text(ah_format("%.*s…", (int)(end - text), text));
}

static const ah_tool TOOLS[] = {
    {
        .name = "shorten.text",
        .description = "Shortens a text to a number of characters. Use it for titles and previews.",
        // The last field of an argument adds keys to its JSON Schema.
        .arguments =
            {
                {"text", AH_STRING, "The text to shorten."},
                {"length", AH_INTEGER, "The largest number of characters of the result.", AH_OPTIONAL,
                 "\"minimum\": 1, \"maximum\": 1000, \"default\": 80"},
                {"ending", AH_STRING, "Where the text may be cut: after a complete word, or after any character.", AH_OPTIONAL,
                 "\"enum\": [\"word\", \"character\"], \"default\": \"word\""},
            },
        .traits = AH_READ_ONLY,
        .run = run_text,
    },
};

AH_EXPORT_TOOLS(TOOLS)
