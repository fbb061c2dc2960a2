"""Tests of the schemas that are made from type hints, and of the conversion of arguments."""

import enum
import unittest
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

from agent_host_sdk.schema import Mismatch, convert, schema_of, to_json


class Color(enum.Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A position on the map."""

    x: Annotated[int, "Steps to the east."]
    y: int = 0
    tags: list[str] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass
class Percentage:
    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 100:
            raise ValueError("must be between 0 and 100")


class Person(TypedDict, total=False):
    name: Annotated[str, "First name."]
    age: int


POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "description": "Steps to the east."},
        "y": {"type": "integer", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
    "description": "A position on the map.",
}


class Schema(unittest.TestCase):
    def test_simple_types_and_containers(self):
        for hint, schema in [
            (str, {"type": "string"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (bool, {"type": "boolean"}),
            (None.__class__, {"type": "null"}),
            (Any, {}),
            (list, {"type": "array"}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
            (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (dict, {"type": "object"}),
            (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        ]:
            self.assertEqual(schema_of(hint), schema, hint)
        pair = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "maxItems": 2}
        self.assertEqual(schema_of(tuple[str, int]), pair)

    def test_alternatives(self):
        self.assertEqual(schema_of(Optional[str]), {"type": ["string", "null"]})
        self.assertEqual(schema_of(int | None), {"type": ["integer", "null"]})
        nested = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
        self.assertEqual(schema_of(Union[list[str], None]), nested)
        self.assertEqual(schema_of(Literal["a", "b"]), {"type": "string", "enum": ["a", "b"]})
        self.assertEqual(schema_of(Literal["a", 1]), {"enum": ["a", 1]})
        self.assertEqual(schema_of(Color), {"type": "string", "enum": ["red", "blue"], "description": "A color."})

    def test_annotations_become_descriptions_and_keys(self):
        hint = Annotated[int, "A number.", {"minimum": 1}]
        self.assertEqual(schema_of(hint), {"type": "integer", "minimum": 1, "description": "A number."})
        outer = Annotated[Annotated[str, "inner"], "outer"]
        self.assertEqual(schema_of(list[outer])["items"]["description"], "inner")

    def test_records(self):
        self.assertEqual(schema_of(Point), POINT)
        person = schema_of(Person)
        self.assertEqual(person["properties"]["name"], {"type": "string", "description": "First name."})
        self.assertNotIn("required", person)
        self.assertNotIn("description", person, "Python's own docstring of a TypedDict is not a description")

    def test_a_type_that_contains_itself_is_a_definition(self):
        schema = schema_of(Tree)
        self.assertEqual(schema["$ref"], "#/$defs/Tree")
        children = schema["$defs"]["Tree"]["properties"]["children"]
        self.assertEqual(children["items"], {"$ref": "#/$defs/Tree"})
        tree = convert(Tree, {"name": "a", "children": [{"name": "b"}]})
        self.assertEqual(tree, Tree("a", [Tree("b")]))

    def test_types_without_a_schema_are_refused(self):
        for hint in (bytes, complex, object.__class__, dict[int, str]):
            with self.assertRaises(TypeError):
                schema_of(hint)


class Convert(unittest.TestCase):
    def mismatch(self, hint: Any, value: Any) -> tuple[str, str]:
        with self.assertRaises(Mismatch) as raised:
            convert(hint, value)
        return raised.exception.pointer, raised.exception.message

    def test_values_keep_or_get_their_types(self):
        for hint, value, expected in [
            (int, 2, 2),
            (int, 2.0, 2),
            (float, 2, 2.0),
            (int | float, 1, 1),
            (float | str, 1, 1.0),
            (str | None, None, None),
            (set[int], [1, 1, 2], {1, 2}),
            (tuple[str, int], ["a", 1], ("a", 1)),
            (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
            (Literal[1, "1"], "1", "1"),
            (Color, "blue", Color.BLUE),
            (Point, {"x": 1}, Point(1)),
            (Person, {"age": 3}, {"age": 3}),
            (list[Point | None], [{"x": 1, "y": 2}, None], [Point(1, 2), None]),
        ]:
            found = convert(hint, value)
            self.assertEqual((type(found), found), (type(expected), expected), hint)

    def test_mismatches_name_the_value(self):
        for hint, value, pointer, message in [
            (int, True, "", "expected an integer, found a boolean"),
            (int, 2.5, "", "expected an integer, found a number"),
            (str, 1, "", "expected a string, found a number"),
            (bool, 1, "", "expected a boolean, found a number"),
            (Literal[1], True, "", "expected one of 1, found True"),
            (Color, "green", "", "expected one of 'red', 'blue', found 'green'"),
            (list[int], [1, "a"], "/1", "expected an integer, found a string"),
            (dict[str, int], {"a/b": None}, "/a~1b", "expected an integer, found null"),
            (Point, {"x": {}}, "/x", "expected an integer, found an object"),
            (Point, {}, "", "the property `x` is missing"),
            (Point, {"x": 1, "z": 1}, "", "unknown property `z`; the known properties are: `x`, `y`, `tags`"),
            (tuple[int, int], [1], "", "expected an array of 2 items, found an array"),
            (list[Percentage], [{"value": 101}], "/0", "must be between 0 and 100"),
            (Point | None, {"x": "a"}, "/x", "expected an integer, found a string"),
        ]:
            self.assertEqual(self.mismatch(hint, value), (pointer, message), hint)


class ToJson(unittest.TestCase):
    def test_values_of_all_types(self):
        value = {"a": (Point(1), Color.RED), 1: {2}, "n": None}
        point = {"x": 1, "y": 0, "tags": []}
        self.assertEqual(to_json(value), {"a": [point, "red"], "1": [2], "n": None})

    def test_values_that_json_cannot_express_are_refused(self):
        for value in (float("nan"), b"bytes", object()):
            with self.assertRaises(TypeError):
                to_json(value)


if __name__ == "__main__":
    unittest.main()
