"""Asks questions to the agent's model. The plugin requests tokens in `[asks] model_tokens`."""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass
from typing import Any

from . import host
from .errors import HostError, ToolError


class ModelError(HostError):
    """A question has no answer. `kind` is `denied`, `budget-exhausted`, `invalid`, `unavailable` or `failed`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind

    def to_tool_error(self) -> ToolError:
        errors = {"denied": ToolError.denied, "unavailable": ToolError.unavailable}
        return errors.get(self.kind, ToolError.failed)(str(self))


@dataclass
class Question:
    """A question. The model gets only this question, without tools and without the conversation."""

    text: str
    system: str | None = None
    #: Earlier messages before the question. Each pair is a user message and the model's reply to it.
    after: tuple[tuple[str, str], ...] = ()
    output_schema: Any = None
    max_tokens: int | None = None


@dataclass
class Answer:
    """The answer of the model. `ending` is `complete`, `length` or `filtered`."""

    text: str
    ending: str = "complete"
    prompt_tokens: int = 1
    completion_tokens: int = 1
    tokens_left: int = 1_000
    model: str = "test/test"


def ask(
    text: str,
    *,
    system: str | None = None,
    after: tuple[tuple[str, str], ...] = (),
    output_schema: Any = None,
    max_tokens: int | None = None,
) -> Answer:
    """Asks the model a question and waits for the complete answer.

    Args:
        system: Instructions for the model.
        after: Earlier messages. Each pair is a user message and the model's reply to it.
        output_schema: A JSON Schema for the answer. The host does not check the answer.
        max_tokens: Maximum number of tokens of the answer.
    """
    question = Question(text, system, tuple(after), output_schema, max_tokens)
    return host.test_host.answer_question(question) if host.test_host is not None else _ask(question)


def _ask(question: Question) -> Answer:
    bindings = host.binding("model")
    user, assistant = bindings.Role.USER, bindings.Role.ASSISTANT
    earlier = [bindings.Message(role, text) for pair in question.after for role, text in zip((user, assistant), pair)]
    schema = None if question.output_schema is None else json_module.dumps(question.output_schema)
    messages = [*earlier, bindings.Message(user, question.text)]
    try:
        answer = bindings.ask(bindings.Question(question.system, messages, schema, question.max_tokens))
    except Exception as error:
        raise _failure(host.error_of(error)) from None
    return Answer(
        answer.text,
        answer.ending.name.lower(),
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
        answer.tokens_left,
        answer.model,
    )


def _failure(error: Any) -> ModelError:
    name, value = type(error).__name__.removeprefix("Error_"), getattr(error, "value", "")
    kinds = {
        "Denied": ("denied", "using the agent's model is not granted"),
        "BudgetExhausted": ("budget-exhausted", f"the model was not asked: only {value} tokens are left in this turn"),
        "Invalid": ("invalid", f"the model was not asked: {value}"),
        "Unavailable": ("unavailable", f"no model is available: {value}"),
    }
    return ModelError(*kinds.get(name, ("failed", f"the model failed: {value}")))
