"""A media policy: what the provider gets to see of pictures and files. The classes are those of the world in `wit/`."""

from logic import line
from wit_world import exports
from wit_world.exports import media_policy as policy


class MediaPolicy(exports.MediaPolicy):
    def decide(self, request: policy.Request) -> list[policy.Decision]:
        """One decision for each item, in the same order. What is stored never changes."""
        return [self.decide_one(item) for item in request.items]

    def decide_one(self, item: policy.Item) -> policy.Decision:
        text = line(item.media.name, item.media.mime_type, item.seen_count)
        return policy.Decision_Keep() if text is None else policy.Decision_Mask(text)
