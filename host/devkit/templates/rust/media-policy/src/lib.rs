//! A media policy: it decides which images and files of the conversation are sent to the provider.

use agent_host_sdk::media_policy::{Decision, Item, MediaPolicy, Request};
use agent_host_sdk::types::Failure;

/// The type that implements the media policy.
pub struct Plugin;

impl MediaPolicy for Plugin {
    /// Returns one decision for each item, in the order of the items. A decision does not change the stored media.
    fn decide(request: Request) -> Result<Vec<Decision>, Failure> {
        Ok(request.items.iter().map(decide).collect())
    }
}

agent_host_sdk::export_media_policy!(Plugin);

fn decide(item: &Item) -> Decision {
    if item.seen_count == 0 {
        return Decision::Keep;
    }
    let name = item.media.name.as_deref().unwrap_or("a file");
    Decision::mask(format!("[{name}, {}: seen before]", item.media.mime_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_host_sdk::media_policy::Position;
    use agent_host_sdk::testing;
    use agent_host_sdk::types::{Media, Role};

    fn item(seen_count: u32) -> Item {
        let digest = format!("sha256:{}", "0".repeat(64));
        let (mime_type, name) = ("image/png".to_owned(), Some("chart.png".to_owned()));
        let media = Media { digest, mime_type, size: 1000, dimensions: None, name };
        Item { position: Position { message: 0, part: 0, item: None }, role: Role::User, seen_count, media, masked: false }
    }

    #[test]
    fn replaces_seen_media_by_a_line_of_text() {
        let request =
            Request { scope: testing::scope(), model: testing::model(), messages: 1, items: vec![item(0), item(1)] };
        let decisions = Plugin::decide(request).expect("this plugin never fails");
        assert!(matches!(&decisions[..], [Decision::Keep, Decision::Mask(text)] if text.contains("chart.png")));
    }
}
