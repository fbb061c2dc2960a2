"""A context builder: it adds sections to the prompt at the start of a turn. The classes implement the world in `wit/`."""

from logic import ANSWERING, sections
from wit_world import exports
from wit_world.exports import context_builder as builder


class ContextBuilder(exports.ContextBuilder):
    def init(self, request: builder.Request) -> builder.Prompt:
        system = []
        for name, text in sections(request.scope.user):
            stability = builder.Stability.FIXED if text == ANSWERING else builder.Stability.DYNAMIC
            system.append(builder.Section(name, text, stability))
        return builder.Prompt(system, builder.History.KEEP, [], None)
