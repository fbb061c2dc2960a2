// A plugin with one tool, `my-plugin.order`, which calls an API over HTTP.

import { ToolError, http, integer, object, string, tool } from "agent-host-sdk";

// Address of the API. The manifest requests access to this address.
const API = "https://api.example.com/v1";

const order = tool(
  {
    name: "my-plugin.order",
    description: "Returns the state of an order. Use it when a user asks about an order.",
    arguments: { number: integer({ minimum: 1 }).describe("The number of the order, as on the invoice.") },
    result: object({
      state: string().describe("For example `packed` or `shipped`."),
      items: integer().describe("Number of items in the order."),
    }),
    readOnly: true,
    openWorld: true,
  },
  async ({ number }) => {
    const response = await http.get(`${API}/orders/${number}`, { headers: { accept: "application/json" } });
    if (response.status === 404) throw ToolError.notFound(`there is no order ${number}`);
    // Other error statuses become errors of the tool. The host may repeat the call if the API is not available.
    const { state, items } = response.expectOk().json();
    return { state, items };
  },
);

export const tools = [order];
