"""What the plugin does, without anything of the host: it is tested as it is."""

import re


def count(text: str, word: str) -> int:
    """How often the word occurs in the text, upper and lower case alike."""
    if not re.fullmatch(r"\w+", word):
        raise ValueError("must be one word of letters and digits")
    return re.findall(r"\w+", text.lower()).count(word.lower())
