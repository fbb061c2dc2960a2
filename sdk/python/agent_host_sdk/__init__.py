"""The Python SDK for plugins of agent-host.

A tool is a function with a decorator:

    from typing import Annotated
    from agent_host_sdk import tool

    @tool("text.shout", read_only=True)
    def shout(text: Annotated[str, "The text to convert to capitals."]) -> str:
        \"\"\"Returns the text in capitals.\"\"\"
        return text.upper()
"""

from . import config, files, http, log, media, model, values
from .errors import Failure, HostError, ToolError
from .kinds import (
    Budget,
    ContextRequest,
    Decision,
    Item,
    Memory,
    OfferedTool,
    Position,
    Prompt,
    Recollection,
    Section,
    StepRequest,
    ValidationRequest,
    Verdict,
    context_builder,
    media_policy,
    output_validator,
    step_context,
)
from .outcome import Done, Json, NewMedia, ServiceRequest, StoredMedia, Text
from .tools import tool
from .types import Call, Dimensions, Media, Message, Model, Scope, ToolCall, ToolResult, TraceContext

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("errors", "kinds", "outcome", "tools", "types")]
