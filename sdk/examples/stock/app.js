// Errors that help the model: each kind of error tells the model, and the host, what can be done next.

import { ToolError, array, integer, object, string, tool } from "agent-host-sdk";

// The items, and the number of pieces that are left.
const STOCK = { lamp: 5, chair: 2, table: 0 };
const TWO_DAYS = 48 * 60 * 60 * 1000;

const line = object({
  item: string().describe("The name of the item."),
  count: integer({ minimum: 1 }).describe("The number of pieces."),
});

const check = tool(
  {
    name: "stock.check",
    description: "Checks whether the shop can deliver these items. Use it before you promise a delivery.",
    arguments: { lines: array(line, { minItems: 1 }).describe("The items to deliver.") },
    readOnly: true,
  },
  ({ lines }) => {
    const violations = [];
    lines.forEach(({ item, count }, index) => {
      if (!Object.hasOwn(STOCK, item)) {
        // The message lists what exists, so that the model need not guess.
        throw ToolError.notFound(`there is no item \`${item}\`; the items are: ${Object.keys(STOCK).join(", ")}`);
      }
      const left = STOCK[item];
      if (left === 0) throw ToolError.unavailable(`\`${item}\` is sold out until Monday`, { retryAfter: TWO_DAYS });
      if (count > left) {
        const message = `must be at most ${left}, because no more are left`;
        violations.push({ pointer: `/lines/${index}/count`, message });
      }
    });
    // All wrong arguments are reported at once, so that the model can correct them in one step.
    if (violations.length > 0) throw ToolError.invalidAll(violations);
    return "All items can be delivered.";
  },
);

export const tools = [check];
