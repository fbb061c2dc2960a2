"""What the plugin does, without anything of the host: it is tested as it is."""


def line(name: str | None, mime_type: str, seen_count: int) -> str | None:
    """What is sent in place of a medium; None: the medium itself."""
    return f"[{name or 'a file'}, {mime_type}: seen before]" if seen_count > 0 else None
