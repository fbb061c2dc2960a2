"""Context builders, step contexts, output validators and media policies that are made from functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .outcome import Json, Text
from .types import Dimensions, Media, Message, Model, Scope

Function = TypeVar("Function", bound=Callable[..., Any])

#: The functions that the decorators have registered, by the name of the interface.
registered: dict[str, Callable[..., Any]] = {}


def _register(kind: str, function: Function) -> Function:
    if kind in registered:
        raise ValueError(f"a plugin has only one {kind.replace('_', ' ')}")
    registered[kind] = function
    return function


def context_builder(function: Function) -> Function:
    """Makes the function the plugin's context builder: `function(request: ContextRequest) -> Prompt`.

    The host calls it once per turn. The function may also return a list of sections.
    """
    return _register("context_builder", function)


def step_context(function: Function) -> Function:
    """Makes the function the plugin's step context: `function(request: StepRequest) -> list[Section]`.

    The host calls it before each call of the model. The plugin must have a context builder, too.
    """
    return _register("step_context", function)


def output_validator(function: Function) -> Function:
    """Makes the function the plugin's output validator: `function(request: ValidationRequest) -> Verdict`."""
    return _register("output_validator", function)


def media_policy(function: Function) -> Function:
    """Makes the function the plugin's media policy: `function(item: Item) -> Decision`.

    The host calls it for each media item of a prompt.
    """
    return _register("media_policy", function)


@dataclass
class Section:
    """A section of the prompt."""

    name: str
    text: str
    #: Whether the text is the same in every step. Providers can cache such sections.
    is_fixed: bool = False

    @classmethod
    def fixed(cls, name: str, text: str) -> Section:
        """A section whose text is the same in every step."""
        return cls(name, text, True)

    @classmethod
    def dynamic(cls, name: str, text: str) -> Section:
        """A section whose text may change from step to step."""
        return cls(name, text)


@dataclass
class Prompt:
    """The prompt of a turn."""

    sections: list[Section] = field(default_factory=list)
    #: Whether the model gets the history of the conversation.
    keeps_history: bool = True
    #: The messages of this turn. If the list is empty, the host makes one user message of the input.
    messages: list[Message] = field(default_factory=list)
    #: At most 64 KiB that the host passes to every step of the turn.
    state: bytes | None = None

    def section(self, section: Section) -> Prompt:
        """Adds a section."""
        self.sections.append(section)
        return self


@dataclass
class OfferedTool:
    """A tool that the model can call."""

    name: str
    description: str = ""
    input_schema: Any = None
    tokens: int = 0


@dataclass
class Recollection:
    """A memory that fits the input."""

    id: str
    text: str
    written: str = ""
    score: float = 0.0


@dataclass
class Memory:
    """What the agent remembers of the conversation."""

    history: list[Message] = field(default_factory=list)
    hidden: int = 0
    summary: str | None = None
    recollections: list[Recollection] = field(default_factory=list)


@dataclass
class Budget:
    """The tokens of the prompt."""

    available: int = 100_000
    reserved: int = 1_000
    tools: int = 0


@dataclass
class ContextRequest:
    """The input of a context builder. The default values are for tests."""

    input: Text | Json | Message = field(default_factory=lambda: Text("hello"))
    scope: Scope = field(default_factory=Scope)
    model: Model = field(default_factory=Model)
    tools: list[OfferedTool] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    budget: Budget = field(default_factory=Budget)
    #: `init`, `tool_result` or `output_error_feedback`.
    lifecycle: str = "init"


@dataclass
class StepRequest:
    """The input of a step context. The default values are for tests."""

    scope: Scope = field(default_factory=Scope)
    model: Model = field(default_factory=Model)
    #: Number of calls of the model in this turn so far.
    step: int = 0
    steps_left: int = 10
    latest: list[Message] = field(default_factory=list)
    budget: Budget = field(default_factory=Budget)
    state: bytes | None = None
    lifecycle: str = "init"


@dataclass
class ValidationRequest:
    """The input of an output validator. The default values are for tests."""

    text: str
    scope: Scope = field(default_factory=Scope)
    #: The output as JSON text, if it is JSON.
    structured: str | None = None
    output_schema: str | None = None
    attempt: int = 1
    corrections_left: int = 2
    turn: list[Message] = field(default_factory=list)

    def json(self) -> Any:
        """Returns the parsed output, or `None` if the output is not JSON."""
        return None if self.structured is None else json.loads(self.structured)

    def schema(self) -> Any:
        """Returns the agent's output schema, or `None` if the agent has none."""
        return None if self.output_schema is None else json.loads(self.output_schema)


@dataclass
class Verdict:
    """The decision of an output validator."""

    #: The output that replaces the accepted output.
    replacement: Text | Json | None = None
    #: JSON pointers and messages. If there are any, the output is rejected.
    problems: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def accept(cls) -> Verdict:
        """Accepts the output."""
        return cls()

    @classmethod
    def accept_text(cls, text: str) -> Verdict:
        """Accepts the output, and replaces it with a text."""
        return cls(Text(text))

    @classmethod
    def accept_json(cls, value: Any) -> Verdict:
        """Accepts the output, and replaces it with a JSON value."""
        return cls(Json(value))

    @classmethod
    def reject(cls, pointer: str, message: str) -> Verdict:
        """Rejects the output. The pointer is empty if the message describes the whole output. The model reads the message."""
        return cls(problems=[(pointer, message)])

    def and_problem(self, pointer: str, message: str) -> Verdict:
        """Adds another reason for which the output is rejected."""
        self.problems.append((pointer, message))
        return self


@dataclass
class Position:
    """The position of a media item in the prompt."""

    message: int = 0
    part: int = 0
    item: int | None = None


@dataclass
class Item:
    """A media item of a prompt, about which a media policy decides."""

    media: Media
    seen_count: int = 0
    masked: bool = False
    role: str = "user"
    position: Position = field(default_factory=Position)
    scope: Scope = field(default_factory=Scope)
    model: Model = field(default_factory=Model)


@dataclass
class Decision:
    """The decision of a media policy."""

    text: str | None = None
    size: Dimensions | None = None

    @classmethod
    def keep(cls) -> Decision:
        """Sends the media item unchanged."""
        return cls()

    @classmethod
    def mask(cls, text: str) -> Decision:
        """Sends a text instead of the media item."""
        return cls(text=text)

    @classmethod
    def downscale(cls, width: int, height: int) -> Decision:
        """Sends the image scaled down to fit this size in pixels."""
        return cls(size=Dimensions(width, height))
