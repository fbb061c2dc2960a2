"""Stored values: a list of tasks that is kept between calls. Each task has its own key, so that calls at the same time do
not overwrite each other's changes."""

from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import ToolError, tool, values


@dataclass
class Added:
    number: Annotated[int, "The number of the task."]


@dataclass
class Task:
    number: Annotated[int, "The number of the task."]
    task: Annotated[str, "The task."]


@dataclass
class Tasks:
    tasks: Annotated[list[Task], "The tasks that are not done, oldest first."]


def key_of(number: int) -> str:
    """Returns the key of a task. The zeros keep the keys in the order of the numbers."""
    return f"task-{number:06}"


@tool("todo.add")
def add(task: Annotated[str, "The task, in one line.", {"minLength": 1}]) -> Added:
    """Adds a task to the list, and returns its number."""
    bucket = values.open()
    # No two calls get the same number, even if they run at the same time.
    number = bucket.increment("count")
    bucket.set(key_of(number), task)
    return Added(number)


@tool("todo.list", read_only=True)
def list_tasks() -> Tasks:
    """Lists the tasks that are not done."""
    bucket = values.open()
    keys = [key for key in bucket.keys() if key.startswith("task-")]
    return Tasks([Task(int(key.removeprefix("task-")), bucket.get_text(key)) for key in keys])


@tool("todo.done")
def done(number: Annotated[int, "The number of the task.", {"minimum": 1}]) -> str:
    """Removes a task that is done from the list."""
    bucket = values.open()
    task = bucket.get_text(key_of(number))
    if task is None:
        raise ToolError.not_found(f"there is no task {number}")
    bucket.delete(key_of(number))
    return f"Done: {task}"
