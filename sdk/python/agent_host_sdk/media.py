"""Reads the media of the conversation by digest, and writes media items that are too large for a tool result."""

from __future__ import annotations

from typing import Any

from . import host
from .errors import HostError, ToolError
from .types import Dimensions, Media

#: Maximum number of bytes that the host reads or writes at once.
CHUNK = 1024 * 1024


class MediaError(HostError):
    """A media item could not be read or written."""

    def __init__(self, message: str, is_missing: bool = False):
        super().__init__(message)
        self.is_missing = is_missing

    def to_tool_error(self) -> ToolError:
        return ToolError.not_found(str(self)) if self.is_missing else ToolError.failed(str(self))


def open(digest: str) -> Medium:
    """Opens a media item of this session."""
    if host.test_host is not None:
        return Medium(host.test_host.open_medium(digest))
    return Medium(_call(host.binding("media").open, digest))


def missing() -> MediaError:
    return MediaError("the session has no media item with this digest", True)


class Medium:
    """An open media item. Its bytes never change. Use it in a `with` statement, or close it."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __enter__(self) -> Medium:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.__exit__(None, None, None)
            self._inner = None

    def describe(self) -> Media:
        """Returns the description of the media item."""
        return media_of(self._inner.describe())

    def read(self, offset: int, length: int) -> bytes:
        """Reads at most `length` bytes from `offset`, but never more than `CHUNK`."""
        return _call(self._inner.read, offset, length)

    def read_all(self, at_most: int = 32 * CHUNK) -> bytes:
        """Reads all bytes. Raises `MediaError` if there are more than `at_most` bytes."""
        size = self.describe().size
        if size > at_most:
            raise MediaError(f"the media item has {size} bytes; at most {at_most} can be read")
        data = bytearray()
        while len(data) < size:
            chunk = self.read(len(data), CHUNK)
            if not chunk:
                raise MediaError(f"the media item ends after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


class NewMedium:
    """A media item that is being written. To return the item from a tool, use `Done.stored(new.finish().digest)`."""

    def __init__(self, mime_type: str, name: str | None = None):
        if host.test_host is not None:
            self._inner = host.test_host.new_medium(mime_type, name)
        else:
            self._inner = host.binding("media").NewMedium(mime_type, name)

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        for start in range(0, len(data), CHUNK):
            _call(self._inner.write, bytes(data[start : start + CHUNK]))

    def finish(self) -> Media:
        """Stores the media item, and returns its description."""
        media = media_of(_call(self._inner.finish))
        self._inner.__exit__(None, None, None)
        return media


def media_of(value: Any) -> Media:
    """Converts the description of a media item from the bindings."""
    size = value.dimensions and Dimensions(value.dimensions.width, value.dimensions.height)
    return Media(value.digest, value.mime_type, value.size, size, value.name)


def _call(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        value = host.error_of(error)
        name = type(value).__name__
        if name == "Error_NotFound":
            raise missing() from None
        words = "the range begins after the end of the media item" if name == "Error_OutOfRange" else str(value.value)
        raise MediaError(words) from None
