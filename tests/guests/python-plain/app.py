"""A component in Python with its own world. It exports plain functions with a record, a variant and a result."""

import wit_world
from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import text as contract


class Text(exports.Text):
    def count(self, text: str) -> contract.Counted:
        words = text.split()
        return contract.Counted(len(words), max(words, key=len, default=None))

    def pick(self, text: str, which: contract.Choice) -> list[str]:
        words = text.split()
        if isinstance(which, contract.Choice_Whole):
            return words
        if which.value > len(words):
            raise Err(f"there are only {len(words)} words")
        return words[: which.value]


class WitWorld(wit_world.WitWorld):
    def shout(self, text: str) -> str:
        return text.upper() + "!"
