// Stored values: a list of tasks that is kept between calls. Each task has its own key, so that calls at the same time
// do not overwrite each other's changes.

#include "agent_host.h"

static const char PREFIX[] = "task-";

// Returns the key of a task. The zeros keep the keys in the order of the numbers.
static char *key_of(int64_t number) { return ah_format("%s%06lld", PREFIX, (long long)number); }

static ah_result run_add(const ah_call *call) {
    ah_bucket bucket;
    int64_t number;
    ah_result error;
    // No two calls get the same number, even if they run at the same time.
    if (!ah_values_open("default", &bucket, &error) || !ah_values_increment(bucket, "count", 1, &number, &error) ||
        !ah_values_set(bucket, key_of(number), ah_argument_string(call, "task"), &error)) {
        return error;
    }
    return ah_json(ah_format("{\"number\": %lld}", (long long)number));
}

static ah_result run_list(const ah_call *call) {
    (void)call;
    ah_bucket bucket;
    ah_list keys;
    ah_result error;
    if (!ah_values_open("default", &bucket, &error) || !ah_values_keys(bucket, &keys, &error)) return error;
    char *tasks = ah_format("%s", "");
    for (size_t index = 0; index < keys.length; index++) {
        const char *key = keys.items[index];
        char *task;
        if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) continue;
        if (!ah_values_get(bucket, key, &task, &error)) return error;
        // Another call may have removed the task.
        if (task == NULL) continue;
        ah_append(&tasks, "%s{\"number\": %ld, \"task\": %s}", *tasks ? ", " : "", strtol(key + strlen(PREFIX), NULL, 10),
                  ah_quote(task));
    }
    return ah_json(ah_format("{\"tasks\": [%s]}", tasks));
}

static ah_result run_done(const ah_call *call) {
    int64_t number = ah_argument_integer(call, "number", 0);
    ah_bucket bucket;
    char *task;
    ah_result error;
    if (!ah_values_open("default", &bucket, &error) || !ah_values_get(bucket, key_of(number), &task, &error)) return error;
    if (task == NULL) return ah_not_found(ah_format("there is no task %lld", (long long)number));
    if (!ah_values_delete(bucket, key_of(number), &error)) return error;
    return ah_text(ah_format("Done: %s", task));
}

static const ah_tool TOOLS[] = {
    {
        .name = "todo.add",
        .description = "Adds a task to the list, and returns its number.",
        .arguments = {{"task", AH_STRING, "The task, in one line.", AH_REQUIRED, "\"minLength\": 1"}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"number\": {\"type\": \"integer\", \"description\": \"The number of the task.\"}"
                  "}, \"required\": [\"number\"], \"additionalProperties\": false}",
        .run = run_add,
    },
    {
        .name = "todo.list",
        .description = "Lists the tasks that are not done.",
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"tasks\": {\"type\": \"array\", \"description\": \"The tasks that are not done, oldest first.\","
                  "    \"items\": {\"type\": \"object\", \"properties\": {"
                  "      \"number\": {\"type\": \"integer\", \"description\": \"The number of the task.\"},"
                  "      \"task\": {\"type\": \"string\", \"description\": \"The task.\"}"
                  "    }, \"required\": [\"number\", \"task\"], \"additionalProperties\": false}}"
                  "}, \"required\": [\"tasks\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY,
        .run = run_list,
    },
    {
        .name = "todo.done",
        .description = "Removes a task that is done from the list.",
        .arguments = {{"number", AH_INTEGER, "The number of the task.", AH_REQUIRED, "\"minimum\": 1"}},
        .run = run_done,
    },
};

AH_EXPORT_TOOLS(TOOLS)
