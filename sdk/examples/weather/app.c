// A GET request to an API that returns JSON. The API needs a key: the manifest requests it as a secret, and the host
// adds it to each request, so the plugin never sees it.

#include "agent_host.h"

// Address of the API. The manifest requests access to this address.
static const char API[] = "https://api.example.com/v1";

static ah_result run_now(const ah_call *call) {
    const char *city = ah_argument_string(call, "city");
    ah_result error;
    ah_response *response = ah_http_get(ah_format("%s/weather?city=%s", API, ah_url_encode(city)), &error);
    if (response == NULL) return error;
    if (response->status == 404) return ah_not_found(ah_format("there is no weather for `%s`", city));
    if (!ah_expect_ok(response, &error)) return error;
    const char *temperature = ah_json_value(response->body, "temperature");
    const char *sky = ah_json_value(response->body, "sky");
    if (temperature == NULL || sky == NULL) return ah_failed("the API sent an answer without the weather");
    return ah_json(ah_format("{\"temperature\": %s, \"sky\": %s}", temperature, sky));
}

static const ah_tool TOOLS[] = {
    {
        .name = "weather.now",
        .description = "Returns the weather in a city at this moment.",
        .arguments = {{"city", AH_STRING, "The name of the city.", AH_REQUIRED, "\"minLength\": 1"}},
        .result = "{\"type\": \"object\", \"properties\": {"
                  "  \"temperature\": {\"type\": \"number\", \"description\": \"The temperature in degrees Celsius.\"},"
                  "  \"sky\": {\"type\": \"string\", \"description\": \"The state of the sky, for example `cloudy`.\"}"
                  "}, \"required\": [\"temperature\", \"sky\"], \"additionalProperties\": false}",
        .traits = AH_READ_ONLY | AH_OPEN_WORLD,
        .run = run_now,
    },
};

AH_EXPORT_TOOLS(TOOLS)
