"""A plugin that uses every function of the host through the SDK. The scenario next to this file checks the results."""

import os
from typing import Annotated, Literal

from agent_host_sdk import (
    Call,
    ContextRequest,
    Done,
    Prompt,
    Section,
    ServiceRequest,
    ToolError,
    config,
    files,
    http,
    log,
    media,
    model,
    tool,
    values,
)

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)


@tool("probe.settings", read_only=True)
def settings() -> dict[str, str | None]:
    """Returns a granted and a missing setting."""
    return {"greeting": config.get("greeting"), "missing": config.get("missing", "none"), "all": ",".join(config.get_all())}


@tool("probe.files")
def write_and_read(text: str) -> str:
    """Writes a file with Python's own functions, and reads it."""
    with open("notes/new.txt", "w") as file:
        file.write(text)
    names = sorted(os.listdir("notes"))
    try:
        files.read_text("/etc/passwd")
    except ToolError as error:
        log.info(error)
    try:
        files.read("notes/old.txt", at_most=2)
    except ToolError as error:
        return f"{names} {files.read_text('notes/new.txt')} {error}"


@tool("probe.values")
def store(step: Literal["write", "read"]) -> dict:
    """Stores values, which the next call reads."""
    bucket = values.open("results")
    if step == "write":
        bucket.set_json("list", [1, 2])
        bucket.set("gone", "text")
        bucket.delete("gone")
        bucket.increment("count", 4)
        bucket.update("text", lambda value: (value or b"") + b"a")
        return {}
    bucket.update("text", lambda value: (value or b"") + b"b")
    return {"keys": bucket.keys(), "list": bucket.get_json("list"), "count": bucket.increment("count"), "text": bucket.get_text("text")}


@tool("probe.media")
def picture(digest: Annotated[str, "Digest of a media item."] = "") -> Done:
    """Returns two pictures, one of them written in parts."""
    if digest:
        with media.open(digest) as medium:
            medium.read_all()
    new = media.NewMedium("image/png", "written.png")
    new.write(PIXEL[:20])
    new.write(PIXEL[20:])
    return Done.media(PIXEL, "image/png", "pixel.png").and_stored(new.finish().digest).and_text("two")


@tool("probe.model")
def ask() -> str:
    """Asks the agent's model."""
    answer = model.ask("How are you?", system="Be brief.", after=(("Hello", "Hi"),), max_tokens=50)
    return f"{answer.text} {answer.ending} {answer.tokens_left > 0}"


@tool("probe.requests", open_world=True)
def requests() -> list[str]:
    """Sends requests, and returns what happens."""
    api, results = "https://api.example.com", []
    options = {"query": {"q": "a b", "none": None}, "headers": {"x-one": "1"}, "json": {"text": "x" * 9000}, "timeout": 5}
    response = http.post(f"{api}/echo", **options)
    results.append(f"{response.status} {response.header('X-Two')} {response.text()}")
    for path, more in [
        ("missing", {}),
        ("large", {"at_most": 10}),
        ("broken", {}),
        ("broken", {"headers": {"host": "other"}}),
    ]:
        try:
            http.get(f"{api}/{path}", **more)
        except http.HttpError as error:
            results.append(f"{error.kind}: {error}")
    for url in ("https://other.example.com/", "ftp://api.example.com/", "api"):
        try:
            http.request("GET", url)
        except http.HttpError as error:
            results.append(error.kind)
    # Every request closes its handles, so the number of requests is not limited by the number of handles.
    for _ in range(200):
        http.get(f"{api}/missing", check=False)
    return results


@tool("probe.order", idempotent=True)
def order(item: str, call: Call) -> ServiceRequest:
    """Orders an item from a service."""
    return ServiceRequest("com.example.order.v1", {"item": item, "turn": call.scope.turn}, answer_within=60)
