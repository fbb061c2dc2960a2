"""The exports of the component. The build runs this module inside of the component, next to the plugin's own module.

The generated module that the build passes to componentize-py imports the plugin and then everything from this module. For each
interface that the component exports, this module defines the class with the name that componentize-py expects.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from . import host, kinds, log, tools
from .errors import Failure, ToolError, describe, is_expected
from .media import media_of
from .outcome import Done, Json, NewMedia, Outcome, ServiceRequest, Text, json_text
from .types import Call, Message, Model, Scope, ToolCall, ToolResult, TraceContext

MILLISECONDS = 1000
VERSION = "0_1_0"
#: For each kind of plugin, the class that the component exports and the method of this class.
EXPORTS = {
    "tool": "AgentHostPluginTool010",
    "context_builder": "AgentHostPluginContextBuilder010",
    "step_context": "AgentHostPluginStepContext010",
    "output_validator": "AgentHostPluginOutputValidator010",
    "media_policy": "AgentHostPluginMediaPolicy010",
}

bindings: dict[str, Any] = {}


def load(require_functions: bool = True) -> dict[str, type]:
    """Imports the bindings, and returns the classes that the component exports.

    Fails if the plugin does not have a function for an interface that its world exports, or the other way round.
    """
    host.load_bindings()
    for kind in EXPORTS:
        try:
            bindings[kind] = importlib.import_module(f"wit_world.exports.agent_host_plugin_{kind}_{VERSION}")
        except ImportError:
            continue
    bindings["types"] = host.binding("types")
    bindings["err"] = importlib.import_module("componentize_py_types").Err
    if require_functions:
        check_functions()
    log.remember_sources()
    classes = {"tool": _Tool, "context_builder": _ContextBuilder, "step_context": _StepContext,
               "output_validator": _OutputValidator, "media_policy": _MediaPolicy}
    return {name: classes[kind] for kind, name in EXPORTS.items() if kind in bindings}


def check_functions() -> None:
    """Checks that the plugin has a function for each interface that its world exports, and for no other interface."""
    defined = set(kinds.registered) | ({"tool"} if tools.registered.by_name else set())
    exported = {kind for kind in EXPORTS if kind in bindings}
    for kind in sorted(exported - defined):
        raise TypeError(f"the plugin's world exports `{kind.replace('_', '-')}`, but no function has the decorator `@{kind}`")
    for kind in sorted(defined - exported):
        raise TypeError(
            f"a function has the decorator `@{kind}`, but the plugin's world does not export `{kind.replace('_', '-')}`: "
            f'set `world = "{kind.replace("_", "-")}-plugin"` below `[build]` in plugin.toml'
        )


#: Runs before each call. The development build uses it to load the plugin's sources.
prepare: list[Callable[[], None]] = []


def _prepared() -> None:
    for function in prepare:
        function()


class _Tool:
    def definitions(self) -> list[Any]:
        try:
            _prepared()
        except Exception as error:
            # This function cannot return an error. The host shows the last output of a component that exits.
            print(f"{log.traceback_of(error)}\n{log.summary_of(error)}", file=sys.stderr, flush=True)
            os._exit(1)
        definition, traits = bindings["tool"].Definition, bindings["tool"].Traits
        return [
            definition(
                item.name,
                item.title,
                item.description,
                json.dumps(item.input_schema, ensure_ascii=False),
                None if item.output_schema is None else json.dumps(item.output_schema, ensure_ascii=False),
                _flags(traits, item.traits),
                item.priority,
            )
            for item in tools.registered.by_name.values()
        ]

    def call(self, name: str, args: str, context: Any) -> Any:
        try:
            _prepared()
            call = Call(context.id, context.attempt, context.time_limit, _scope(context.scope))
            return _outcome(tools.registered.run(name, args, call))
        except ToolError as error:
            raise bindings["err"](_tool_error(error)) from None
        except Exception as error:
            log.exception(error)
            raise bindings["err"](bindings["tool"].Error_Failed(describe(error))) from None


class _ContextBuilder:
    def init(self, request: Any) -> Any:
        return _run("context_builder", lambda: _context_request(request), _prompt)


class _StepContext:
    def step(self, request: Any) -> Any:
        return _run("step_context", lambda: _step_request(request), lambda sections: [_section(item) for item in sections or []])


class _OutputValidator:
    def validate(self, request: Any) -> Any:
        return _run("output_validator", lambda: _validation_request(request), _verdict)


class _MediaPolicy:
    def decide(self, request: Any) -> Any:
        scope, model = _scope(request.scope), _model(request.model)
        items = [_item(item, scope, model) for item in request.items]
        return [_run("media_policy", lambda item=item: item, _decision) for item in items]


def _run(kind: str, request: Callable[[], Any], convert: Callable[[Any], Any]) -> Any:
    """Calls the function of a plugin that is not a tool."""
    try:
        _prepared()
        return convert(kinds.registered[kind](request()))
    except Exception as error:
        if not is_expected(error):
            log.exception(error)
        types = bindings["types"]
        cases = {"invalid-input": types.Failure_InvalidInput, "unavailable": types.Failure_Unavailable}
        case = cases.get(error.kind, types.Failure_Failed) if isinstance(error, Failure) else types.Failure_Failed
        message = str(error) if is_expected(error) else describe(error)
        raise bindings["err"](case(message)) from None


def _flags(traits: Any, names: frozenset[str]) -> Any:
    flags = traits(0)
    for name in names:
        flags |= getattr(traits, name.upper())
    return flags


def _outcome(outcome: Outcome) -> Any:
    types = bindings["tool"]
    if isinstance(outcome, ServiceRequest):
        schema = None if outcome.answer_schema is None else json_text(outcome.answer_schema)
        within = _milliseconds(outcome.answer_within)
        request = types.ServiceRequest(outcome.event_type, json_text(outcome.data), outcome.domain, schema, within)
        return types.Outcome_Pending(request)
    content = [_content(item) for item in outcome.content]
    return types.Outcome_Done(types.Done(content, json_text(outcome.value) if outcome.has_structured else None))


def _content(item: Any) -> Any:
    types = bindings["tool"]
    if isinstance(item, Text):
        return types.Content_Text(item.text)
    if isinstance(item, Json):
        return types.Content_Json(json_text(item.value))
    if isinstance(item, NewMedia):
        return types.Content_NewMedia(types.NewMedia(item.mime_type, item.data, item.name))
    return types.Content_StoredMedia(item.digest)


def _tool_error(error: ToolError) -> Any:
    types = bindings["tool"]
    if error.kind == "invalid-arguments":
        return types.Error_InvalidArguments([types.Violation(pointer, message) for pointer, message in error.violations])
    if error.kind == "unavailable":
        return types.Error_Unavailable(types.Unavailable(error.message, _milliseconds(error.retry_after)))
    cases = {"not-found": types.Error_NotFound, "denied": types.Error_Denied}
    return cases.get(error.kind, types.Error_Failed)(error.message)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else min(max(0, round(seconds * MILLISECONDS)), 2**32 - 1)


def _scope(scope: Any) -> Scope:
    trace = TraceContext(scope.trace.traceparent, scope.trace.tracestate)
    return Scope(scope.agent, scope.session, scope.delegated_by, scope.user, scope.turn, trace)


def _model(model: Any) -> Model:
    return Model(model.provider, model.name, model.window)


def _budget(budget: Any) -> kinds.Budget:
    return kinds.Budget(budget.available, budget.reserved, budget.tools)


def _message(message: Any) -> Message:
    return Message(message.role.name.lower(), [_part(part) for part in message.parts], message.seen_count)


def _part(part: Any) -> Any:
    """Converts a part of a message or of a tool's result."""
    name, value = type(part).__name__.partition("_")[2], part.value
    if name == "Text":
        return Text(value)
    if name == "Json":
        return Json(json.loads(value))
    if name == "Media":
        return media_of(value)
    if name == "ToolCall":
        return ToolCall(value.id, value.name, json.loads(value.arguments))
    return ToolResult(value.call_id, value.name, [_part(item) for item in value.content], value.is_error)


