"""A media policy: it decides which images and files are sent to the provider. The classes implement the world in `wit/`."""

from logic import replacement
from wit_world import exports
from wit_world.exports import media_policy as policy


class MediaPolicy(exports.MediaPolicy):
    def decide(self, request: policy.Request) -> list[policy.Decision]:
        """Returns one decision for each item, in the same order. A decision does not change the stored media."""
        return [self.decide_one(item) for item in request.items]

    def decide_one(self, item: policy.Item) -> policy.Decision:
        text = replacement(item.media.name, item.media.mime_type, item.seen_count)
        return policy.Decision_Keep() if text is None else policy.Decision_Mask(text)
