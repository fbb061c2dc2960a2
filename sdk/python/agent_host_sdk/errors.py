"""The errors that plugins return to the host."""

from __future__ import annotations


class ToolError(Exception):
    """The error of a tool call. Create it with one of the class methods, and raise it.

    Every other exception that leaves a tool becomes the error *failed* with the type and the message of the exception. There
    are three exceptions to this rule: `FileNotFoundError` becomes *not found*, `PermissionError` becomes *denied*, and errors
    of the modules of this package become the error that fits their reason.
    """

    def __init__(self, kind: str, message: str, *, violations: list[tuple[str, str]] = (), retry_after: float | None = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.violations = list(violations)
        self.retry_after = retry_after

    @classmethod
    def invalid(cls, pointer: str, message: str) -> ToolError:
        """An argument is wrong. `pointer` is a JSON pointer to the argument, such as `/rows/3/price`."""
        return cls.invalid_all([(pointer, message)])

    @classmethod
    def invalid_all(cls, violations: list[tuple[str, str]]) -> ToolError:
        """Several arguments are wrong. Each pair is a JSON pointer and a message."""
        message = "\n".join(f"{pointer}: {text}" if pointer else text for pointer, text in violations)
        return cls("invalid-arguments", message, violations=violations)

    @classmethod
    def not_found(cls, message: str) -> ToolError:
        """What the call asked for does not exist."""
        return cls("not-found", message)

    @classmethod
    def denied(cls, message: str) -> ToolError:
        """The call is not allowed, and the same call will not succeed later."""
        return cls("denied", message)

    @classmethod
    def unavailable(cls, message: str, retry_after: float | None = None) -> ToolError:
        """The call may succeed later. The host repeats calls of tools that are read-only or idempotent.

        `retry_after` is the number of seconds until the call may succeed.
        """
        return cls("unavailable", message, retry_after=retry_after)

    @classmethod
    def failed(cls, message: str) -> ToolError:
        """The call failed for another reason."""
        return cls("failed", message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolError) and self.__dict__ == other.__dict__

    __hash__ = Exception.__hash__


class Failure(Exception):
    """The failure of a plugin that is not a tool. It ends the turn with an error that names the plugin."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind
        self.message = message

    @classmethod
    def invalid_input(cls, message: str) -> Failure:
        """The input is not what the plugin was made for."""
        return cls("invalid-input", message)

    @classmethod
    def unavailable(cls, message: str) -> Failure:
        """Something that the plugin needs did not answer."""
        return cls("unavailable", message)

    @classmethod
    def failed(cls, message: str) -> Failure:
        """The plugin failed for another reason."""
        return cls("failed", message)


class HostError(Exception):
    """An error of a module of this package. If it leaves a tool, it becomes the tool error `to_tool_error()`."""

    def to_tool_error(self) -> ToolError:
        return ToolError.failed(str(self))


def describe(error: BaseException) -> str:
    """Returns the type and the message of an exception, like the last line of its traceback."""
    import traceback

    return traceback.format_exception_only(error)[-1].strip()


def to_tool_error(error: BaseException) -> ToolError:
    """Converts any exception to a tool error."""
    if isinstance(error, ToolError):
        return error
    if isinstance(error, HostError):
        return error.to_tool_error()
    if isinstance(error, FileNotFoundError):
        return ToolError.not_found(describe(error))
    if isinstance(error, PermissionError):
        return ToolError.denied(describe(error))
    return ToolError.failed(describe(error))


def is_expected(error: BaseException) -> bool:
    """Whether the plugin raised the error on purpose, so that its traceback is of no interest."""
    return isinstance(error, (ToolError, Failure, HostError))
