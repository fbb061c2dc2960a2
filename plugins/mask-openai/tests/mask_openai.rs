//! Tests of the costs, with examples from OpenAI's guide, and of the decisions (P4).

use agent_host_sdk::media_policy::{Decision, Item, MediaPolicy, Position, Request};
use agent_host_sdk::testing;
use agent_host_sdk::types::{Dimensions, Media, Model, Role};
use mask_openai::MaskOpenAi;
use mask_openai::cost::{NEWEST, rule_of, tokens, within};

fn size(width: u32, height: u32) -> Dimensions {
    Dimensions { width, height }
}

fn media_of_type(mime_type: &str, bytes: u64, dimensions: Option<Dimensions>) -> Media {
    let digest = format!("sha256:{}", "0".repeat(64));
    Media { digest, mime_type: mime_type.to_owned(), size: bytes, dimensions, name: Some("a.bin".to_owned()) }
}

fn image(width: u32, height: u32) -> Media {
    media_of_type("image/png", 100_000, Some(size(width, height)))
}

fn pdf(bytes: u64) -> Media {
    media_of_type("application/pdf", bytes, None)
}

fn item(media: Media, seen_count: u32) -> Item {
    let position = Position { message: 0, part: 0, item: None };
    Item { position, role: Role::User, seen_count, media, masked: false }
}

fn decide_for(model: &str, window: u32, items: Vec<Item>) -> Vec<Decision> {
    let model = Model { provider: "openai".to_owned(), name: model.to_owned(), window };
    let count = items.len();
    let request = Request { scope: testing::scope(), model, messages: 1, items };
    let decisions = MaskOpenAi::decide(request).expect("the policy never fails");
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
    decision_letters(&decide_for("gpt-4o", 128_000, items))
}

#[test]
fn costs_match_the_guide() {
    for (model, dimensions, expected) in [
        ("gpt-4o", size(1_024, 1_024), 765),
        ("gpt-4o-2024-08-06", size(2_048, 4_096), 1_105),
        ("gpt-4o", size(128, 64), 255),
        ("gpt-4o-mini", size(512, 512), 8_500),
        ("gpt-5", size(1_024, 1_024), 630),
        ("o1-pro", size(1_024, 1_024), 675),
        ("o4-mini", size(32, 32), 2),
        ("gpt-5-mini", size(1_024, 1_024), 1_659),
        ("gpt-4.1-mini-2025-04-14", size(1_800, 2_400), 2_353),
        ("gpt-4.1-nano", size(1_800, 2_400), 3_572),
        ("gpt-4.1", size(1_024, 1_024), 765),
        ("openai/gpt-5.5", size(1_920, 1_080), 2_448),
        ("gpt-5.6-luna", size(3_840, 2_160), 9_792),
        ("gpt-7", size(1_024, 1_024), 1_229),
    ] {
        assert_eq!(tokens(rule_of(model), dimensions), expected, "{model} {dimensions:?}");
    }
}

#[test]
fn unknown_models_get_the_newest_rule() {
    for model in ["gpt-6", "gpt-5.7-mini", "gpt-4oo", "o33", "", "something"] {
        assert_eq!(rule_of(model), NEWEST, "{model}");
    }
    assert_ne!(rule_of("gpt-5-mini"), rule_of("gpt-5"));
}

#[test]
fn reduces_images_to_the_size_that_the_model_sees() {
    for (model, dimensions, expected) in [
        ("gpt-5-mini", size(1_800, 2_400), size(1_056, 1_408)),
        ("gpt-5-mini", size(1_000, 1_000), size(1_000, 1_000)),
        ("gpt-4o", size(4_096, 2_048), size(2_048, 1_024)),
        ("gpt-5.4", size(4_096, 64), size(2_048, 32)),
    ] {
        let seen = within(rule_of(model), dimensions);
        assert_eq!((seen.width, seen.height), (expected.width, expected.height), "{model} {dimensions:?}");
    }
}

#[test]
fn every_size_has_a_valid_cost() {
    let sides = [0, 1, 31, 32, 33, 511, 512, 513, 2_048, 10_000, 65_535, 1_000_000, u32::MAX];
    for model in ["gpt-4o", "gpt-5-mini", "gpt-5.4", "gpt-5.5", "gpt-5.6"] {
        let rule = rule_of(model);
        for width in sides {
            for height in sides {
                let cost = tokens(rule, size(width, height));
                assert!((1..=45_336).contains(&cost), "{model} {width}×{height}: {cost}");
                let seen = within(rule, size(width, height));
                let again = within(rule, seen);
                assert!(again.width == seen.width && again.height == seen.height, "{model} {width}×{height}");
            }
        }
    }
}

#[test]
fn p4_masks_seen_media_with_a_high_cost() {
    assert_eq!(decide(vec![item(image(1_024, 1_024), 1), item(image(1_024, 1_024), 0)]), "mk");
    assert_eq!(decide(vec![item(pdf(1_000), 3), item(pdf(1_000), 0)]), "mk");
    let icon = || vec![item(image(64, 64), 5)];
    assert_eq!(decision_letters(&decide_for("gpt-5-mini", 128_000, icon())), "k", "7 tokens");
    assert_eq!(decision_letters(&decide_for("gpt-4o", 128_000, icon())), "m", "255 tokens");
}

