"""Files in the granted trees: directories that the agent grants to the plugin. The plugin requests them with
`[asks] files = "read"` or `"read-write"`.

Python's own `open`, `os` and `pathlib` work in granted trees, too. The functions of this module limit the size of a file, and raise
errors for the model.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from . import host
from .errors import ToolError

#: Default of `at_most`: the maximum size of a file that is read, in bytes.
AT_MOST = 4 * 1024 * 1024


@dataclass
class Entry:
    """An entry of a folder."""

    name: str
    is_folder: bool


def trees() -> list[str]:
    """Returns the paths of the granted trees, as they are written in the grant, such as `.` or `/home/me/docs`."""
    if host.test_host is not None:
        return [*host.test_host.trees]
    found = host.binding("files").get_directories()
    for descriptor, _ in found:
        descriptor.__exit__(None, None, None)
    return [path for _, path in found]


def locate(path: str) -> str:
    """Returns the path to pass to Python's own functions. Raises *denied* if the path is not in a granted tree."""
    requested = _normalised(path)
    granted = trees()
    for tree in granted:
        root = _normalised(tree)
        # Without this check, `.` would contain all absolute paths.
        are_alike = path.startswith("/") == tree.startswith("/")
        if are_alike and requested is not None and root is not None and requested[: len(root)] == root:
            return "/".join(requested) or ("/" if requested else ".")
    names = ", ".join(f"`{tree}`" for tree in granted) or "no file tree is granted"
    raise ToolError.denied(f"`{path}` is outside of the granted trees: {names}")


def read(path: str, at_most: int = AT_MOST) -> bytes:
    """Reads a complete regular file of at most `at_most` bytes."""
    located = locate(path)
    try:
        # The type is checked before the file is opened, because opening a pipe would block.
        if not stat.S_ISREG(os.stat(located).st_mode):
            raise ToolError.failed(f"`{path}` is not a regular file")
        with open(located, "rb") as file:
            data = file.read(at_most + 1)
    except OSError as error:
        raise to_tool_error(path, error) from error
    if len(data) > at_most:
        raise ToolError.failed(f"`{path}` has more than {at_most} bytes")
    return data


def read_text(path: str, at_most: int = AT_MOST) -> str:
    """Reads a complete text file in UTF-8 of at most `at_most` bytes."""
    try:
        return read(path, at_most).decode()
    except UnicodeDecodeError as error:
        message = f"`{path}` is not UTF-8 text: byte {error.start} (from 0) is not part of a character"
        raise ToolError.failed(message) from error


def write(path: str, content: bytes | str) -> None:
    """Writes a file, and replaces it if it exists. A text is written as UTF-8."""
    located = locate(path)
    try:
        with open(located, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise to_tool_error(path, error) from error


def list(path: str) -> list[Entry]:
    """Returns the entries of a folder, sorted by name."""
    located = locate(path)
    try:
        with os.scandir(located) as found:
            entries = [Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError as error:
        raise to_tool_error(path, error) from error
    return sorted(entries, key=lambda entry: entry.name)


def create_folder(path: str) -> None:
    """Creates a folder."""
    located = locate(path)
    try:
        os.mkdir(located)
    except OSError as error:
        raise to_tool_error(path, error) from error


def remove(path: str) -> None:
    """Removes a file or an empty folder."""
    located = locate(path)
    try:
        is_folder = stat.S_ISDIR(os.lstat(located).st_mode)
        os.rmdir(located) if is_folder else os.unlink(located)
    except OSError as error:
        raise to_tool_error(path, error) from error


def to_tool_error(path: str, error: OSError) -> ToolError:
    """Converts an error of the file system."""
    if isinstance(error, FileNotFoundError):
        return ToolError.not_found(f"there is no `{path}`")
    if isinstance(error, NotADirectoryError):
        return ToolError.not_found(f"part of `{path}` is not a directory")
    # WASI has the error code 76 for a path outside of the granted trees.
    if isinstance(error, PermissionError) or error.errno == 76 or error.strerror == "Read-only file system":
        return ToolError.denied(
            f"access to `{path}` was refused: it is outside its tree, or its tree is granted for reading only"
        )
    return ToolError.failed(f"`{path}`: {error.strerror or error}")


def _normalised(path: str) -> tuple[str, ...] | None:
    """Returns the parts of a path without `.` and `..`. The first part of an absolute path is empty."""
    parts = [""] if path.startswith("/") else []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            parts.append(part)
        elif not parts or parts == [""]:
            return None
        else:
            parts.pop()
    return tuple(parts)