def _context_request(request: Any) -> kinds.ContextRequest:
    is_message = type(request.input).__name__ == "Input_Message"
    memory = request.memory
    recollections = [kinds.Recollection(item.id, item.text, item.written, item.score) for item in memory.recollections]
    history = [_message(message) for message in memory.history]
    return kinds.ContextRequest(
        _message(request.input.value) if is_message else _part(request.input),
        _scope(request.scope),
        _model(request.model),
        [kinds.OfferedTool(item.name, item.description, json.loads(item.input_schema), item.tokens) for item in request.tools],
        kinds.Memory(history, memory.hidden, memory.summary, recollections),
        _budget(request.budget),
        request.lifecycle.name.lower(),
    )


def _step_request(request: Any) -> kinds.StepRequest:
    return kinds.StepRequest(
        _scope(request.scope),
        _model(request.model),
        request.step,
        request.steps_left,
        [_message(message) for message in request.latest],
        _budget(request.budget),
        request.state,
        request.lifecycle.name.lower(),
    )


def _validation_request(request: Any) -> kinds.ValidationRequest:
    turn = [_message(message) for message in request.turn]
    return kinds.ValidationRequest(
        request.text,
        _scope(request.scope),
        request.structured,
        request.output_schema,
        request.attempt,
        request.corrections_left,
        turn,
    )


