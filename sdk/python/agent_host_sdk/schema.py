"""Makes JSON Schemas from type hints, and converts JSON values to the types."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import keyword
import math
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

#: A JSON pointer and a message.
Violations = list[tuple[str, str]]


class Mismatch(Exception):
    """A JSON value does not have the expected type."""

    def __init__(self, pointer: str, message: str):
        super().__init__(f"{pointer}: {message}")
        self.pointer = pointer
        self.message = message


SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
UNIONS = (Union, types.UnionType)
#: In a `TypedDict`, these types mark keys and do not change the type of the value.
MARKERS = tuple(getattr(typing, name) for name in ("Required", "NotRequired") if hasattr(typing, name))


def schema_of(hint: Any) -> dict[str, Any]:
    """Returns the JSON Schema of a type. Raises `TypeError` if JSON cannot express the type."""
    builder = _Builder()
    schema = builder.schema(hint)
    return {**schema, "$defs": builder.definitions} if builder.definitions else schema


def convert(hint: Any, value: Any, pointer: str = "") -> Any:
    """Converts a JSON value to a type. Raises `Mismatch` if the value does not have the type."""
    hint, _, _ = unwrap(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        return value
    if hint in SIMPLE:
        return _simple(hint, value, pointer)
    if origin in UNIONS:
        return _union(arguments, value, pointer)
    if origin is Literal:
        return _one_of(value, {_key(item): item for item in arguments}, pointer)
    if _is(hint, enum.Enum):
        return _one_of(value, {_key(item.value): item for item in hint}, pointer)
    if _is_record(hint):
        return _record(hint, value, pointer)
    container = origin or hint
    if container is dict:
        _expect(isinstance(value, dict), value, "an object", pointer)
        item = arguments[1] if arguments else Any
        return {key: convert(item, element, f"{pointer}/{escape(key)}") for key, element in value.items()}
    if container is tuple and arguments and arguments[-1] is not Ellipsis:
        is_matching = isinstance(value, list) and len(value) == len(arguments)
        _expect(is_matching, value, f"an array of {len(arguments)} items", pointer)
        return tuple(convert(item, element, f"{pointer}/{at}") for at, (item, element) in enumerate(zip(arguments, value)))
    if container in (list, tuple, set, frozenset):
        _expect(isinstance(value, list), value, "an array", pointer)
        item = arguments[0] if arguments else Any
        return container(convert(item, element, f"{pointer}/{at}") for at, element in enumerate(value))
    raise TypeError(f"{name_of(hint)} cannot be read from JSON")


def to_json(value: Any) -> Any:
    """Converts dataclasses, enums and containers to values that the module `json` can write."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {json_name(field.name): to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(to_json(key)): to_json(element) for key, element in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"JSON cannot express the number {value}")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"JSON cannot express a value of the type {name_of(type(value))}")


def unwrap(hint: Any) -> tuple[Any, str | None, dict[str, Any]]:
    """Splits `Annotated[T, "description", {…}]` into the type, the description, and further keys of the schema."""
    description, keys = None, {}
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *notes = get_args(hint)
            for note in notes:
                if isinstance(note, str):
                    description = description or note
                elif isinstance(note, dict):
                    keys = {**note, **keys}
        elif origin in MARKERS:
            hint = get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint, description, keys


def is_record(hint: Any) -> bool:
    """Whether a type is a dataclass or a `TypedDict`."""
    return _is_record(unwrap(hint)[0])


