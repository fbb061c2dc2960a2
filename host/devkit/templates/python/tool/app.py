"""A plugin with one tool, `my-plugin.count`. The classes implement the world in `wit/`."""

import json

from componentize_py_types import Err
from logic import count
from wit_world import exports
from wit_world.exports import tool

# JSON Schemas of the arguments and of the result. The model reads the descriptions in them.
ARGUMENTS = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "The text to look in."},
        "word": {"type": "string", "description": "The word to count; upper and lower case are the same."},
    },
    "required": ["text", "word"],
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "properties": {"times": {"type": "integer", "description": "How often the word occurs."}},
    "required": ["times"],
}


class Tool(exports.Tool):
    def definitions(self) -> list[tool.Definition]:
        return [
            tool.Definition(
                name="my-plugin.count",
                title=None,
                description="Counts how often a word occurs in a text. Use it instead of counting yourself.",
                input_schema=json.dumps(ARGUMENTS),
                output_schema=json.dumps(RESULT),
                traits=tool.Traits.READ_ONLY,
                priority=0,
            )
        ]

    def call(self, name: str, args: str, context: tool.CallContext) -> tool.Outcome:
        arguments = json.loads(args)
        try:
            times = count(arguments["text"], arguments["word"])
        except ValueError as error:
            # The schema cannot express this rule, so the function checks it, and the error names the argument.
            raise Err(tool.Error_InvalidArguments([tool.Violation("/word", str(error))]))
        return tool.Outcome_Done(tool.Done([], json.dumps({"times": times})))
