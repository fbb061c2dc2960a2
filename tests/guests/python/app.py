"""A tool plugin in Python: one tool that succeeds, one that fails, and two that try things that are not granted."""

import json
import socket

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import tool as contract

NOTHING = json.dumps({"type": "object", "additionalProperties": False})


def schema(name: str) -> str:
    return json.dumps({"type": "object", "required": [name], "properties": {name: {"type": "string"}}})


def definition(name: str, description: str, input_schema: str) -> contract.Definition:
    return contract.Definition(name, None, description, input_schema, None, contract.Traits.READ_ONLY, 0)


def text(value: str) -> contract.Outcome_Done:
    return contract.Outcome_Done(contract.Done([contract.Content_Text(value)], None))


class Tool(exports.Tool):
    def definitions(self) -> list[contract.Definition]:
        return [
            definition("python.upper", "Writes a text in capital letters.", schema("text")),
            definition("python.fail", "Fails: what it looks for is not there.", NOTHING),
            definition("python.connect", "Tries to open a connection.", NOTHING),
            definition("python.read", "Tries to read a file.", schema("path")),
        ]

    def call(self, name: str, args: str, context: contract.CallContext) -> contract.Outcome:
        arguments = json.loads(args)
        if name == "python.upper":
            return text(arguments["text"].upper())
        if name == "python.fail":
            raise Err(contract.Error_NotFound("it is not there"))
        try:
            if name == "python.connect":
                socket.create_connection(("127.0.0.1", 1), timeout=1)
            else:
                open(arguments["path"]).read()
        except Exception as error:
            return text(f"refused: {error}")
        return text("it worked")
