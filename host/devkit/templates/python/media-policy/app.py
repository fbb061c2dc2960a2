"""A media policy: it decides which images and files of the conversation are sent to the provider."""

from agent_host_sdk import Decision, Item, media_policy


@media_policy
def decide(item: Item) -> Decision:
    """Decides about one media item. A decision does not change the stored media."""
    if item.seen_count == 0:
        return Decision.keep()
    return Decision.mask(f"[{item.media.name or 'a file'}, {item.media.mime_type}: seen before]")
