"""The logic of the plugin. It does not use the host, so it can be tested directly."""


def line(name: str | None, mime_type: str, seen_count: int) -> str | None:
    """The text to send instead of a medium; None to send the medium."""
    return f"[{name or 'a file'}, {mime_type}: seen before]" if seen_count > 0 else None
