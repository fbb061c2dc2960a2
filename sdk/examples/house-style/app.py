"""A context builder: it adds sections to the prompt at the start of a turn, and before each call of the model."""

from agent_host_sdk import ContextRequest, Prompt, Section, StepRequest, context_builder, step_context


@context_builder
def build(request: ContextRequest) -> Prompt:
    user = request.scope.user or "somebody"
    return (
        # The host passes the state to each step of the turn.
        Prompt(state=user.encode())
        # The text is the same in every turn, so that providers can cache the prompt.
        .section(Section.fixed("answering", "Answer in at most five sentences."))
        .section(Section.dynamic("reader", f"You write for {user}. This is turn {request.scope.turn}."))
    )


@step_context
def step(request: StepRequest) -> list[Section]:
    if request.steps_left > 1:
        return []
    return [Section.dynamic("end", f"This is the last step: answer {request.state.decode()} now.")]
