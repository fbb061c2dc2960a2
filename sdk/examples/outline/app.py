"""Reading granted files. The functions of `files` raise errors that help the model, so the tools do not handle them."""

import re
from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import files, tool


@dataclass
class Files:
    files: Annotated[list[str], "The paths of the files."]


@dataclass
class Heading:
    level: Annotated[int, "The level of the heading, from 1 to 6."]
    text: Annotated[str, "The text of the heading."]


@dataclass
class Headings:
    headings: Annotated[list[Heading], "The headings in the order of the file."]


@tool("outline.files", read_only=True)
def markdown_files(folder: Annotated[str, "The path of the folder."]) -> Files:
    """Lists the Markdown files in a folder."""
    entries = files.list(folder)
    return Files([f"{folder}/{entry.name}" for entry in entries if not entry.is_folder and entry.name.endswith(".md")])


@tool("outline.headings", read_only=True)
def headings(path: Annotated[str, "The path of the file."]) -> Headings:
    """Returns the headings of a Markdown file. Use it before you read a long file."""
    found = re.findall(r"^(#{1,6}) (.*)$", files.read_text(path), re.MULTILINE)
    return Headings([Heading(len(marks), text.strip()) for marks, text in found])
