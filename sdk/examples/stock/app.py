"""Errors that help the model: each kind of error tells the model, and the host, what can be done next."""

from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import ToolError, tool

# The items, and the number of pieces that are left.
STOCK = {"lamp": 5, "chair": 2, "table": 0}
TWO_DAYS = 48 * 60 * 60


@dataclass
class Line:
    item: Annotated[str, "The name of the item."]
    count: Annotated[int, "The number of pieces.", {"minimum": 1}]


@tool("stock.check", read_only=True)
def check(lines: Annotated[list[Line], "The items to deliver.", {"minItems": 1}]) -> str:
    """Checks whether the shop can deliver these items. Use it before you promise a delivery."""
    violations = []
    for index, line in enumerate(lines):
        if line.item not in STOCK:
            # The message lists what exists, so that the model need not guess.
            raise ToolError.not_found(f"there is no item `{line.item}`; the items are: {', '.join(STOCK)}")
        left = STOCK[line.item]
        if left == 0:
            raise ToolError.unavailable(f"`{line.item}` is sold out until Monday", retry_after=TWO_DAYS)
        if line.count > left:
            violations.append((f"/lines/{index}/count", f"must be at most {left}, because no more are left"))
    # All wrong arguments are reported at once, so that the model can correct them in one step.
    if violations:
        raise ToolError.invalid_all(violations)
    return "All items can be delivered."
