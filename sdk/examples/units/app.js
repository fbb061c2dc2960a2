// Several tools in one plugin. Each tool declares the schema of its result, so that the host checks the result, and
// programs can read it.

import { array, number, object, oneOf, tool } from "agent-host-sdk";

const METRES = { metre: 1, kilometre: 1000, foot: 0.3048, mile: 1609.344 };
const unit = oneOf(...Object.keys(METRES));

const list = tool(
  {
    name: "units.list",
    description: "Lists the units of length that `units.convert` knows.",
    result: object({ units: array(unit).describe("The names of the units.") }),
    readOnly: true,
  },
  () => ({ units: Object.keys(METRES) }),
);

const convert = tool(
  {
    name: "units.convert",
    title: "Convert a length",
    description: "Converts a length from one unit to another. Use it instead of calculating yourself.",
    arguments: {
      value: number().describe("The length to convert."),
      unit: unit.describe("The unit of the length."),
      to: unit.describe("The unit of the result."),
    },
    result: object({
      value: number().describe("The length in the new unit."),
      unit: unit.describe("The new unit."),
    }),
    readOnly: true,
  },
  (length) => ({ value: (length.value * METRES[length.unit]) / METRES[length.to], unit: length.to }),
);

export const tools = [list, convert];
