// Reading granted files. The functions of the SDK return errors that help the model, so the tools only pass them on.

#include "agent_host.h"

static bool ends_with(const char *text, const char *ending) {
    size_t length = strlen(text), size = strlen(ending);
    return length >= size && strcmp(text + length - size, ending) == 0;
}

static ah_result run_files(const ah_call *call) {
    const char *folder = ah_argument_string(call, "folder"), *paths = "";
    ah_entries entries;
    ah_result error;
    if (!ah_files_list(folder, &entries, &error)) return error;
    for (size_t index = 0; index < entries.length; index++) {
        const ah_entry *entry = &entries.items[index];
        if (entry->is_folder || !ends_with(entry->name, ".md")) continue;
        const char *path = ah_format("%s/%s", folder, entry->name);
        paths = ah_format("%s%s%s", paths, *paths ? ", " : "", ah_quote(path));
    }
    return ah_json(ah_format("{\"files\": [%s]}", paths));
}

static ah_result run_headings(const ah_call *call) {
    ah_result error;
    char *text = ah_files_read_text(ah_argument_string(call, "path"), &error);
    if (text == NULL) return error;
    char *headings = ah_format("%s", "");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        // A line such as `## Install` is a heading.
        size_t level = strspn(line, "#");
        if (level < 1 || level > 6 || line[level] != ' ') continue;
        const char *begin = line + level + strspn(line + level, " \t"), *end = begin + strlen(begin);
        while (end > begin && strchr(" \t\r", end[-1]) != NULL) end--;
        ah_append(&headings, "%s{\"level\": %zu, \"text\": %s}", *headings ? ", " : "", level,
                  ah_quote(ah_copy(begin, (size_t)(end - begin))));
    }
    return ah_json(ah_format("{\"headings\": [%s]}", headings));
}

static const ah_tool TOOLS[] = {
    {
        .name = "outline.files",
        .description = "Lists the Markdown files in a folder.",
        .arguments = {{"folder", AH_STRING, "The path of the folder."}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"files\": {\"type\": \"array\", \"items\": {\"type\": \"string\"},"
                  "    \"description\": \"The paths of the files.\"}"
                  "}, \"required\": [\"files\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY,
        .run = run_files,
    },
    {
        .name = "outline.headings",
        .description = "Returns the headings of a Markdown file. Use it before you read a long file.",
        .arguments = {{"path", AH_STRING, "The path of the file."}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"headings\": {\"type\": \"array\", \"description\": \"The headings in the order of the file.\","
                  "    \"items\": {\"type\": \"object\", \"properties\": {"
                  "      \"level\": {\"type\": \"integer\", \"description\": \"The level of the heading, from 1 to 6.\"},"
                  "      \"text\": {\"type\": \"string\", \"description\": \"The text of the heading.\"}"
                  "    }, \"required\": [\"level\", \"text\"], \"additionalProperties\": false}}"
                  "}, \"required\": [\"headings\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY,
        .run = run_headings,
    },
};

AH_EXPORT_TOOLS(TOOLS)
