"""A plugin with one tool, `my-plugin.count`."""

import re
from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import ToolError, tool


@dataclass
class Counted:
    """Result of `my-plugin.count`. Its JSON Schema is generated from this class."""

    times: Annotated[int, "How often the word occurs."]


# The JSON Schema of the arguments is generated from the parameters. The model reads the docstring and the descriptions.
@tool("my-plugin.count", read_only=True)
def count(
    text: Annotated[str, "The text to look in."],
    word: Annotated[str, "The word to count; upper and lower case are the same."],
) -> Counted:
    """Counts how often a word occurs in a text. Use it instead of counting yourself."""
    # The schema cannot express that the argument must be a single word, so this function checks the argument. The error
    # contains the name of the argument.
    if not re.fullmatch(r"\w+", word):
        raise ToolError.invalid("/word", "must be one word of letters and digits")
    return Counted(times=re.findall(r"\w+", text.lower()).count(word.lower()))
