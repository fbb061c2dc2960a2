"""The functions of the host that the other modules call: the bindings of the component, or the host of a test."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import HostError

#: The modules of the bindings that this package uses. They exist only for interfaces that the component imports.
MODULES = {
    "config": "wasi_config_store_0_2_0_rc_1",
    "files": "wasi_filesystem_preopens_0_2_0",
    "http_types": "wasi_http_types_0_2_0",
    "http_handler": "wasi_http_outgoing_handler_0_2_0",
    "log": "wasi_logging_logging",
    "media": "agent_host_plugin_media_store_0_1_0",
    "model": "agent_host_model_host_model_0_1_0",
    "streams": "wasi_io_streams_0_2_0",
    "types": "agent_host_plugin_types_0_1_0",
    "values": "wasi_keyvalue_store_0_2_0_draft2",
    "values_atomic": "wasi_keyvalue_atomics_0_2_0_draft2",
}
#: The line of `plugin.toml` that makes the build import an interface.
REQUESTS = {
    "config": 'config = ["KEY"]',
    "files": 'files = "read"',
    "http_types": 'http = ["GET https://HOST/"]',
    "http_handler": 'http = ["GET https://HOST/"]',
    "model": "model_tokens = 1000",
    "values": "key_value = true",
    "values_atomic": "key_value = true",
}

_bindings: dict[str, Any] = {}
#: The host of the current test. `testing.Host.run` sets it.
test_host: Any = None


class NoHost(HostError):
    """A function of the host was called outside of a component and outside of `testing.Host`."""


def load_bindings() -> None:
    """Imports the bindings. They can be imported only while the component is built."""
    for name, module in MODULES.items():
        try:
            _bindings[name] = importlib.import_module(f"wit_world.imports.{module}")
        except ImportError:
            continue


def restrict(asks: list[str]) -> None:
    """Removes the interfaces that the manifest does not request. A development build imports all of them.

    `asks` contains the keys below `[asks]`.
    """
    for name, request in REQUESTS.items():
        if request.split(" =")[0] not in asks:
            _bindings.pop(name, None)


def is_component() -> bool:
    return bool(_bindings)


def binding(name: str) -> Any:
    """Returns the bindings of an interface."""
    if name in _bindings:
        return _bindings[name]
    if _bindings and name in REQUESTS:
        raise NoHost(f"the plugin must request this in plugin.toml: add `{REQUESTS[name]}` below `[asks]`")
    if _bindings:
        raise NoHost(f"plugins of this kind cannot use the interface `{name}`")
    raise NoHost("there is no host: in a test, call the plugin in `testing.Host().run(…)`")


def has(name: str) -> bool:
    return name in _bindings


def error_of(error: BaseException) -> Any:
    """Returns the value of an error that a function of the bindings raised. Raises other exceptions again."""
    if type(error).__name__ == "Err" and hasattr(error, "value"):
        return error.value
    raise error
