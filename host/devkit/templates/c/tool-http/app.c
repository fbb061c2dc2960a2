// A plugin with one tool, `my-plugin.order`, which calls an API over HTTP. The build writes the header `agent_host.h`, which
// connects the tools to the host.

#include "agent_host.h"
#include "logic.h"

// Address of the API. The manifest requests access to this address.
static const char API[] = "https://api.example.com/v1";

static ah_result run_order(const ah_call *call) {
    long long number = ah_argument_integer(call, "number", 0);
    ah_result error;
    ah_response *response = ah_http_get(ah_format("%s/orders/%lld", API, number), &error);
    if (response == NULL) return error;
    switch (kind_of_status(response->status)) {
        case STATUS_NOT_FOUND:
            return ah_not_found(ah_format("there is no order %lld", number));
        case STATUS_BUSY:
        case STATUS_ERROR:
            // The error fits the status, for example *denied*, or *unavailable*, after which the host may repeat the call.
            ah_expect_ok(response, &error);
            return error;
        case STATUS_OK:
            break;
    }
    const char *state = ah_json_value(response->body, "state");
    const char *items = ah_json_value(response->body, "items");
    if (state == NULL || items == NULL) return ah_failed("the API sent an answer that is not an order");
    return ah_json(ah_format("{\"state\": %s, \"items\": %s}", state, items));
}

static const ah_tool TOOLS[] = {
    {
        .name = "my-plugin.order",
        .description = "Returns the state of an order. Use it when a user asks about an order.",
        .arguments = {{"number", AH_INTEGER, "The number of the order, as on the invoice."}},
        // JSON Schema of the result. The host checks the result.
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"state\": {\"type\": \"string\", \"description\": \"For example `packed` or `shipped`.\"},"
                  "  \"items\": {\"type\": \"integer\", \"description\": \"Number of items in the order.\"}"
                  "}, \"required\": [\"state\", \"items\"]}",
        .traits = AH_READ_ONLY | AH_OPEN_WORLD,
        .run = run_order,
    },
};

AH_EXPORT_TOOLS(TOOLS)
