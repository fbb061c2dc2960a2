//! Tests of the comparison of prompts: blocks, differences, and the part that a cache can reuse.

use super::*;
use agent_core::message::{Message, Role};
use agent_core::model::{ModelRequest, OfferedTool};
use agent_core::run::Mask;
use serde_json::json;

fn request(step: u32, system: &[&str], messages: &[(MessageId, &str)]) -> SentRequest {
    let model = Model { provider: "p".to_owned(), name: "m".to_owned(), window: 1_000 };
    let tool = OfferedTool {
        name: "count".to_owned(),
        author_name: "text.count".to_owned(),
        description: "Counts.".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let request = ModelRequest {
        model,
        lifecycle: Lifecycle::Init,
        system: system.iter().map(|&text| text.to_owned()).collect(),
        messages: messages.iter().map(|(_, text)| Message::text(Role::User, *text)).collect(),
        downscaled: Vec::new(),
        tools: vec![tool],
        output_schema: None,
        max_tokens: 1,
    };
    let stored_messages = messages.iter().map(|(id, _)| *id).filter(|id| *id > 0).collect();
    SentRequest { turn: 1, step, request, body: None, stored_messages, masked: Vec::new() }
}

const ALL: BlockPage = BlockPage { first: 0, limit: 100 };

fn shown(view: &PromptView) -> Vec<(&str, &BlockChange, Reuse)> {
    view.blocks.iter().map(|block| (block.block.title.as_str(), &block.change, block.reuse)).collect()
}

/// D1: a prompt that only grows is reused as a whole, and only its new messages are added.
#[test]
fn d1_a_growing_prompt_is_reused() {
    let before = request(1, &["# Role\nYou count."], &[(1, "one")]);
    let now = request(2, &["# Role\nYou count."], &[(1, "one"), (2, "two")]);
    let view = compare(now, Some(before), ALL);
    let expected = [
        ("count", &BlockChange::Same, Reuse::Whole),
        ("Role", &BlockChange::Same, Reuse::Whole),
        ("user 1", &BlockChange::Same, Reuse::Whole),
        ("user 2", &BlockChange::Added, Reuse::None),
    ];
    assert_eq!(shown(&view), expected);
    assert_eq!((view.previous, view.removed_count), (Some((1, 1)), 0));
    assert_eq!(view.size.characters - view.reused.characters, 3);
    assert_eq!(view.size.tokens - view.reused.tokens, u64::from(view.blocks[3].block.tokens));
}

/// D1: after the first difference, nothing is reused, although later blocks are equal. Evicted messages are listed.
#[test]
fn d1_nothing_is_reused_after_the_first_difference() {
    let before = request(1, &["# Rule\nbe kind", "# Time\nnoon"], &[(1, "one"), (2, "two")]);
    let now = request(2, &["# Rule\nbe short", "# Time\nnoon"], &[(2, "two"), (0, "go on")]);
    let view = compare(now, Some(before), ALL);
    let diff = "--- previous prompt\n+++ this prompt\n@@ -1,2 +1,2 @@\n # Rule\n-be kind\n+be short\n";
    let expected = [
        ("count", &BlockChange::Same, Reuse::Whole),
        ("Rule", &BlockChange::Changed(diff.to_owned()), Reuse::Beginning(10)),
        ("Time", &BlockChange::Same, Reuse::None),
        ("user 2", &BlockChange::Same, Reuse::None),
        ("user, added by the host", &BlockChange::Added, Reuse::None),
    ];
    assert_eq!(shown(&view), expected);
    let removed: Vec<_> = view.removed.iter().map(|block| (block.title.as_str(), block.message)).collect();
    assert_eq!(removed, [("user 1", Some(1))]);
}

/// D1: another model has another cache. The first prompt of a session has no previous prompt.
#[test]
fn d1_another_model_reuses_nothing() {
    let mut before = request(1, &["a"], &[(1, "one")]);
    before.request.model.name = "other".to_owned();
    let view = compare(request(2, &["a"], &[(1, "one")]), Some(before), ALL);
    assert_eq!((view.reused, view.blocks[2].change.clone()), (Size::default(), BlockChange::Same));
    let first = compare(request(1, &["a"], &[(1, "one")]), None, ALL);
    assert_eq!((first.previous, first.reused, first.blocks.len()), (None, Size::default(), 3));
    assert!(first.blocks.iter().all(|block| block.change == BlockChange::Added));
}

/// P4: the texts that replace the media of a message are listed with the message.
#[test]
fn p4_masks_belong_to_their_message() {
    let mut sent = request(1, &[], &[(4, "one"), (5, "two")]);
    sent.masked = vec![Mask { message: 5, part: 0, item: None, text: "a chart".to_owned() }];
    let view = compare(sent, None, ALL);
    let masks: Vec<_> = view.blocks.iter().map(|block| block.block.masks.len()).collect();
    assert_eq!(masks, [0, 0, 1]);
}

/// D1: a page contains only the selected blocks, but the sizes are those of the whole prompt.
#[test]
fn d1_blocks_are_returned_in_pages() {
    let sent = || request(1, &["a"], &[(1, "one"), (2, "two")]);
    let whole = compare(sent(), None, ALL);
    let page = compare(sent(), None, BlockPage { first: 2, limit: 1 });
    assert_eq!(page.blocks, whole.blocks[2..3]);
    assert_eq!((page.size, page.block_count), (whole.size, 4));
    assert!(compare(sent(), None, BlockPage { first: 9, limit: 1 }).blocks.is_empty());
}
