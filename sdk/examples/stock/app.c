// Errors that help the model: each kind of error tells the model, and the host, what can be done next.

#include "agent_host.h"

// The items, and the number of pieces that are left.
static const struct {
    const char *name;
    int left;
} STOCK[] = {{"lamp", 5}, {"chair", 2}, {"table", 0}};

#define ITEM_COUNT (sizeof STOCK / sizeof *STOCK)
#define TWO_DAYS (48 * 60 * 60 * 1000)
#define MAX_VIOLATIONS 64

static ah_result no_item(const char *item) {
    // The message lists what exists, so that the model need not guess.
    char *names = NULL;
    for (size_t index = 0; index < ITEM_COUNT; index++) {
        ah_append(&names, "%s%s", names == NULL ? "" : ", ", STOCK[index].name);
    }
    return ah_not_found(ah_format("there is no item `%s`; the items are: %s", item, names));
}

static ah_result run_check(const ah_call *call) {
    static ah_violation violations[MAX_VIOLATIONS];
    size_t count = 0;
    const char *lines = ah_argument_json(call, "lines"), *line;
    for (size_t index = 0; (line = ah_json_item(lines, index)) != NULL && count < MAX_VIOLATIONS; index++) {
        const char *item = ah_json_string(line, "item");
        size_t found = 0;
        while (found < ITEM_COUNT && strcmp(STOCK[found].name, item) != 0) found++;
        if (found == ITEM_COUNT) return no_item(item);
        int left = STOCK[found].left;
        if (left == 0) return ah_unavailable_for(ah_format("`%s` is sold out until Monday", item), TWO_DAYS);
        if (ah_json_integer(line, "count", 0) > left) {
            violations[count].pointer = ah_format("/lines/%zu/count", index);
            violations[count++].message = ah_format("must be at most %d, because no more are left", left);
        }
    }
    // All wrong arguments are reported at once, so that the model can correct them in one step.
    return count > 0 ? ah_invalid_all(violations, count) : ah_text("All items can be delivered.");
}

static const ah_tool TOOLS[] = {
    {
        .name = "stock.check",
        .description = "Checks whether the shop can deliver these items. Use it before you promise a delivery.",
        .arguments =
            {
                // The schema of an argument of the type AH_ANY consists of these keys.
                {"lines", AH_ANY, "The items to deliver.", AH_REQUIRED,
                 "\"type\": \"array\", \"minItems\": 1, \"items\": {\"type\": \"object\", \"properties\": {"
                 "  \"item\": {\"type\": \"string\", \"description\": \"The name of the item.\"},"
                 "  \"count\": {\"type\": \"integer\", \"minimum\": 1, \"description\": \"The number of pieces.\"}"
                 "}, \"required\": [\"item\", \"count\"], \"additionalProperties\": false}"},
            },
        .traits = AH_READ_ONLY,
        .run = run_check,
    },
};

AH_EXPORT_TOOLS(TOOLS)
