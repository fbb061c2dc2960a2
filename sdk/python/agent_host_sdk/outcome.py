"""The results of tools."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .errors import ToolError
from .schema import to_json


def json_text(value: Any) -> str:
    """Writes a value as JSON. Raises the tool error *failed* if JSON cannot express the value."""
    try:
        return json.dumps(to_json(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise ToolError.failed(f"the result cannot be written as JSON: {error}") from error


@dataclass
class Text:
    """A text for the model."""

    text: str


@dataclass
class Json:
    """A JSON value for the model."""

    value: Any


@dataclass
class NewMedia:
    """A new media item of at most 4 MiB. For a larger item, use `media.NewMedium`."""

    data: bytes
    mime_type: str
    name: str | None = None


@dataclass
class StoredMedia:
    """A media item that is already stored in this session."""

    digest: str


Content = Text | Json | NewMedia | StoredMedia


@dataclass
class Done:
    """A successful result: content for the model, and a machine-readable result."""

    content: list[Content] = field(default_factory=list)
    #: The machine-readable result, as a JSON value. `None` means that there is none, unless `has_structured` is true.
    value: Any = None
    has_structured: bool = False

    @classmethod
    def nothing(cls) -> Done:
        """A successful result without content."""
        return cls()

    @classmethod
    def text(cls, text: str) -> Done:
        """A successful result with a text for the model."""
        return cls().and_text(text)

    @classmethod
    def json(cls, value: Any) -> Done:
        """A successful result with a JSON value for the model."""
        return cls().and_json(value)

    @classmethod
    def structured(cls, value: Any, text: str) -> Done:
        """A machine-readable result, and a text for the model."""
        return cls([Text(text)], value, True)

    @classmethod
    def media(cls, data: bytes, mime_type: str, name: str | None = None) -> Done:
        """A successful result with a new media item of at most 4 MiB."""
        return cls().and_media(data, mime_type, name)

    @classmethod
    def stored(cls, digest: str) -> Done:
        """A successful result with a media item that is already stored in this session."""
        return cls().and_stored(digest)

    def and_text(self, text: str) -> Done:
        """Adds a text for the model."""
        self.content.append(Text(text))
        return self

    def and_json(self, value: Any) -> Done:
        """Adds a JSON value for the model."""
        self.content.append(Json(value))
        return self

    def and_media(self, data: bytes, mime_type: str, name: str | None = None) -> Done:
        """Adds a new media item of at most 4 MiB."""
        self.content.append(NewMedia(bytes(data), mime_type, name))
        return self

    def and_stored(self, digest: str) -> Done:
        """Adds a media item that is already stored, or that this call has written with `media.NewMedium`."""
        self.content.append(StoredMedia(digest))
        return self

    def texts(self) -> str:
        """Returns all texts and JSON values of the content, joined with line breaks."""
        lines = [item.text if isinstance(item, Text) else json_text(item.value)
                 for item in self.content if isinstance(item, (Text, Json))]
        return "\n".join(lines)


@dataclass
class ServiceRequest:
    """A request to an external service. The host suspends the turn until the service answers.

    The agent must grant the event type (`events`), and the tool must not be read-only. Times are in seconds.
    """

    event_type: str
    data: Any
    domain: str | None = None
    answer_schema: Any = None
    answer_within: float | None = None


Outcome = Done | ServiceRequest


def to_outcome(value: Any, has_output_schema: bool = False) -> Outcome:
    """Converts the value that a tool's function returned."""
    if isinstance(value, ServiceRequest):
        return value
    if value is None and not has_output_schema:
        return Done.nothing()
    if not isinstance(value, Done):
        value = Done.text(value) if isinstance(value, str) and not has_output_schema else Done.json(value)
    only = value.content[0] if len(value.content) == 1 else None
    # A single JSON value is the machine-readable result of a tool that declares a schema for its results.
    if has_output_schema and not value.has_structured and isinstance(only, Json):
        return Done([], only.value, True)
    return value
