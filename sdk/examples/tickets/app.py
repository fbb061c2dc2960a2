"""POST requests that can be repeated, and results on several pages."""

from dataclasses import dataclass
from typing import Annotated, Literal

from agent_host_sdk import Call, http, tool

# Address of the API. The manifest requests access to this address.
API = "https://api.example.com/v1"
# Maximum number of pages that `tickets.list` reads.
MAX_PAGES = 5


@dataclass
class Created:
    number: Annotated[int, "The number of the ticket."]


@dataclass
class Titles:
    titles: Annotated[list[str], "The titles of the tickets, oldest first."]


# The host repeats calls of an idempotent tool: after `unavailable`, and after a crash. The parameter of the type `Call` is
# not an argument of the tool.
@tool("tickets.create", idempotent=True, open_world=True)
def create(title: Annotated[str, "What is wrong, in one line.", {"minLength": 1}], call: Call) -> Created:
    """Creates a ticket, and returns its number."""
    # The id of the call is the same in each attempt, so the API recognises a repeated request, and creates one ticket.
    headers = {"idempotency-key": call.id}
    # A status such as 503 becomes the error `unavailable`, after which the host repeats the call.
    response = http.post(f"{API}/tickets", json={"title": title}, headers=headers)
    return Created(response.json()["number"])


@tool("tickets.list", read_only=True, open_world=True)
def list_tickets(state: Annotated[Literal["open", "closed"], "The state of the tickets."] = "open") -> Titles:
    """Lists the titles of the tickets."""
    titles, page = [], 1
    for _ in range(MAX_PAGES):
        found = http.get(f"{API}/tickets", query={"state": state, "page": page}).json()
        titles += [ticket["title"] for ticket in found["tickets"]]
        page = found.get("next")
        if page is None:
            break
    return Titles(titles)
