//! Tests of the costs, with examples from Google's guides, and of the decisions (P4).

use agent_host_sdk::media_policy::{Decision, Item, MediaPolicy, Position, Request};
use agent_host_sdk::testing;
use agent_host_sdk::types::{Dimensions, Media, Model, Role};
use mask_gemini::MaskGemini;
use mask_gemini::cost::{Rule, rule_of, tokens, within};

const TILED: &str = "gemini-2.5-flash";
const FIXED: &str = "gemini-3.8-flash";

fn size(width: u32, height: u32) -> Dimensions {
    Dimensions { width, height }
}

fn media_of_type(mime_type: &str, bytes: u64, dimensions: Option<Dimensions>) -> Media {
    let digest = format!("sha256:{}", "0".repeat(64));
    Media { digest, mime_type: mime_type.to_owned(), size: bytes, dimensions, name: Some("a.bin".to_owned()) }
}

fn image(width: u32, height: u32) -> Media {
    media_of_type("image/png", 10_000, Some(size(width, height)))
}

fn file(mime_type: &str, bytes: u64) -> Media {
    media_of_type(mime_type, bytes, None)
}

fn item(media: Media, seen_count: u32) -> Item {
    let position = Position { message: 0, part: 0, item: None };
    Item { position, role: Role::User, seen_count, media, masked: false }
}

fn new_items(count: usize, media: &Media) -> Vec<Item> {
    (0..count).map(|_| item(media.clone(), 0)).collect()
}

fn decide_for(model: &str, window: u32, items: Vec<Item>) -> Vec<Decision> {
    let model = Model { provider: "gemini".to_owned(), name: model.to_owned(), window };
    let count = items.len();
    let request = Request { scope: testing::scope(), model, messages: 1, items };
    let decisions = MaskGemini::decide(request).expect("the policy never fails");
    assert_eq!(decisions.len(), count, "one decision for each item");
    decisions
}

/// Returns one letter for each decision: `k` for keep, `m` for mask, `d` for downscale.
fn decision_letters(decisions: &[Decision]) -> String {
    let letter = |decision: &Decision| match decision {
        Decision::Keep => 'k',
        Decision::Mask(_) => 'm',
        Decision::Downscale(_) => 'd',
    };
    decisions.iter().map(letter).collect()
}

fn decide(items: Vec<Item>) -> String {
    decision_letters(&decide_for(FIXED, 1_048_576, items))
}

#[test]
fn costs_match_the_guide() {
    for (dimensions, tiles) in [
        (size(1, 1), 1),
        (size(384, 384), 1),
        (size(385, 384), 4),
        (size(960, 540), 6),
        (size(540, 960), 6),
        (size(1_000, 1_000), 4),
        (size(1_152, 1_152), 4),
        (size(3_072, 3_072), 16),
        (size(9_000, 9_000), 16),
        (size(3_072, 100), 12),
    ] {
        assert_eq!(tokens(Rule::Tiles, dimensions), 258 * tiles, "{dimensions:?}");
        assert_eq!(tokens(Rule::Fixed, dimensions), 1_120, "{dimensions:?}");
    }
}

#[test]
fn the_rule_depends_on_the_version() {
    for model in ["gemini-2.5-pro", "models/gemini-2.0-flash-001", "gemini-1.5-flash", "google/gemini-2.5-flash-lite"] {
        assert_eq!(rule_of(model), Rule::Tiles, "{model}");
    }
    for model in ["gemini-3-pro-preview", "google/gemini-3.8-flash", "gemini-4", "gemini-flash-latest", "other", ""] {
        assert_eq!(rule_of(model), Rule::Fixed, "{model}");
    }
}

#[test]
fn every_size_has_a_valid_cost() {
    let lengths = [0, 1, 255, 256, 383, 384, 385, 768, 1_152, 3_071, 3_072, 3_073, 1_000_000, u32::MAX];
    for width in lengths {
        for height in lengths {
            let cost = tokens(Rule::Tiles, size(width, height));
            assert!((258..=258 * 24).contains(&cost), "{width}×{height}: {cost}");
            let seen = within(size(width, height));
            let again = within(seen);
            assert!(again.width == seen.width && again.height == seen.height, "{width}×{height}");
            assert!(seen.width.max(seen.height) <= 3_072, "{width}×{height}");
        }
    }
}

#[test]
fn p4_masks_all_media_that_the_model_has_seen() {
    for media in [image(1, 1), image(500, 500), file("application/pdf", 9), file("audio/wav", 9), file("video/mp4", 9)]
    {
        for model in [TILED, FIXED] {
            let decisions = decide_for(model, 1_048_576, vec![item(media.clone(), 1), item(media.clone(), 0)]);
            assert_eq!(decision_letters(&decisions), "mk", "{model}: {}", media.mime_type);
        }
    }
}

#[test]
fn p4_masked_media_stay_masked_with_the_same_text() {
    let first = decide_for(TILED, 1_048_576, vec![item(image(640, 480), 1)]);
    let mut again = item(image(640, 480), 0);
    again.masked = true;
    assert_eq!(decide_for(FIXED, 1_048_576, vec![again]), first);
    let expected =
        format!("[a.bin (image/png, 640×480 pixels) was shown earlier or did not fit; sha256:{}]", "0".repeat(64));
    assert_eq!(first, [Decision::Mask(expected)]);
}

