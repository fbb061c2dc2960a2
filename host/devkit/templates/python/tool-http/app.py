"""A plugin with one tool, `my-plugin.order`, which calls an API over HTTP."""

from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import ToolError, http, tool

# Address of the API. The manifest requests access to this address.
API = "https://api.example.com/v1"


@dataclass
class Order:
    """Result of `my-plugin.order`. Its JSON Schema is generated from this class."""

    state: Annotated[str, "For example `packed` or `shipped`."]
    items: Annotated[int, "Number of items in the order."]


# The JSON Schema of the arguments is generated from the parameters. The model reads the docstring and the descriptions.
@tool("my-plugin.order", read_only=True, open_world=True)
def order(number: Annotated[int, "The number of the order, as on the invoice.", {"minimum": 0}]) -> Order:
    """Returns the state of an order. Use it when a user asks about an order."""
    try:
        found = http.get(f"{API}/orders/{number}", headers={"accept": "application/json"}, timeout=10).json()
    except http.StatusError as error:
        if error.status == 404:
            raise ToolError.not_found(f"there is no order {number}")
        # Other errors keep their reasons. The host repeats the call if the API is unavailable, because the tool is read-only.
        raise
    return Order(state=found["state"], items=found["items"])
