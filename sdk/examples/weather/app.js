// A GET request to an API that returns JSON. The API needs a key: the manifest requests it as a secret, and the host
// adds it to each request, so the plugin never sees it.

import { ToolError, http, number, object, string, tool } from "agent-host-sdk";

// Address of the API. The manifest requests access to this address.
const API = "https://api.example.com/v1";

const now = tool(
  {
    name: "weather.now",
    description: "Returns the weather in a city at this moment.",
    arguments: { city: string({ minLength: 1 }).describe("The name of the city.") },
    result: object({
      temperature: number().describe("The temperature in degrees Celsius."),
      sky: string().describe("The state of the sky, for example `cloudy`."),
    }),
    readOnly: true,
    openWorld: true,
  },
  async ({ city }) => {
    const response = await http.get(`${API}/weather`, { query: { city } });
    if (response.status === 404) throw ToolError.notFound(`there is no weather for \`${city}\``);
    const { temperature, sky } = response.expectOk().json();
    return { temperature, sky };
  },
);

export const tools = [now];