def escape(key: str) -> str:
    """Escapes a key for a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def name_of(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


def json_name(name: str) -> str:
    """Returns the key of a parameter or of a field of a dataclass in JSON. Python does not allow names such as `from`, so the key of
    `from_` is `from`."""
    return name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name


@dataclasses.dataclass
class Property:
    """One key of an object: a field of a dataclass, a key of a `TypedDict`, or a parameter of a function."""

    name: str
    hint: Any
    default: Any = inspect.Parameter.empty
    is_required: bool = True
    #: The name in Python, if it differs from the key in JSON.
    python_name: str | None = None

    @classmethod
    def of(cls, name: str, hint: Any, default: Any, is_required: bool) -> Property:
        """Returns the property of a parameter or of a field of a dataclass."""
        return cls(json_name(name), hint, default, is_required, name)


def object_schema(properties: list[Property], builder: _Builder | None = None) -> dict[str, Any]:
    """Returns the JSON Schema of an object with these properties, and with no others."""
    own = builder or _Builder()
    schemas = {item.name: own.property(item) for item in properties}
    schema: dict[str, Any] = {"type": "object", "properties": schemas}
    if required := [item.name for item in properties if item.is_required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return {**schema, "$defs": own.definitions} if builder is None and own.definitions else schema


def convert_object(properties: list[Property], value: Any, pointer: str = "") -> dict[str, Any]:
    """Converts the properties of a JSON object, to a dictionary with their names in Python. Properties that are missing are left
    out."""
    _expect(isinstance(value, dict), value, "an object", pointer)
    known = {item.name: item for item in properties}
    for key in value:
        if key not in known:
            names = ", ".join(f"`{name}`" for name in known) or "none"
            raise Mismatch(pointer, f"unknown property `{key}`; the known properties are: {names}")
    for item in properties:
        if item.is_required and item.name not in value:
            raise Mismatch(pointer, f"the property `{item.name}` is missing")
    return {
        known[key].python_name or key: convert(known[key].hint, element, f"{pointer}/{escape(key)}")
        for key, element in value.items()
    }


class _Builder:
    """Makes one schema. Types that contain themselves become definitions of the schema."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self.open: list[Any] = []
        self.recursive: set[str] = set()

    def schema(self, hint: Any) -> dict[str, Any]:
        hint, description, keys = unwrap(hint)
        schema = {**self.bare(hint), **keys}
        return {**schema, "description": description} if description else schema

    def property(self, item: Property) -> dict[str, Any]:
        schema = self.schema(item.hint)
        if item.default is inspect.Parameter.empty or item.default is None:
            return schema
        try:
            return {**schema, "default": to_json(item.default)}
        except TypeError:
            return schema

    def bare(self, hint: Any) -> dict[str, Any]:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in (Any, object, inspect.Parameter.empty):
            return {}
        if hint in SIMPLE:
            return {"type": SIMPLE[hint]}
        if origin in UNIONS:
            return self.union(arguments)
        if origin is Literal:
            return _enumeration(list(arguments))
        if _is(hint, enum.Enum):
            return {**_enumeration([to_json(item.value) for item in hint]), **_described(hint)}
        if _is_record(hint):
            return self.record(hint)
        return self.container(hint, origin or hint, arguments)

    def container(self, hint: Any, container: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if container is dict:
            if arguments and unwrap(arguments[0])[0] is not str:
                raise TypeError(f"the keys of {hint} must be of the type str, because JSON objects have no other keys")
            return {"type": "object", **({"additionalProperties": self.schema(arguments[1])} if arguments else {})}
        if container is tuple and arguments and arguments[-1] is not Ellipsis:
            items = [self.schema(item) for item in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if container in (list, tuple, set, frozenset):
            schema = {"type": "array", **({"items": self.schema(arguments[0])} if arguments else {})}
            return {**schema, "uniqueItems": True} if container in (set, frozenset) else schema
        raise TypeError(
            f"{name_of(hint)} has no JSON Schema: use str, int, float, bool, list, dict, Literal, an Enum, a dataclass or a TypedDict"
        )

    def union(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        schemas = [self.schema(item) for item in arguments]
        # A union of simple types is a list of types, which models read more easily than `anyOf`.
        if all(set(schema) == {"type"} for schema in schemas):
            return {"type": [schema["type"] for schema in schemas]}
        return {"anyOf": schemas}

    def record(self, hint: Any) -> dict[str, Any]:
        name = hint.__name__
        if hint in self.open:
            self.recursive.add(name)
        if hint in self.open or name in self.definitions:
            return {"$ref": f"#/$defs/{name}"}
        self.open.append(hint)
        schema = {**object_schema(properties_of(hint), self), **_described(hint)}
        self.open.pop()
        if name not in self.recursive:
            return schema
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}


def properties_of(hint: Any) -> list[Property]:
    """Returns the fields of a dataclass or the keys of a `TypedDict`."""
    hints = get_type_hints(hint, include_extras=True)
    if typing.is_typeddict(hint):
        return [Property(name, item, is_required=name in hint.__required_keys__) for name, item in hints.items()]
    found = []
    for field in dataclasses.fields(hint):
        if field.init:
            has_factory = field.default_factory is not dataclasses.MISSING
            has_default = field.default is not dataclasses.MISSING
            default = field.default if has_default else inspect.Parameter.empty
            found.append(Property.of(field.name, hints[field.name], default, not has_default and not has_factory))
    return found


def _described(hint: Any) -> dict[str, str]:
    """Returns the description of a class: its own docstring, without the one that Python generates."""
    text = inspect.cleandoc(hint.__dict__.get("__doc__") or "")
    is_generated = text.startswith(f"{hint.__name__}(") or text == inspect.cleandoc(enum.Enum.__doc__ or "")
    return {"description": text} if text and not is_generated else {}


def _enumeration(values: list[Any]) -> dict[str, Any]:
    kinds = {SIMPLE.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {**({"type": kind} if kind else {}), "enum": values}


def _is(hint: Any, base: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, base)


def _is_record(hint: Any) -> bool:
    return typing.is_typeddict(hint) or (isinstance(hint, type) and dataclasses.is_dataclass(hint))


def _expect(is_matching: bool, value: Any, expected: str, pointer: str) -> None:
    if not is_matching:
        raise Mismatch(pointer, f"expected {expected}, found {_kind(value)}")


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


def _simple(hint: Any, value: Any, pointer: str) -> Any:
    expected = {"string": "a string", "integer": "an integer", "number": "a number", "boolean": "a boolean", "null": "null"}
    words = expected[SIMPLE[hint]]
    if hint is int:
        # JSON does not distinguish between `2` and `2.0`.
        is_whole = isinstance(value, float) and value.is_integer()
        _expect((isinstance(value, int) and not isinstance(value, bool)) or is_whole, value, words, pointer)
        return int(value)
    if hint is float:
        _expect(isinstance(value, (int, float)) and not isinstance(value, bool), value, words, pointer)
        return float(value)
    _expect(isinstance(value, hint), value, words, pointer)
    return value


def _key(value: Any) -> tuple[type, Any]:
    """Returns a key that tells `1` from `True`."""
    return type(value), value


def _one_of(value: Any, allowed: dict[tuple[type, Any], Any], pointer: str) -> Any:
    if not isinstance(value, (list, dict)) and _key(value) in allowed:
        return allowed[_key(value)]
    values = ", ".join(repr(item) for _, item in allowed)
    raise Mismatch(pointer, f"expected one of {values}, found {value!r}")


def _union(arguments: tuple[Any, ...], value: Any, pointer: str) -> Any:
    mismatches = []
    # An exact type takes precedence, so that `int | float` keeps 1, and `float | str` turns 1 into 1.0.
    for hint in sorted(arguments, key=lambda hint: unwrap(hint)[0] is not type(value)):
        try:
            return convert(hint, value, pointer)
        except Mismatch as mismatch:
            mismatches.append(mismatch)
    # The mismatch of the deepest value is the most useful one.
    raise max(mismatches, key=lambda mismatch: mismatch.pointer.count("/"))


def _record(hint: Any, value: Any, pointer: str) -> Any:
    fields = convert_object(properties_of(hint), value, pointer)
    if typing.is_typeddict(hint):
        return fields
    try:
        return hint(**fields)
    except ValueError as error:
        raise Mismatch(pointer, str(error)) from error
