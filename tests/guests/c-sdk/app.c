// A plugin that uses each function of the SDK for C, except those that the examples use.

#include "agent_host.h"

// Returns the arguments, as the functions of the header read them.
static ah_result echo(const ah_call *call) {
    const char *text = ah_argument_string(call, "text");
    const char *any = ah_argument_json(call, "any");
    return ah_json(ah_format("{\"text\": %s, \"integer\": %lld, \"number\": %g, \"boolean\": %s, \"any\": %s}", ah_quote(text),
                             (long long)ah_argument_integer(call, "integer", -1), ah_argument_number(call, "number", 0.5),
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

// Reads parts of JSON, also of JSON that is not what the reader expects.
static ah_result json(const ah_call *call) {
    (void)call;
    const char *text = " { \"list\" : [ 1, [2, \"]\"], {\"a\": true} , \"b\" ] , \"n\": -2.5e1 } ", *list = ah_json_value(text, "list");
    return ah_text(ah_format("%s %s %s %d %g %d %d %d", ah_json_item(list, 1), ah_json_text(ah_json_item(list, 3)),
                             ah_json_value(ah_json_item(list, 2), "a"), ah_json_item(list, 4) == NULL,
                             ah_json_number(text, "n", 0), (int)ah_json_integer(text, "none", 7),
                             ah_json_value("[1]", "list") == NULL && ah_json_item("{\"a\": 1}", 0) == NULL,
                             ah_json_text("1") == NULL && ah_json_item("[]", 0) == NULL));
}

static const char *error_of(bool is_done, const ah_result *error) { return is_done ? "done" : error->text; }

// Reads and writes files, and describes the errors.
static ah_result files(const ah_call *call) {
    (void)call;
    ah_list trees = ah_files_trees();
    ah_entries entries;
    ah_result error;
    size_t length = 0;
    if (!ah_files_create_folder("data/folder", &error)) return error;
    if (!ah_files_write("data/folder/raw", "a\0\xff", 3, &error)) return error;
    const char *raw = ah_files_read("data/./folder/../folder/raw", &length, &error);
    char *text = ah_format("%zu %s %zu %d", trees.length, trees.items[0], length, raw == NULL ? 0 : memcmp(raw, "a\0\xff", 4));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("data/folder/raw", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("data/folder", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("data/none", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("data/folder/raw/x", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("data/../../etc/passwd", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_read_text("database", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_files_create_folder("data/folder", &error), &error));
    if (!ah_files_list("data/", &entries, &error)) return error;
    for (size_t index = 0; index < entries.length; index++) {
        ah_append(&text, "\n%s %d", entries.items[index].name, entries.items[index].is_folder);
    }
    if (!ah_files_remove("data/folder/raw", &error) || !ah_files_remove("data/folder", &error)) return error;
    return ah_text(text);
}

static char *append_x(const char *before, void *data) {
    int *calls = data;
    return ++*calls > 1 ? NULL : ah_format("%sx", before == NULL ? "" : before);
}

// Stores values in two buckets.
static ah_result values(const ah_call *call) {
    (void)call;
    ah_bucket bucket, other;
    ah_list keys;
    ah_result error;
    char *value, *missing;
    int calls = 0;
    if (!ah_values_open("default", &bucket, &error) || !ah_values_open("other", &other, &error) ||
        !ah_values_set(bucket, "a", "1", &error) || !ah_values_update(bucket, "a", append_x, &calls, &error) ||
        !ah_values_update(bucket, "b", append_x, &calls, &error) || !ah_values_set(other, "c", "3", &error) ||
        !ah_values_get(bucket, "a", &value, &error) || !ah_values_get(bucket, "c", &missing, &error) ||
        !ah_values_keys(bucket, &keys, &error)) {
        return error;
    }
    bool is_set = ah_values_set(bucket, "", "empty key", &error);
    return ah_text(ah_format("%s %s %zu %s %d %d", value, missing == NULL ? "none" : missing, keys.length, keys.items[0], calls, is_set));
}

// Sends a request with headers, and describes the errors.
static ah_result requests(const ah_call *call) {
    (void)call;
    ah_request request = {.method = "PUT", .url = "https://api.example.com/v1/a?q=1#part", .headers = {{"x-one", "1"}}, .body = "a\0b", .length = 3};
    ah_result error;
    ah_response *response = ah_http_send(&request, &error);
    if (response == NULL) return error;
    char *text = ah_format("%d %s %s", response->status, response->body, ah_response_header(response, "X-Two"));
    ah_append(&text, "\n%s", error_of(ah_http_get("https://api.example.com/v1/broken", &error) != NULL, &error));
    ah_append(&text, "\n%s", error_of(ah_http_get("https://other.example.com/?token=1", &error) != NULL, &error));
    ah_append(&text, "\n%d", ah_http_get("ftp://api.example.com/", &error) == NULL && error.error_kind == AH_INVALID_ARGUMENTS);
    response = ah_http_post("https://api.example.com/v1/busy", "{}", &error);
    bool is_ok = response == NULL || ah_expect_ok(response, &error);
    ah_append(&text, "\n%d %d %s", is_ok, (int)error.retry_after, error.text);
    return ah_text(text);
}

// Returns a setting, and writes lines to the log.
static ah_result settings(const ah_call *call) {
    ah_log_debug("details");
    ah_log_info("the greeting is read");
    ah_log_warn("a warning");
    const char *user = ah_call_user(call);
    return ah_structured(ah_format("{\"user\": %s}", ah_quote(user)),
                         ah_format("%s %s", ah_config_get("greeting", "none"), ah_config_get("other", "none")));
}

static ah_result order(const ah_call *call) {
    return ah_pending("com.example.order.v1", ah_format("{\"item\": %s}", ah_quote(ah_argument_string(call, "item"))));
}

static ah_result nothing(const ah_call *call) {
    (void)call;
    return ah_nothing();
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
    {.name = "c.json", .description = "Reads JSON.", .traits = AH_READ_ONLY, .run = json},
    {.name = "c.files", .description = "Reads and writes files.", .run = files},
    {.name = "c.values", .description = "Stores values.", .run = values},
    {.name = "c.requests", .description = "Sends requests.", .run = requests},
    {.name = "c.settings", .description = "Reads settings.", .traits = AH_READ_ONLY, .run = settings},
    {.name = "c.order", .description = "Orders an item.", .arguments = {{"item", AH_STRING, "The item."}}, .run = order},
    {.name = "c.nothing", .description = "Does nothing.", .traits = AH_READ_ONLY, .run = nothing},
};

AH_EXPORT_TOOLS(TOOLS)
