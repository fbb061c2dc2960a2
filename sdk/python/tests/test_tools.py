"""Tests of tools, results, errors, and of the host for tests."""

import json
import tempfile
import unittest
from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import (
    Call,
    Done,
    Json,
    Scope,
    ServiceRequest,
    Text,
    ToolError,
    config,
    files,
    http,
    log,
    media,
    model,
    tool,
    tools,
    values,
)
from agent_host_sdk.host import NoHost
from agent_host_sdk.schema import to_json
from agent_host_sdk.testing import Host, call


@dataclass
class Sum:
    total: int


@tool("math.add", title="Add", read_only=True, idempotent=True, priority=2)
def add(
    a: Annotated[int, "The first number."],
    context: Call,
    b: int = 1,
) -> Sum:
    """Adds two numbers."""
    log.info(f"call {context.id}")
    return Sum(a + b)


@tool()
def fail(kind: str) -> str:
    """Fails in different ways."""
    errors = {
        "value": ValueError("wrong"),
        "file": FileNotFoundError(2, "No such file or directory", "x"),
        "access": PermissionError(13, "Permission denied", "x"),
        "own": ToolError.unavailable("later", retry_after=2),
        "http": http.HttpError("denied", "the request GET https://x is not granted"),
    }
    raise errors[kind]


@dataclass
class Range:
    from_: int
    to: int = 9


@tool()
def move(from_: int, range_: Range) -> Range:
    """Moves a range."""
    return Range(range_.from_ + from_, range_.to + from_)


@tool()
def give(kind: str):
    """Returns results of different types."""
    results = {
        "text": "hello",
        "nothing": None,
        "list": [1, 2],
        "done": Done.text("a").and_json({"b": 1}).and_media(b"png", "image/png", "a.png").and_stored("sha256:0"),
        "pending": ServiceRequest("com.example.order.v1", {"a": 1}, answer_within=1.5),
        "bad": {"a": float("nan")},
    }
    return results[kind]


