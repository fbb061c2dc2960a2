// Writing and removing granted files. The traits of a tool tell the host what it does to the world, so that the host
// can ask the user before a call.

#include "agent_host.h"

// Folder of the drafts, which the agent grants.
static const char FOLDER[] = "drafts";

static ah_result run_save(const ah_call *call) {
    const char *file = ah_format("%s.md", ah_argument_string(call, "name"));
    const char *path = ah_format("%s/%s", FOLDER, file);
    ah_entries entries;
    ah_result error;
    if (!ah_files_list(FOLDER, &entries, &error)) return error;
    bool is_new = true;
    for (size_t index = 0; index < entries.length; index++) is_new &= strcmp(entries.items[index].name, file) != 0;
    if (!ah_files_write_text(path, ah_argument_string(call, "text"), &error)) return error;
    return ah_text(ah_format("%s %s", is_new ? "saved" : "replaced", path));
}

static ah_result run_discard(const ah_call *call) {
    const char *path = ah_format("%s/%s.md", FOLDER, ah_argument_string(call, "name"));
    ah_result error;
    if (!ah_files_remove(path, &error)) return error;
    return ah_text(ah_format("discarded %s", path));
}

#define NAME {"name", AH_STRING, "The name of the draft, in lower case.", AH_REQUIRED, "\"pattern\": \"^[a-z0-9-]+$\""}

static const ah_tool TOOLS[] = {
    {
        .name = "drafts.save",
        .description = "Saves a draft, and replaces an earlier draft with this name.",
        .arguments = {NAME, {"text", AH_STRING, "The text in Markdown."}},
        // The tool may overwrite a draft. A second call with the same arguments has no further effect.
        .traits = AH_DESTRUCTIVE | AH_IDEMPOTENT,
        .run = run_save,
    },
    {
        .name = "drafts.discard",
        .description = "Removes a draft for good.",
        .arguments = {NAME},
        // Each call waits for the approval of the user.
        .traits = AH_DESTRUCTIVE | AH_NEEDS_APPROVAL,
        .run = run_discard,
    },
};

AH_EXPORT_TOOLS(TOOLS)
