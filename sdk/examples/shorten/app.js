// A tool with typed arguments: the schemas of the arguments check the values, and the model reads their descriptions.

import { integer, oneOf, string, tool } from "agent-host-sdk";

const shorten = tool(
  {
    name: "shorten.text",
    description: "Shortens a text to a number of characters. Use it for titles and previews.",
    arguments: {
      text: string().describe("The text to shorten."),
      length: integer({ minimum: 1, maximum: 1000 })
        .describe("The largest number of characters of the result.")
        .default(80),
      ending: oneOf("word", "character")
        .describe("Where the text may be cut: after a complete word, or after any character.")
        .default("word"),
    },
    readOnly: true,
  },
  ({ text, length, ending }) => {
    // An array has one item for each character, while a string has two for characters such as emoji.
    const characters = [...text];
    if (characters.length <= length) return text;
    // The last character of the result is the ellipsis.
    let kept = characters.slice(0, length - 1);
    if (ending === "word" && characters[length - 1] !== " " && kept.includes(" ")) {
      kept = kept.slice(0, kept.lastIndexOf(" "));
    }
    return `${kept.join("").replace(/ +$/, "")}…`;
  },
);

export const tools = [shorten];
