"""What the plugin does, without anything of the host: it is tested as it is."""

# The same in every turn, so that providers' prompt caches hit.
ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for."


def sections(user: str | None) -> list[tuple[str, str]]:
    """Names and texts of what is added to the prompt; the first stays the same."""
    return [("answering", ANSWERING)] + ([("reader", f"You write for {user}.")] if user else [])
