// POST requests that can be repeated, and results on several pages.

import { array, http, integer, object, oneOf, string, tool } from "agent-host-sdk";

// Address of the API. The manifest requests access to this address.
const API = "https://api.example.com/v1";
// Maximum number of pages that `tickets.list` reads.
const MAX_PAGES = 5;

const create = tool(
  {
    name: "tickets.create",
    description: "Creates a ticket, and returns its number.",
    arguments: { title: string({ minLength: 1 }).describe("What is wrong, in one line.") },
    result: object({ number: integer().describe("The number of the ticket.") }),
    // The host repeats calls of an idempotent tool: after `unavailable`, and after a crash.
    idempotent: true,
    openWorld: true,
  },
  async ({ title }, call) => {
    // The id of the call is the same in each attempt, so the API recognises a repeated request, and creates one ticket.
    const headers = { "idempotency-key": call.id };
    const response = await http.post(`${API}/tickets`, { title }, { headers });
    // A status such as 503 becomes the error `unavailable`, after which the host repeats the call.
    const { number } = response.expectOk().json();
    return { number };
  },
);

const list = tool(
  {
    name: "tickets.list",
    description: "Lists the titles of the tickets.",
    arguments: { state: oneOf("open", "closed").describe("The state of the tickets.").default("open") },
    result: object({ titles: array(string()).describe("The titles of the tickets, oldest first.") }),
    readOnly: true,
    openWorld: true,
  },
  async ({ state }) => {
    const titles = [];
    for (let page = 1, count = 0; page !== undefined && count < MAX_PAGES; count += 1) {
      const response = await http.get(`${API}/tickets`, { query: { state, page } });
      const { tickets, next } = response.expectOk().json();
      titles.push(...tickets.map(({ title }) => title));
      page = next;
    }
    return { titles };
  },
);

export const tools = [create, list];
