"""The logic of the plugin. It does not use the host, so it can be tested directly."""


def replacement(name: str | None, mime_type: str, seen_count: int) -> str | None:
    """Returns the text to send instead of a media item, or None to send the media item."""
    return f"[{name or 'a file'}, {mime_type}: seen before]" if seen_count > 0 else None