def _item(item: Any, scope: Scope, model: Model) -> kinds.Item:
    position = kinds.Position(item.position.message, item.position.part, item.position.item)
    return kinds.Item(media_of(item.media), item.seen_count, item.masked, item.role.name.lower(), position, scope, model)


def _section(section: kinds.Section) -> Any:
    types = bindings["context_builder"]
    stability = types.Stability.FIXED if section.is_fixed else types.Stability.DYNAMIC
    return types.Section(section.name, section.text, stability)


def _prompt(prompt: kinds.Prompt | list[kinds.Section]) -> Any:
    if not isinstance(prompt, kinds.Prompt):
        prompt = kinds.Prompt(list(prompt or []))
    types = bindings["context_builder"]
    history = types.History.KEEP if prompt.keeps_history else types.History.LEAVE_OUT
    messages = [_to_message(message) for message in prompt.messages]
    return types.Prompt([_section(section) for section in prompt.sections], history, messages, prompt.state)


def _to_message(message: Message) -> Any:
    types = bindings["types"]
    return types.Message(getattr(types.Role, message.role.upper()), [_to_part(part) for part in message.parts], message.seen_count)


def _to_part(part: Any) -> Any:
    types = bindings["types"]
    if isinstance(part, ToolCall):
        return types.Part_ToolCall(types.ToolCall(part.id, part.name, json_text(part.arguments)))
    if isinstance(part, ToolResult):
        content = [_to_content(item, "Content") for item in part.content]
        return types.Part_ToolResult(types.ToolResult(part.call_id, part.name, content, part.is_error))
    return _to_content(part, "Part")


def _to_content(item: Any, variant: str) -> Any:
    types = bindings["types"]
    if isinstance(item, (str, Text)):
        return getattr(types, f"{variant}_Text")(item if isinstance(item, str) else item.text)
    if isinstance(item, Json):
        return getattr(types, f"{variant}_Json")(json_text(item.value))
    size = item.dimensions and types.Dimensions(item.dimensions.width, item.dimensions.height)
    return getattr(types, f"{variant}_Media")(types.Media(item.digest, item.mime_type, item.size, size, item.name))


def _verdict(verdict: kinds.Verdict | None) -> Any:
    types = bindings["output_validator"]
    if verdict is not None and verdict.problems:
        return types.Verdict_Reject([types.Problem(pointer, message) for pointer, message in verdict.problems])
    replacement = verdict and verdict.replacement
    if replacement is None:
        return types.Verdict_Accept()
    if isinstance(replacement, Text):
        return types.Verdict_AcceptAs(types.Output_Text(replacement.text))
    return types.Verdict_AcceptAs(types.Output_Json(json_text(replacement.value)))


def _decision(decision: kinds.Decision | None) -> Any:
    types = bindings["media_policy"]
    if decision is not None and decision.text is not None:
        return types.Decision_Mask(decision.text)
    if decision is not None and decision.size is not None:
        size = bindings["types"].Dimensions(decision.size.width, decision.size.height)
        return types.Decision_Downscale(size)
    return types.Decision_Keep()
