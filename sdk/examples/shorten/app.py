"""A tool with typed arguments: the SDK generates the schema for the model from the type hints."""

from typing import Annotated, Literal

from agent_host_sdk import tool


# The model reads the docstring and the descriptions. The dictionary adds keys to the JSON Schema of an argument.
@tool("shorten.text", read_only=True)
def shorten(
    text: Annotated[str, "The text to shorten."],
    length: Annotated[int, "The largest number of characters of the result.", {"minimum": 1, "maximum": 1000}] = 80,
    ending: Annotated[
        Literal["word", "character"], "Where the text may be cut: after a complete word, or after any character."
    ] = "word",
) -> str:
    """Shortens a text to a number of characters. Use it for titles and previews."""
    if len(text) <= length:
        return text
    # The last character of the result is the ellipsis.
    kept = text[: length - 1]
    if ending == "word" and text[length - 1] != " " and " " in kept:
        kept = kept[: kept.rindex(" ")]
    return kept.rstrip(" ") + "…"
