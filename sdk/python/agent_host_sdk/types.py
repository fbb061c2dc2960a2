"""The values that the host passes to plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TraceContext:
    """The position of a call in a distributed trace (W3C Trace Context)."""

    traceparent: str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    tracestate: str | None = None


@dataclass
class Scope:
    """The agent, the session and the user for which a plugin works. The default values are for tests."""

    agent: str = "test"
    session: str = "test/00000000-0000-7000-8000-000000000000"
    delegated_by: str | None = None
    user: str | None = None
    turn: int = 1
    trace: TraceContext = field(default_factory=TraceContext)


@dataclass
class Call:
    """The circumstances of a tool call. The default values are for tests."""

    #: The same in every attempt, so it can be used as an idempotency key.
    id: str = "1.1.1"
    #: 1 for the first attempt.
    attempt: int = 1
    #: Time that this attempt has from its start, in milliseconds.
    time_limit: int = 30_000
    scope: Scope = field(default_factory=Scope)


@dataclass
class Model:
    """The model that receives a prompt. The default values are for tests."""

    provider: str = "scripted"
    name: str = "test"
    #: Context window in tokens.
    window: int = 128_000


@dataclass
class Dimensions:
    """The size of an image in pixels."""

    width: int
    height: int


@dataclass
class Media:
    """The description of a stored media item."""

    digest: str
    mime_type: str
    size: int
    dimensions: Dimensions | None = None
    name: str | None = None


@dataclass
class ToolCall:
    """A tool call of the model. `arguments` is the parsed JSON."""

    id: str
    name: str
    arguments: Any


@dataclass
class ToolResult:
    """The result of a tool call. The content consists of texts, `Json` values and `Media`."""

    call_id: str
    name: str
    content: list[Any]
    is_error: bool = False


@dataclass
class Message:
    """A message of the conversation.

    `role` is `system`, `user`, `assistant` or `tool`. The parts are of the types `Text`, `Json`, `Media`, `ToolCall` and
    `ToolResult`.
    """

    role: str
    parts: list[Any]
    #: Number of model calls in which the message was sent.
    seen_count: int = 0

    def text(self) -> str:
        """Returns the texts of the message, joined with line breaks."""
        return "\n".join(part.text for part in self.parts if hasattr(part, "text"))
