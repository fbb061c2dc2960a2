// A tool plugin in JavaScript: one tool that succeeds, two that fail, and one that shows whether an instance is
// reused.

const schema = (name) => ({ type: "object", required: [name], properties: { [name]: { type: "string" } } });
const nothing = { type: "object", additionalProperties: false };

const definition = (name, description, inputSchema) => ({
  name,
  title: undefined,
  description,
  inputSchema: JSON.stringify(inputSchema),
  outputSchema: undefined,
  traits: { readOnly: true },
  priority: 0,
});

const text = (value) => ({ tag: "done", val: { content: [{ tag: "text", val: value }], structured: undefined } });

let calls = 0;

export const tool = {
  definitions: () => [
    definition("javascript.upper", "Writes a text in capital letters.", schema("text")),
    definition("javascript.fail", "Fails: what it looks for is not there.", nothing),
    definition("javascript.throw", "Fails because of a bug.", nothing),
    definition("javascript.calls", "Returns how often this instance was called.", nothing),
  ],

  call(name, args, context) {
    calls += 1;
    const given = JSON.parse(args);
    switch (name) {
      case "javascript.upper":
        return text(`${given.text.toUpperCase()} ${context.attempt}`);
      case "javascript.calls":
        return text(String(calls));
      case "javascript.throw":
        return text(given.nothing.upper);
      default:
        throw { tag: "not-found", val: "it is not there" };
    }
  },
};
