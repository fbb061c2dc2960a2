"""Reads the settings that the agent grants to the plugin. The plugin requests their keys in `[asks] config`."""

from __future__ import annotations

from . import host
from .errors import HostError


class ConfigError(HostError):
    """The settings could not be read. A key without a value does not cause an error."""


def get(key: str, default: str | None = None) -> str | None:
    """Returns the value of a setting, or `default` if the setting has no value or is not granted."""
    if host.test_host is not None:
        return host.test_host.settings.get(key, default)
    bindings = host.binding("config")
    try:
        value = bindings.get(key)
    except Exception as error:
        raise ConfigError(f"the configuration could not be read: {host.error_of(error).value}") from None
    return default if value is None else value


def get_all() -> dict[str, str]:
    """Returns the keys and values of all granted settings."""
    if host.test_host is not None:
        return dict(host.test_host.settings)
    bindings = host.binding("config")
    try:
        return dict(bindings.get_all())
    except Exception as error:
        raise ConfigError(f"the configuration could not be read: {host.error_of(error).value}") from None