class Definitions(unittest.TestCase):
    def test_definition_comes_from_the_function(self):
        found = tools.registered.by_name["math.add"]
        self.assertEqual((found.title, found.description, found.priority), ("Add", "Adds two numbers.", 2))
        self.assertEqual(found.traits, {"read_only", "idempotent"})
        self.assertEqual(found.input_schema, {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first number."},
                "b": {"type": "integer", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        })
        self.assertEqual(found.output_schema["properties"], {"total": {"type": "integer"}})
        self.assertEqual(add(1, Call(), 2), Sum(3), "the function can still be called")

    def test_mistakes_are_reported_when_the_module_is_imported(self):
        def no_hint(a):
            "Doc."

        def no_docstring(a: int):
            pass

        def bad_type(a: bytes):
            "Doc."

        def anything(*a: int):
            "Doc."

        async def later():
            "Doc."

        def twice():
            "Doc."

        for function, name, words in [
            (no_hint, None, "the parameter `a` of the tool `no_hint` needs a type hint"),
            (no_docstring, None, "needs a docstring"),
            (bad_type, None, "the tool `bad_type`: bytes has no JSON Schema"),
            (anything, None, "cannot be passed by its name"),
            (later, None, "must not be `async`"),
            (twice, "math.add", "two tools with the name"),
            (twice, "two words", "the name of the tool is `two words`"),
        ]:
            with self.assertRaises((TypeError, ValueError)) as raised:
                tool(name)(function)
            self.assertIn(words, str(raised.exception))
        with self.assertRaisesRegex(TypeError, "parentheses"):
            tool(twice)


class Results(unittest.TestCase):
    def test_arguments_are_converted_and_results_are_structured(self):
        host = Host()
        outcome = host.run(call, "math.add", {"a": 2.0, "b": 3}, Call(id="7", scope=Scope(user="ada")))
        self.assertEqual(outcome, Done([], Sum(5), True))
        self.assertEqual(host.log_lines, [("info", "call 7")])

    def test_arguments_can_be_keywords_of_python(self):
        schema = tools.registered.by_name["move"].input_schema
        self.assertEqual(list(schema["properties"]), ["from", "range_"])
        self.assertEqual(list(schema["properties"]["range_"]["properties"]), ["from", "to"])
        outcome = call("move", {"from": 2, "range_": {"from": 1}})
        self.assertEqual(outcome, Done([], Range(3, 11), True))
        self.assertEqual(to_json(outcome.value), {"from": 3, "to": 11})
        with self.assertRaisesRegex(ToolError, "the property `from` is missing"):
            call("move", {"range_": {"from": 1}})

    def test_results_of_all_types(self):
        self.assertEqual(call("give", {"kind": "text"}), Done([Text("hello")]))
        self.assertEqual(call("give", {"kind": "nothing"}), Done())
        self.assertEqual(call("give", {"kind": "list"}), Done([Json([1, 2])]))
        self.assertEqual(call("give", {"kind": "done"}).texts(), 'a\n{"b": 1}')
        self.assertEqual(len(call("give", {"kind": "done"}).content), 4)
        self.assertEqual(call("give", {"kind": "pending"}).event_type, "com.example.order.v1")

    def test_invalid_arguments_name_the_value(self):
        for arguments, violation in [
            ({"a": "x"}, ("/a", "expected an integer, found a string")),
            ({}, ("", "the property `a` is missing")),
            ({"a": 1, "context": {}}, ("", "unknown property `context`; the known properties are: `a`, `b`")),
        ]:
            with self.assertRaises(ToolError) as raised:
                call("math.add", arguments)
            self.assertEqual((raised.exception.kind, raised.exception.violations), ("invalid-arguments", [violation]))
        with self.assertRaises(ToolError) as raised:
            call("math.subtract")
        self.assertEqual(raised.exception, ToolError.not_found("this plugin has no tool `math.subtract`"))

    def test_exceptions_become_errors_and_unexpected_ones_are_logged(self):
        for kind, error, is_logged in [
            ("value", ToolError.failed("ValueError: wrong"), True),
            ("file", ToolError.not_found("FileNotFoundError: [Errno 2] No such file or directory: 'x'"), True),
            ("access", ToolError.denied("PermissionError: [Errno 13] Permission denied: 'x'"), True),
            ("own", ToolError.unavailable("later", retry_after=2), False),
            ("http", ToolError.denied("the request GET https://x is not granted"), False),
        ]:
            host = Host()
            with self.assertRaises(ToolError) as raised:
                host.run(call, "fail", {"kind": kind})
            self.assertEqual(raised.exception, error)
            lines = [line for level, line in host.log_lines if level == "error"]
            self.assertEqual(bool(lines), is_logged, kind)
            if is_logged:
                self.assertEqual(lines[0], "Traceback (most recent call last):")
                self.assertTrue(any("raise errors[kind]" in line for line in lines), lines)


class HostFunctions(unittest.TestCase):
    def test_requests(self):
        host = Host().response("https://a.example/x?q=a%20b&q=c", {"found": True}).response("https://a.example/", "", 429, {"Retry-After": "3"})
        response = host.run(http.post, "https://a.example/x", query={"q": ["a b", "c"], "n": None}, json={"a": 1})
        self.assertEqual((response.status, response.json(), response.header("Content-Type")), (200, {"found": True}, "application/json"))
        sent = host.requests[0]
        self.assertEqual((sent.method, json.loads(sent.body), sent.headers), ("POST", {"a": 1}, [("content-type", "application/json")]))
        with self.assertRaises(http.StatusError) as raised:
            host.run(http.get, "https://a.example/")
        self.assertEqual(raised.exception.to_tool_error(), ToolError.unavailable("GET https://a.example/ was answered with the status 429", 3))
        self.assertEqual(host.run(http.get, "https://a.example/", check=False).status, 429)
        with self.assertRaisesRegex(http.HttpError, "not granted"):
            host.run(http.get, "https://b.example/")
        with self.assertRaisesRegex(http.HttpError, "more than 3 bytes"):
            host.run(http.get, "https://a.example/x?q=a%20b&q=c", at_most=3)
        with self.assertRaisesRegex(NoHost, "testing.Host"):
            http.get("https://a.example/")

    def test_bodies_are_decoded_as_declared(self):
        latin = http.Response(200, [("content-type", "text/plain; charset=ISO-8859-1")], "é".encode("latin-1"))
        self.assertEqual(latin.text(), "é")
        self.assertEqual(http.Response(200, [], "é".encode()).text(), "é")
        with self.assertRaisesRegex(http.HttpError, "not JSON"):
            latin.json()

    def test_values(self):
        def use() -> list[str]:
            bucket = values.open()
            bucket.set_json("a", {"n": 1})
            bucket.increment("count", 2)
            bucket.update("list", lambda value: (value or b"") + b"x")
            bucket.update("list", lambda value: (value or b"") + b"y")
            bucket.set("gone", "text")
            bucket.delete("gone")
            return [bucket.get_json("a"), bucket.increment("count"), bucket.get_text("list"), bucket.get("gone"), bucket.keys()]

        host = Host().keeping_values()
        self.assertEqual(host.run(use), [{"n": 1}, 3, "xy", None, ["a", "count", "list"]])
        with self.assertRaises(values.ValueStoreError) as raised:
            Host().run(use)
        self.assertEqual(raised.exception.to_tool_error().kind, "denied")

    def test_an_update_gives_up_if_other_calls_keep_changing_the_value(self):
        host = Host().keeping_values()

        def change(value: bytes | None) -> bytes:
            values.open().increment("n")
            return b"mine"

        with self.assertRaisesRegex(values.ValueStoreError, "keep changing `n`"):
            host.run(lambda: values.open().update("n", change))

    def test_files_are_read_and_written_in_granted_trees_only(self):
        with tempfile.TemporaryDirectory() as folder:
            host = Host().tree(folder)
            self.assertEqual(host.run(files.trees), [folder])
            host.run(files.write, f"{folder}/b.txt", "héllo")
            host.run(files.create_folder, f"{folder}/a")
            self.assertEqual(host.run(files.list, folder), [files.Entry("a", True), files.Entry("b.txt", False)])
            self.assertEqual(host.run(files.read_text, f"{folder}/a/../b.txt"), "héllo")
            host.run(files.write, f"{folder}/raw", b"a\xff")
            for function, path, kind, words in [
                (files.read_text, f"{folder}/none", "not-found", "there is no"),
                (files.read_text, f"{folder}/b.txt/c", "not-found", "is not a directory"),
                (files.read_text, f"{folder}/raw", "failed", "byte 1 (from 0)"),
                (files.read_text, f"{folder}/a", "failed", "is not a regular file"),
                (files.read_text, f"{folder}/../x", "denied", f"outside of the granted trees: `{folder}`"),
                (files.list, "relative", "denied", "outside"),
            ]:
                with self.assertRaises(ToolError) as raised:
                    host.run(function, path)
                self.assertEqual(raised.exception.kind, kind)
                self.assertIn(words, raised.exception.message)
            for name in ("b.txt", "a", "raw"):
                host.run(files.remove, f"{folder}/{name}")
            self.assertEqual(host.run(files.list, folder), [])
        with self.assertRaises(ToolError) as raised:
            Host().tree(".").run(files.read, "/etc/hostname")
        self.assertEqual(raised.exception.message, "`/etc/hostname` is outside of the granted trees: `.`")

    def test_settings_media_and_model(self):
        host = Host().config("greeting", "hello").answer("Ahoy.")
        digest = host.medium(b"bytes", "text/plain", "note.txt")

        def use() -> tuple:
            with media.open(digest) as medium:
                read = medium.read_all()
            new = media.NewMedium("image/png")
            new.write(b"png")
            answer = model.ask("Greet.", system="Be brief.", after=(("a", "b"),))
            return config.get("greeting"), config.get("none", "default"), read, new.finish().size, answer.text

        self.assertEqual(host.run(use), ("hello", "default", b"bytes", 3, "Ahoy."))
        self.assertEqual(host.questions[0].system, "Be brief.")
        self.assertEqual(len(host.media), 2)
        with self.assertRaises(media.MediaError) as raised:
            host.run(media.open, "sha256:0")
        self.assertEqual(raised.exception.to_tool_error().kind, "not-found")
        with self.assertRaises(model.ModelError) as raised:
            host.run(model.ask, "Again?")
        self.assertEqual(raised.exception.to_tool_error().kind, "denied")


if __name__ == "__main__":
    unittest.main()