#[test]
fn p4_masked_media_stay_masked_with_the_same_text() {
    let first = decide_for("gpt-4o", 128_000, vec![item(image(640, 480), 1)]);
    let mut again = item(image(640, 480), 0);
    again.masked = true;
    assert_eq!(decide_for("gpt-5.6", 1_000_000, vec![again]), first);
    let expected =
        format!("[a.bin (image/png, 640×480 pixels) was shown earlier or did not fit; sha256:{}]", "0".repeat(64));
    assert_eq!(first, [Decision::Mask(expected)]);
}

#[test]
fn masks_other_types_and_large_files() {
    let text = |media: Media| match &decide_for("gpt-4o", 128_000, vec![item(media, 0)])[0] {
        Decision::Mask(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    for mime_type in ["image/svg+xml", "image/tiff", "audio/wav", "video/mp4", "application/octet-stream"] {
        assert!(text(media_of_type(mime_type, 10, None)).contains("cannot be shown to this model"), "{mime_type}");
    }
    assert!(text(pdf(50_000_000)).contains("too large"));
    let mut odd = media_of_type("text/x", 1, None);
    odd.name = Some(format!("a\u{1b}[31m\n{}", "x".repeat(500)));
    assert!(text(odd.clone()).len() < 250 && !text(odd).contains(['\n', '\u{1b}']));
    for mime_type in ["image/png", "image/jpeg", "image/webp", "image/gif"] {
        assert_eq!(decide(vec![item(media_of_type(mime_type, 10, Some(size(10, 10))), 0)]), "k", "{mime_type}");
    }
}

#[test]
fn keeps_the_newest_files_within_the_limits_of_openai_and_the_host() {
    let files = |sizes: &[u64]| decide(sizes.iter().map(|bytes| item(pdf(*bytes), 0)).collect());
    assert_eq!(files(&[20_000_000, 20_000_000, 20_000_000]), "mkk");
    assert_eq!(files(&[45_000_000]), "k", "60 MB in base64");
    assert_eq!(files(&[45_000_001]), "m");
    assert_eq!(files(&[1_000, 30_000_000, 30_000_000]), "kmk", "an older file that fits is kept");
}

#[test]
fn limits_the_number_the_payload_and_the_cost() {
    let many = |count: usize, media: &Media| (0..count).map(|_| item(media.clone(), 0)).collect::<Vec<_>>();
    let small = media_of_type("image/png", 1_000, Some(size(32, 32)));
    let tiny = decision_letters(&decide_for("gpt-5-mini", 400_000, many(1_501, &small)));
    assert_eq!((&tiny[..1], tiny.matches('k').count()), ("m", 1_500), "1,500 images");
    let heavy = media_of_type("image/png", 15_000_000, Some(size(32, 32)));
    let heavy = decision_letters(&decide_for("gpt-5-mini", 400_000, many(4, &heavy)));
    assert_eq!(heavy, "mkkk", "three of 20 MB in base64 are 60 MB");
    let costly = decision_letters(&decide_for("gpt-4o", 8_000, many(4, &image(1_024, 1_024))));
    assert_eq!(costly, "mmkk", "2,000 tokens are enough for two images of 765 tokens");
}

#[test]
fn downscales_images_over_the_limit() {
    let one = |model, window, width, height| decide_for(model, window, vec![item(image(width, height), 0)]).remove(0);
    assert_eq!(one("gpt-4o", 128_000, 4_096, 2_048), Decision::downscale(2_048, 1_024));
    assert_eq!(one("gpt-5-mini", 128_000, 1_800, 2_400), Decision::downscale(1_056, 1_408));
    assert_eq!(one("gpt-4o", 128_000, 2_048, 2_048), Decision::Keep);
    match one("gpt-5.6", 1_000_000, 10_000, 10_000) {
        Decision::Downscale(seen) => assert!(tokens(NEWEST, seen) <= 36_000 && seen.width > 5_000),
        other => panic!("an image that would be rejected is kept: {other:?}"),
    }
    assert_eq!(
        one("gpt-5.6", 8_000, 3_840, 2_160),
        Decision::downscale(1_536, 864),
        "the only image is scaled down to fit"
    );
    assert_eq!(decision_letters(&[one("gpt-4o", 400, 1_024, 1_024)]), "m", "nothing fits into 100 tokens");
    let unknown = decide_for("gpt-5.6", 8_000, vec![item(media_of_type("image/png", 1, None), 0)]);
    assert_eq!(decision_letters(&unknown), "m", "an image of unknown size cannot be scaled down");
}

#[test]
fn decides_requests_without_media_and_without_window() {
    assert_eq!(decide(Vec::new()), "");
    assert_eq!(decision_letters(&decide_for("gpt-4o", 0, vec![item(image(10, 10), 0)])), "m");
}

#[test]
fn p4_decisions_are_stable_and_masked_media_stay_masked() {
    let items = || (0..40).map(|n| item(image(300 + 100 * n, 700), n % 2)).collect::<Vec<_>>();
    let first = decide_for("gpt-4o", 16_000, items());
    assert_eq!(decide_for("gpt-4o", 16_000, items()), first);
    let mut next = items();
    for (item, decision) in next.iter_mut().zip(&first) {
        item.masked = matches!(decision, Decision::Mask(_));
        item.seen_count += 1;
    }
    let second = decide_for("gpt-4o", 16_000, next);
    for (before, after) in first.iter().zip(&second) {
        if matches!(before, Decision::Mask(_)) {
            assert_eq!(before, after);
        }
    }
}