#[test]
fn masks_other_types_and_large_files() {
    let text = |media: Media| match &decide_for(FIXED, 1_048_576, vec![item(media, 0)])[0] {
        Decision::Mask(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    for mime_type in ["image/gif", "image/svg+xml", "image/tiff", "text/plain", "audio/midi", "video/avi"] {
        assert!(text(file(mime_type, 10)).contains("cannot be shown to this model"), "{mime_type}");
    }
    for mime_type in ["image/png", "image/heic", "application/pdf", "audio/mpeg", "audio/flac", "video/quicktime"] {
        assert_eq!(decide(vec![item(file(mime_type, 10), 0)]), "k", "{mime_type}");
    }
    for (mime_type, limit) in [("application/pdf", 37_500_000), ("audio/wav", 45_000_000), ("video/mp4", 45_000_000)] {
        assert_eq!(decide(vec![item(file(mime_type, limit), 0)]), "k", "{mime_type}");
        assert!(text(file(mime_type, limit + 1)).contains("too large"), "{mime_type}");
    }
}

#[test]
fn limits_the_number_of_images_and_videos() {
    let kept = |model, count, media: &Media| {
        let letters = decision_letters(&decide_for(model, u32::MAX, new_items(count, media)));
        (letters.matches('m').count(), letters.starts_with('m'))
    };
    assert_eq!(kept(FIXED, 3_000, &image(10, 10)), (0, false));
    assert_eq!(kept(FIXED, 3_001, &image(10, 10)), (1, true), "the oldest image is masked");
    assert_eq!(kept(FIXED, 10, &file("video/mp4", 10)), (0, false));
    assert_eq!(kept(FIXED, 11, &file("video/mp4", 10)), (1, true));
    assert_eq!(kept(TILED, 10, &file("video/mp4", 10)), (0, false));
    assert_eq!(kept("gemini-2.0-flash", 2, &file("video/mp4", 10)), (1, true));
    assert_eq!(kept(FIXED, 5_000, &file("audio/wav", 10)), (0, false));
}

#[test]
fn limits_the_payload_and_the_cost() {
    assert_eq!(decide(new_items(4, &file("audio/wav", 15_000_000))), "mkkk", "three of 20 MB in base64 are 60 MB");
    let mixed = [file("video/mp4", 1_000), file("video/mp4", 30_000_000), file("application/pdf", 30_000_000)];
    assert_eq!(decide(mixed.map(|media| item(media, 0)).into()), "kmk", "an older item that fits is kept");
    let costly = decision_letters(&decide_for(FIXED, 8_960, new_items(3, &image(100, 100))));
    assert_eq!(costly, "mkk", "2,240 tokens are enough for two images of 1,120 tokens");
    assert_eq!(decision_letters(&decide_for(FIXED, 8_959, new_items(3, &image(100, 100)))), "mmk");
}

#[test]
fn downscales_images_over_the_limit() {
    let one = |model, window, media| decide_for(model, window, vec![item(media, 0)]).remove(0);
    assert_eq!(one(FIXED, 1_048_576, image(3_072, 3_072)), Decision::Keep);
    assert_eq!(one(FIXED, 1_048_576, image(6_144, 3_072)), Decision::downscale(3_072, 1_536));
    assert_eq!(one(TILED, 4_200, image(3_000, 3_000)), Decision::downscale(1_536, 1_536), "4 tiles cost 1,032 tokens");
    assert_eq!(one(TILED, 1_040, image(3_000, 3_000)), Decision::downscale(256, 256), "1 tile costs 258 tokens");
    assert_eq!(decision_letters(&[one(TILED, 1_028, image(10, 10))]), "m", "257 tokens are too few");
    assert_eq!(decision_letters(&[one(FIXED, 4_479, image(10, 10))]), "m", "a smaller image does not cost less");
}

/// The host can scale neither HEIC images nor images of unknown size.
#[test]
fn keeps_large_images_that_the_host_cannot_scale() {
    let heic = |side| media_of_type("image/heic", 1_000, Some(size(side, side)));
    for media in [heic(4_032), media_of_type("image/heif", 1_000, None), media_of_type("image/png", 1_000, None)] {
        assert_eq!(decide(vec![item(media, 0)]), "k");
    }
    assert_eq!(decision_letters(&decide_for(TILED, 4_200, vec![item(heic(3_000), 0)])), "m", "it costs too much");
}

#[test]
fn decides_requests_without_media_and_without_window() {
    assert_eq!(decide(Vec::new()), "");
    assert_eq!(decision_letters(&decide_for(FIXED, 0, vec![item(image(10, 10), 0)])), "m");
}

/// Media are added over several steps of a session. A masked item stays masked with the same text.
#[test]
fn p4_masking_is_monotonic_over_a_session() {
    let mut state = 7_u32;
    let mut random = move |limit: u32| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 16) % limit
    };
    let types = ["application/pdf", "audio/wav", "video/mp4", "image/gif", "image/heic"];
    for model in [TILED, FIXED] {
        let (mut items, mut before): (Vec<Item>, Vec<Decision>) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            for _ in 0..random(12) {
                let media = match types.get(random(10) as usize) {
                    Some(mime_type) => file(mime_type, u64::from(random(60_000)) * 1_000),
                    None => image(1 + random(5_000), 1 + random(5_000)),
                };
                items.push(item(media, 0));
            }
            let decisions = decide_for(model, 32_768, items.clone());
            for (old, new) in before.iter().zip(&decisions) {
                assert!(!matches!(old, Decision::Mask(_)) || old == new, "{model}: {old:?} {new:?}");
            }
            for (item, decision) in items.iter_mut().zip(&decisions) {
                item.masked = matches!(decision, Decision::Mask(_));
                item.seen_count += 1;
            }
            before = decisions;
        }
    }
}
