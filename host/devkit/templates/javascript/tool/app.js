// A plugin with one tool, `my-plugin.count`.

import { ToolError, integer, object, string, tool } from "agent-host-sdk";

const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

const count = tool(
  {
    name: "my-plugin.count",
    description: "Counts how often a word occurs in a text. Use it instead of counting yourself.",
    arguments: {
      text: string().describe("The text to look in."),
      word: string().describe("The word to count; upper and lower case are the same."),
    },
    result: object({ times: integer().describe("How often the word occurs.") }),
    readOnly: true,
  },
  ({ text, word }) => {
    if (!/^[\p{L}\p{N}]+$/u.test(word)) {
      // The schema cannot express this rule, so the tool checks it and throws an error that names the argument.
      throw ToolError.invalid("/word", "must be one word of letters and digits");
    }
    const times = words(text).filter((other) => other === word.toLowerCase()).length;
    return { times };
  },
);

export const tools = [count];
