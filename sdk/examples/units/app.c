// Several tools in one plugin. Each tool declares the schema of its result, so that the host checks the result, and
// programs can read it.

#include "agent_host.h"

// JSON Schema of a unit, without the braces.
#define UNIT "\"type\": \"string\", \"enum\": [\"metre\", \"kilometre\", \"foot\", \"mile\"]"

static const struct {
    const char *name;
    double metres;
} UNITS[] = {{"metre", 1}, {"kilometre", 1000}, {"foot", 0.3048}, {"mile", 1609.344}};

#define UNIT_COUNT (sizeof UNITS / sizeof *UNITS)

// The host has checked the name against the schema, so the unit is found.
static double metres(const char *name) {
    for (size_t index = 0; index < UNIT_COUNT; index++) {
        if (strcmp(UNITS[index].name, name) == 0) return UNITS[index].metres;
    }
    abort();
}

static ah_result run_list(const ah_call *call) {
    (void)call;
    char *names = NULL;
    for (size_t index = 0; index < UNIT_COUNT; index++) {
        ah_append(&names, "%s%s", names == NULL ? "" : ", ", ah_quote(UNITS[index].name));
    }
    return ah_json(ah_format("{\"units\": [%s]}", names));
}

static ah_result run_convert(const ah_call *call) {
    const char *to = ah_argument_string(call, "to");
    double length = ah_argument_number(call, "value", 0) * metres(ah_argument_string(call, "unit"));
    return ah_json(ah_format("{\"value\": %.15g, \"unit\": %s}", length / metres(to), ah_quote(to)));
}

static const ah_tool TOOLS[] = {
    {
        .name = "units.list",
        .description = "Lists the units of length that `units.convert` knows.",
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"units\": {\"type\": \"array\", \"items\": {" UNIT "}, \"description\": \"The names of the units.\"}"
                  "}, \"required\": [\"units\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY,
        .run = run_list,
    },
    {
        .name = "units.convert",
        .title = "Convert a length",
        .description = "Converts a length from one unit to another. Use it instead of calculating yourself.",
        .arguments =
            {
                {"value", AH_NUMBER, "The length to convert."},
                {"unit", AH_ANY, "The unit of the length.", AH_REQUIRED, UNIT},
                {"to", AH_ANY, "The unit of the result.", AH_REQUIRED, UNIT},
            },
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"value\": {\"type\": \"number\", \"description\": \"The length in the new unit.\"},"
                  "  \"unit\": {" UNIT ", \"description\": \"The new unit.\"}"
                  "}, \"required\": [\"value\", \"unit\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY,
        .run = run_convert,
    },
};

AH_EXPORT_TOOLS(TOOLS)
