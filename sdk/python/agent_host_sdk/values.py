"""Stores values under keys. Stored values are kept between calls. The plugin requests this with `[asks] key_value = true`."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from typing import Any

from . import host
from .errors import HostError, ToolError

#: Maximum number of attempts of `Bucket.update`.
ATTEMPTS = 16


class ValueStoreError(HostError):
    """A value could not be read or stored."""

    def __init__(self, message: str, is_denied: bool = False):
        super().__init__(message)
        self.is_denied = is_denied

    def to_tool_error(self) -> ToolError:
        return ToolError.denied(str(self)) if self.is_denied else ToolError.failed(str(self))


def open(name: str = "default") -> Bucket:
    """Opens the bucket with this name. A bucket that does not exist is empty."""
    if host.test_host is not None:
        return Bucket(host.test_host.open_bucket(name))
    return Bucket(_HostBucket(name))


class Bucket:
    """A named collection of values. Values are bytes. The methods with `json` in their names convert JSON values."""

    def __init__(self, backend: Any):
        self._backend = backend

    def get(self, key: str) -> bytes | None:
        """Returns the value of the key, or `None` if the key has no value."""
        return self._backend.get(key)

    def set(self, key: str, value: bytes | str) -> None:
        """Stores a value of at most 1 MiB. A text is stored as UTF-8."""
        self._backend.set(key, value.encode() if isinstance(value, str) else bytes(value))

    def get_text(self, key: str, default: str | None = None) -> str | None:
        """Returns the value of the key as text."""
        value = self.get(key)
        return default if value is None else value.decode()

    def get_json(self, key: str, default: Any = None) -> Any:
        """Returns the value of the key, parsed as JSON."""
        value = self.get(key)
        return default if value is None else json_module.loads(value)

    def set_json(self, key: str, value: Any) -> None:
        """Stores a value as JSON."""
        self.set(key, json_module.dumps(value))

    def delete(self, key: str) -> None:
        """Removes the value of the key, if there is one."""
        self._backend.delete(key)

    def keys(self) -> list[str]:
        """Returns the keys of all values in this bucket, in sorted order."""
        return self._backend.keys()

    def increment(self, key: str, delta: int = 1) -> int:
        """Adds to the number that is stored under the key, and returns the sum. The operation is atomic."""
        return self._backend.increment(key, delta)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replaces the value of the key with the result of `change`.

        If another call changes the value at the same time, `change` is called again with the new value. If `change` returns
        `None`, the value stays unchanged.
        """
        for _ in range(ATTEMPTS):
            current, swap = self._backend.snapshot(key)
            value = change(current)
            if value is None or swap(value):
                return
        raise ValueStoreError(f"other calls keep changing `{key}`; try again later")


def _failure(error: BaseException) -> ValueStoreError:
    value = host.error_of(error)
    # The error of a compare-and-swap operation contains the error of the store.
    if type(value).__name__ == "CasError_StoreError":
        value = value.value
    if type(value).__name__ == "Error_AccessDenied":
        return ValueStoreError("storing values is not granted", True)
    return ValueStoreError(getattr(value, "value", "there is no such bucket"))


class _HostBucket:
    def __init__(self, name: str):
        self.store, self.atomics = host.binding("values"), host.binding("values_atomic")
        self.bucket = self.call(self.store.open, name)

    def call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise _failure(error) from None

    def get(self, key: str) -> bytes | None:
        return self.call(self.bucket.get, key)

    def set(self, key: str, value: bytes) -> None:
        self.call(self.bucket.set, key, value)

    def delete(self, key: str) -> None:
        self.call(self.bucket.delete, key)

    def keys(self) -> list[str]:
        keys, cursor = [], None
        while True:
            page = self.call(self.bucket.list_keys, cursor)
            keys += page.keys
            cursor = page.cursor
            if cursor is None:
                return keys

    def increment(self, key: str, delta: int) -> int:
        return self.call(self.atomics.increment, self.bucket, key, delta)

    def snapshot(self, key: str) -> tuple[bytes | None, Callable[[bytes], bool]]:
        found = self.call(self.atomics.Cas.new, self.bucket, key)
        current = self.call(found.current)

        def swap(value: bytes) -> bool:
            try:
                self.atomics.swap(found, value)
            except Exception as error:
                if type(host.error_of(error)).__name__ == "CasError_CasFailed":
                    return False
                raise _failure(error) from None
            return True

        return current, swap
