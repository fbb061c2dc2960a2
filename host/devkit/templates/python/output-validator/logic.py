"""The logic of the plugin. It does not use the host, so it can be tested directly."""

# Words that mark unfinished text.
UNFINISHED = ["TODO", "FIXME", "lorem ipsum"]


def problem(text: str) -> str | None:
    """Returns a message for the model about unfinished text in the answer, or None if the answer is finished."""
    mark = next((mark for mark in UNFINISHED if mark in text), None)
    return mark and f"The answer says `{mark}`. Write what belongs there."
