"""Tools that are made from functions."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from . import log
from .errors import ToolError, is_expected, to_tool_error
from .outcome import Done, Outcome, ServiceRequest, to_outcome
from .schema import Mismatch, Property, convert_object, is_record, object_schema, schema_of, to_json
from .types import Call

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: The properties that a tool can declare, in the order of the contract.
TRAITS = ("read_only", "destructive", "idempotent", "sequential", "open_world", "needs_approval")


@dataclass
class Tool:
    """A tool: its definition, and the function that runs when the tool is called."""

    name: str
    description: str
    function: Callable[..., Any]
    title: str | None = None
    traits: frozenset[str] = frozenset()
    priority: int = 0
    input_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] | None = None
    parameters: list[Property] = field(default_factory=list)
    #: Name of the parameter that receives the circumstances of the call.
    call_parameter: str | None = None

    def run(self, arguments: str, call: Call) -> Outcome:
        """Runs the tool as the host does. `arguments` is JSON text. Raises only `ToolError`."""
        try:
            values = convert_object(self.parameters, json.loads(arguments))
            if self.call_parameter:
                values[self.call_parameter] = call
        except Mismatch as mismatch:
            raise ToolError.invalid(mismatch.pointer, mismatch.message) from mismatch
        try:
            return to_outcome(self.function(**values), self.output_schema is not None)
        except Exception as error:
            if not is_expected(error):
                log.exception(error)
            raise to_tool_error(error) from error


class Tools:
    """The tools of a plugin, in the order in which their functions were defined."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tool] = {}

    def add(self, tool: Tool) -> None:
        if tool.name in self.by_name:
            raise ValueError(f"there are two tools with the name `{tool.name}`")
        self.by_name[tool.name] = tool

    def run(self, name: str, arguments: str, call: Call) -> Outcome:
        """Runs a tool as the host does."""
        if name not in self.by_name:
            raise ToolError.not_found(f"this plugin has no tool `{name}`")
        return self.by_name[name].run(arguments, call)


#: The tools that the decorator `tool` has registered.
registered = Tools()


def tool(
    name: str | None = None,
    description: str | None = None,
    *,
    title: str | None = None,
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    sequential: bool = False,
    open_world: bool = False,
    needs_approval: bool = False,
    priority: int = 0,
    input_schema: dict[str, Any] | None = None,
    output: Any = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a tool of a function. The function itself can still be called as before.

    The JSON Schema of the arguments comes from the type hints of the parameters. `Annotated[str, "…"]` adds a description to
    a parameter, and `Annotated[int, {"minimum": 0}]` adds keys to its schema. A parameter of the type `Call` receives the
    circumstances of the call, and is not an argument of the tool. The argument of a parameter such as `from_` is named `from`.

    Args:
        name: 1 to 128 letters, digits, `_`, `-` and `.`, such as `table.filter`. The default is the name of the function.
        description: Text for the model: what the tool does, when to use it, and what it returns. The default is the docstring.
        title: Title for users.
        read_only: The tool changes nothing. The host may run and repeat its calls at any time.
        destructive: The tool may delete or overwrite data.
        idempotent: A second call with the same call id has no further effect.
        sequential: The tool must not run in parallel with another call.
        open_world: The tool uses external systems, such as the web or mail.
        needs_approval: A user must approve each call.
        priority: Of the calls in one reply, the host runs only those whose tools have the highest priority.
        input_schema: A JSON Schema for the arguments, instead of the one that the type hints give.
        output: The type of the machine-readable result. The default is the type that the function returns, if it is a
            dataclass or a `TypedDict`.
    """
    if callable(name):
        raise TypeError("write `@tool()` with parentheses")
    flags = (read_only, destructive, idempotent, sequential, open_world, needs_approval)
    traits = frozenset(trait for trait, is_set in zip(TRAITS, flags) if is_set)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"the tool `{function.__name__}` must not be `async`: a call runs alone in its instance")
        new = Tool(name or function.__name__, _description(description, function), function, title, traits, priority)
        if not NAME.fullmatch(new.name):
            raise ValueError(f"the name of the tool is `{new.name}`; it must have 1 to 128 letters, digits, `_`, `-` and `.`")
        _read_signature(new, output)
        new.input_schema = input_schema or new.input_schema
        registered.add(new)
        return function

    return register


def _description(description: str | None, function: Callable[..., Any]) -> str:
    text = description or inspect.getdoc(function) or ""
    if not text.strip():
        raise ValueError(f"the tool `{function.__name__}` needs a docstring, from which the model learns when to use the tool")
    return text


def _read_signature(tool: Tool, output: Any) -> None:
    """Derives the schemas from the parameters and from the type of the result."""
    hints = get_type_hints(tool.function, include_extras=True)
    for parameter in inspect.signature(tool.function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the parameter `{parameter.name}` of the tool `{tool.name}` cannot be passed by its name")
        hint = hints.get(parameter.name)
        if hint is None:
            raise TypeError(f"the parameter `{parameter.name}` of the tool `{tool.name}` needs a type hint")
        if hint is Call:
            tool.call_parameter = parameter.name
            continue
        is_required = parameter.default is parameter.empty
        tool.parameters.append(Property.of(parameter.name, hint, parameter.default, is_required))
    try:
        tool.input_schema = object_schema(tool.parameters)
        result = output or hints.get("return")
        if output is not None or (result is not None and is_record(result) and result not in (Done, ServiceRequest)):
            # The tool itself has a description, so the schema needs none.
            tool.output_schema = {key: value for key, value in schema_of(result).items() if key != "description"}
    except TypeError as error:
        raise TypeError(f"the tool `{tool.name}`: {error}") from error
