"""The logic of the plugin. It does not use the host, so it can be tested directly."""

# A section of the prompt. Its text is the same in every turn, so that providers can cache the prompt.
ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for."


def sections(user: str | None) -> list[tuple[str, str]]:
    """Returns the names and texts of the sections to add to the prompt."""
    return [("answering", ANSWERING)] + ([("reader", f"You write for {user}.")] if user else [])
