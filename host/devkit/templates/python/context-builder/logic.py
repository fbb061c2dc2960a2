"""The logic of the plugin. It does not use the host, so it can be tested directly."""

# The same text in every turn, so that prompt caches of providers work.
ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for."


def sections(user: str | None) -> list[tuple[str, str]]:
    """Names and texts of the sections to add to the prompt. The first one is always the same."""
    return [("answering", ANSWERING)] + ([("reader", f"You write for {user}.")] if user else [])
