"""A host for unit tests, and functions that call tools as the host does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

from . import host, http, media, model, tools, values
from .outcome import Outcome
from .types import Call, Media

Result = TypeVar("Result")


def call(name: str, arguments: dict[str, Any] | None = None, context: Call | None = None) -> Outcome:
    """Calls a tool with JSON arguments, as the host does. Raises `ToolError` if the call fails."""
    return tools.registered.run(name, json.dumps(arguments or {}), context or Call())


class Host:
    """A host that keeps all data in memory. The plugin uses it while `run` calls a function.

    Without further settings, the host grants nothing.
    """

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        #: The lines of the log: pairs of a level and a text.
        self.log_lines: list[tuple[str, str]] = []
        #: The HTTP requests that the plugin sent.
        self.requests: list[http.Request] = []
        #: The questions that the plugin asked the model.
        self.questions: list[model.Question] = []
        #: The stored values: for each bucket, the values by key.
        self.buckets: dict[str, dict[str, bytes]] = {}
        #: The media of the session: for each digest, the description and the bytes.
        self.media: dict[str, tuple[Media, bytes]] = {}
        #: The granted trees.
        self.trees: list[str] = []
        self._responses: dict[str, http.Response] = {}
        self._answers: list[str] = []
        self._keeps_values = False

    def run(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Calls a function of the plugin, and returns its result."""
        before, host.test_host = host.test_host, self
        try:
            return function(*arguments, **named)
        finally:
            host.test_host = before

    def config(self, key: str, value: str) -> Host:
        """Grants a setting."""
        self.settings[key] = value
        return self

    def tree(self, path: str) -> Host:
        """Grants a directory of this machine."""
        self.trees.append(path)
        return self

    def keeping_values(self) -> Host:
        """Allows the plugin to store values."""
        self._keeps_values = True
        return self

    def answer(self, text: str) -> Host:
        """Adds an answer of the model. Questions without an answer are denied."""
        self._answers.append(text)
        return self

    def response(self, url: str, body: Any = b"", status: int = 200, headers: dict[str, str] | None = None) -> Host:
        """Sets the response to requests for an address. A body that is neither text nor bytes is sent as JSON.

        Requests to other addresses are denied.
        """
        named = {name.lower(): value for name, value in (headers or {}).items()}
        if not isinstance(body, (str, bytes)):
            body = json.dumps(body)
            named.setdefault("content-type", "application/json")
        data = body.encode() if isinstance(body, str) else body
        self._responses[url] = http.Response(status, list(named.items()), data)
        return self

    def medium(self, data: bytes, mime_type: str, name: str | None = None) -> str:
        """Adds a media item to the session, and returns its digest."""
        new = self.new_medium(mime_type, name)
        new.write(data)
        return new.finish().digest

    # The other modules of the SDK call the following methods.

    def answer_request(self, request: http.Request) -> http.Response:
        self.requests.append(request)
        if request.url not in self._responses:
            raise http.HttpError("denied", f"the request {request.method} {request.url} is not granted")
        return self._responses[request.url]

    def answer_question(self, question: model.Question) -> model.Answer:
        if len(self.questions) >= len(self._answers):
            raise model.ModelError("denied", "using the agent's model is not granted")
        self.questions.append(question)
        return model.Answer(self._answers[len(self.questions) - 1])

    def open_bucket(self, name: str) -> _Bucket:
        if not self._keeps_values:
            raise values.ValueStoreError("storing values is not granted", True)
        return _Bucket(self.buckets.setdefault(name, {}))

    def open_medium(self, digest: str) -> _Medium:
        if digest not in self.media:
            raise media.missing()
        return _Medium(*self.media[digest])

    def new_medium(self, mime_type: str, name: str | None) -> _NewMedium:
        return _NewMedium(self, mime_type, name)


class _Bucket:
    def __init__(self, stored: dict[str, bytes]):
        self.stored = stored

    def get(self, key: str) -> bytes | None:
        return self.stored.get(_checked(key))

    def set(self, key: str, value: bytes) -> None:
        self.stored[_checked(key)] = value

    def delete(self, key: str) -> None:
        self.stored.pop(_checked(key), None)

    def keys(self) -> list[str]:
        return sorted(self.stored)

    def increment(self, key: str, delta: int) -> int:
        try:
            number = int(self.get(key) or b"0") + delta
        except ValueError:
            raise values.ValueStoreError("the value is not a number") from None
        self.set(key, str(number).encode())
        return number

    def snapshot(self, key: str) -> tuple[bytes | None, Callable[[bytes], bool]]:
        current = self.get(key)

        def swap(value: bytes) -> bool:
            is_unchanged = self.get(key) == current
            if is_unchanged:
                self.set(key, value)
            return is_unchanged

        return current, swap


def _checked(key: str) -> str:
    if not 1 <= len(key.encode()) <= 1024:
        raise values.ValueStoreError(f"the key has {len(key.encode())} bytes; it must have 1 to 1024")
    return key


class _Medium:
    def __init__(self, description: Media, data: bytes):
        self.description, self.data = description, data

    def describe(self) -> Media:
        return self.description

    def read(self, offset: int, length: int) -> bytes:
        if offset > len(self.data):
            raise media.MediaError("the range begins after the end of the media item")
        return self.data[offset : offset + min(length, media.CHUNK)]

    def __exit__(self, *_: Any) -> None:
        pass


class _NewMedium:
    def __init__(self, owner: Host, mime_type: str, name: str | None):
        self.owner, self.mime_type, self.name, self.data = owner, mime_type, name, bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self) -> Media:
        digest = f"sha256:{hashlib.sha256(self.data).hexdigest()}"
        description = Media(digest, self.mime_type, len(self.data), None, self.name)
        self.owner.media[digest] = (description, bytes(self.data))
        return description

    def __exit__(self, *_: Any) -> None:
        pass
