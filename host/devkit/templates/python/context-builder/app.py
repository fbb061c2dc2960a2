"""A context builder: it adds sections to the prompt at the start of a turn."""

from agent_host_sdk import ContextRequest, Prompt, Section, context_builder

# Text of a section of the prompt. The text is the same in every turn, so that providers can cache the prompt.
ANSWERING = "Answer in plain words and in at most five sentences, unless more is asked for."


@context_builder
def build(request: ContextRequest) -> Prompt:
    prompt = Prompt().section(Section.fixed("answering", ANSWERING))
    if request.scope.user:
        prompt = prompt.section(Section.dynamic("reader", f"You write for {request.scope.user}."))
    return prompt
