"""Writes log lines. The host stores each line together with the plugin's name."""

from __future__ import annotations

import linecache
import sys
import traceback

from . import host

LEVELS = ("trace", "debug", "info", "warn", "error")


def trace(message: object) -> None:
    """Logs details of the plugin's control flow."""
    write("trace", message)


def debug(message: object) -> None:
    """Logs a line for debugging."""
    write("debug", message)


def info(message: object) -> None:
    """Logs an event of normal operation."""
    write("info", message)


def warn(message: object) -> None:
    """Logs a problem that does not make the call fail."""
    write("warn", message)


def error(message: object) -> None:
    """Logs an error."""
    write("error", message)


def exception(failure: BaseException) -> None:
    """Logs the traceback of an exception, one line of the log for each line of the traceback."""
    for line in traceback_of(failure).splitlines():
        write("error", line)


def traceback_of(failure: BaseException) -> str:
    """Returns the traceback of an exception. The frames of this package above the plugin are left out."""
    _forget_missing_sources(failure)
    frame = start = failure.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__package__") == __package__:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(failure), failure, frame or start)).rstrip()


def summary_of(failure: BaseException) -> str:
    """Returns the type, the message and the place of an exception in one line."""
    if isinstance(failure, SyntaxError):
        return f"{type(failure).__name__}: {failure}"
    frames = traceback.extract_tb(failure.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return traceback.format_exception_only(failure)[-1].strip() + place


def remember_sources() -> None:
    """Reads the sources of all modules that have been imported, so that tracebacks in a component show their lines.

    A component has no access to its sources after it was built.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # The files of the standard library are large, and their lines say little about an error in a plugin.
        if file and file.endswith(".py") and "/lib/python" not in file and not file.startswith("/python"):
            lines = linecache.getlines(file)
            linecache.cache[file] = (0, None, lines, file)


def _forget_missing_sources(failure: BaseException | None) -> None:
    """Prevents the module `traceback` from opening files: the host would report an access that was not granted."""
    while failure is not None and host.is_component():
        frame = failure.__traceback__
        while frame is not None:
            file = frame.tb_frame.f_code.co_filename
            linecache.cache.setdefault(file, (0, None, [], file))
            frame = frame.tb_next
        failure = failure.__cause__ or failure.__context__


def write(level: str, message: object) -> None:
    """Logs a text at this level."""
    if host.test_host is not None:
        host.test_host.log_lines.append((level, str(message)))
    elif host.has("log"):
        bindings = host.binding("log")
        bindings.log(getattr(bindings.Level, level.upper()), "", str(message))
    else:
        print(f"{level}: {message}", file=sys.stderr)
