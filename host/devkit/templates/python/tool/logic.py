"""The logic of the plugin. It does not use the host, so it can be tested directly."""

import re


def count(text: str, word: str) -> int:
    """Returns the number of times that the word occurs in the text. Upper and lower case are the same."""
    if not re.fullmatch(r"\w+", word):
        raise ValueError("must be one word of letters and digits")
    return re.findall(r"\w+", text.lower()).count(word.lower())
