"""Reads files in the granted directories with a size limit and with errors for the model.

Python's own `open`, `os` and `pathlib` work in granted directories, too.
"""

from __future__ import annotations

import os
import stat

from .errors import ToolError


def read(path: str, at_most: int = 1024 * 1024) -> bytes:
    """Reads a complete regular file of at most `at_most` bytes."""
    try:
        # The type is checked before the file is opened, because opening a pipe would block.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ToolError.failed(f"`{path}` is not a regular file")
        with open(path, "rb") as file:
            data = file.read(at_most + 1)
    except OSError as error:
        raise to_tool_error(path, error) from error
    if len(data) > at_most:
        raise ToolError.failed(f"`{path}` has more than {at_most} bytes")
    return data


def read_text(path: str, at_most: int = 1024 * 1024) -> str:
    """Reads a complete text file in UTF-8 of at most `at_most` bytes."""
    try:
        return read(path, at_most).decode()
    except UnicodeDecodeError as error:
        message = f"`{path}` is not UTF-8 text: byte {error.start} (from 0) is not part of a character"
        raise ToolError.failed(message) from error


def to_tool_error(path: str, error: OSError) -> ToolError:
    """Converts an error of the file system. Files outside of the granted directories do not exist for a plugin."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return ToolError.not_found(f"there is no `{path}`, or it is outside of the granted directories")
    if isinstance(error, PermissionError) or error.strerror == "Read-only file system":
        return ToolError.denied(f"access to `{path}` is not granted")
    return ToolError.failed(f"`{path}`: {error.strerror or error}")
