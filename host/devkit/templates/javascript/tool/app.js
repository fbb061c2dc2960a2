// A plugin with one tool, `my-plugin.count`.

// JSON Schema of the arguments. The model reads the descriptions in it.
const inputSchema = {
  type: "object",
  properties: {
    text: { type: "string", description: "The text to look in." },
    word: { type: "string", description: "The word to count; upper and lower case are the same." },
  },
  required: ["text", "word"],
  additionalProperties: false,
};

// JSON Schema of the result.
const outputSchema = {
  type: "object",
  properties: { times: { type: "integer", description: "How often the word occurs." } },
  required: ["times"],
};

const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

export const tool = {
  definitions: () => [
    {
      name: "my-plugin.count",
      title: undefined,
      description: "Counts how often a word occurs in a text. Use it instead of counting yourself.",
      inputSchema: JSON.stringify(inputSchema),
      outputSchema: JSON.stringify(outputSchema),
      traits: { readOnly: true },
      priority: 0,
    },
  ],

  call(name, args, context) {
    const { text, word } = JSON.parse(args);
    if (!/^[\p{L}\p{N}]+$/u.test(word)) {
      // The schema cannot express this rule, so the call checks it and returns an error that names the argument.
      const violation = { pointer: "/word", message: "must be one word of letters and digits" };
      throw { tag: "invalid-arguments", val: [violation] };
    }
    const times = words(text).filter((other) => other === word.toLowerCase()).length;
    return { tag: "done", val: { content: [], structured: JSON.stringify({ times }) } };
  },
};
