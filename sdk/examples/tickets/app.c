// POST requests that can be repeated, and results on several pages.

#include "agent_host.h"

// Address of the API. The manifest requests access to this address.
static const char API[] = "https://api.example.com/v1";
// Maximum number of pages that `tickets.list` reads.
#define MAX_PAGES 5

static ah_result run_create(const ah_call *call) {
    ah_request request = {
        .method = "POST",
        .url = ah_format("%s/tickets", API),
        // The id of the call is the same in each attempt, so the API recognises a repeated request, and creates one
        // ticket.
        .headers = {{"content-type", "application/json"}, {"idempotency-key", ah_call_id(call)}},
        .body = ah_format("{\"title\": %s}", ah_quote(ah_argument_string(call, "title"))),
    };
    ah_result error;
    ah_response *response = ah_http_send(&request, &error);
    // A status such as 503 becomes the error `unavailable`, after which the host repeats the call.
    if (response == NULL || !ah_expect_ok(response, &error)) return error;
    return ah_json(ah_format("{\"number\": %lld}", (long long)ah_json_integer(response->body, "number", 0)));
}

static ah_result run_list(const ah_call *call) {
    const char *state = ah_argument_string(call, "state"), *titles = "";
    int64_t page = 1;
    for (int count = 0; page > 0 && count < MAX_PAGES; count++) {
        const char *url = ah_format("%s/tickets?state=%s&page=%lld", API, state == NULL ? "open" : state, (long long)page);
        ah_result error;
        ah_response *response = ah_http_get(url, &error);
        if (response == NULL || !ah_expect_ok(response, &error)) return error;
        const char *tickets = ah_json_value(response->body, "tickets"), *ticket;
        for (size_t index = 0; (ticket = ah_json_item(tickets, index)) != NULL; index++) {
            titles = ah_format("%s%s%s", titles, *titles ? ", " : "", ah_quote(ah_json_string(ticket, "title")));
        }
        // On the last page, the answer has no next page.
        page = ah_json_integer(response->body, "next", 0);
    }
    return ah_json(ah_format("{\"titles\": [%s]}", titles));
}

static const ah_tool TOOLS[] = {
    {
        .name = "tickets.create",
        .description = "Creates a ticket, and returns its number.",
        .arguments = {{"title", AH_STRING, "What is wrong, in one line.", AH_REQUIRED, "\"minLength\": 1"}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"number\": {\"type\": \"integer\", \"description\": \"The number of the ticket.\"}"
                  "}, \"required\": [\"number\"], \"additionalProperties\": false}",
        // The host repeats calls of an idempotent tool: after `unavailable`, and after a crash.
        .traits = AH_IDEMPOTENT | AH_OPEN_WORLD,
        .run = run_create,
    },
    {
        .name = "tickets.list",
        .description = "Lists the titles of the tickets.",
        .arguments = {{"state", AH_STRING, "The state of the tickets.", AH_OPTIONAL,
                       "\"enum\": [\"open\", \"closed\"], \"default\": \"open\""}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"titles\": {\"type\": \"array\", \"items\": {\"type\": \"string\"},"
                  "    \"description\": \"The titles of the tickets, oldest first.\"}"
                  "}, \"required\": [\"titles\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY | AH_OPEN_WORLD,
        .run = run_list,
    },
};

AH_EXPORT_TOOLS(TOOLS)
