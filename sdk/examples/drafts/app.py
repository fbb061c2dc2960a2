"""Writing and removing granted files. The traits of a tool tell the host what it does to the world, so that the host can ask
the user before a call."""

from typing import Annotated

from agent_host_sdk import files, tool

# Folder of the drafts, which the agent grants.
FOLDER = "drafts"

Name = Annotated[str, "The name of the draft, in lower case.", {"pattern": "^[a-z0-9-]+$"}]


# The tool may overwrite a draft. A second call with the same arguments has no further effect.
@tool("drafts.save", destructive=True, idempotent=True)
def save(name: Name, text: Annotated[str, "The text in Markdown."]) -> str:
    """Saves a draft, and replaces an earlier draft with this name."""
    is_new = all(entry.name != f"{name}.md" for entry in files.list(FOLDER))
    files.write(f"{FOLDER}/{name}.md", text)
    return f"{'saved' if is_new else 'replaced'} {FOLDER}/{name}.md"


# Each call waits for the approval of the user.
@tool("drafts.discard", destructive=True, needs_approval=True)
def discard(name: Name) -> str:
    """Removes a draft for good."""
    files.remove(f"{FOLDER}/{name}.md")
    return f"discarded {FOLDER}/{name}.md"
