//! Tests of the costs, with examples from Anthropic's guides, and of the decisions (P4).

use agent_host_sdk::media_policy::{Decision, Item, MediaPolicy, Position, Request};
use agent_host_sdk::testing;
use agent_host_sdk::types::{Dimensions, Media, Model, Role};
use mask_anthropic::MaskAnthropic;
use mask_anthropic::cost::{NEWEST, Resolution, STANDARD_RESOLUTION, patches, resolution_of, within};

const HIGH: &str = "claude-opus-5";
const STANDARD: &str = "claude-haiku-4-5";

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

fn pdf(bytes: u64) -> Media {
    media_of_type("application/pdf", bytes, None)
}

fn item(media: Media, seen_count: u32) -> Item {
    let position = Position { message: 0, part: 0, item: None };
    Item { position, role: Role::User, seen_count, media, masked: false }
}

fn new_items(count: usize, media: &Media) -> Vec<Item> {
    (0..count).map(|_| item(media.clone(), 0)).collect()
}

fn decide_for(model: &str, window: u32, items: Vec<Item>) -> Vec<Decision> {
    let model = Model { provider: "anthropic".to_owned(), name: model.to_owned(), window };
    let count = items.len();
    let request = Request { scope: testing::scope(), model, messages: 1, items };
    let decisions = MaskAnthropic::decide(request).expect("the policy never fails");
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
    decision_letters(&decide_for(HIGH, 1_000_000, items))
}

fn sides(size: Dimensions) -> (u32, u32) {
    (size.width, size.height)
}

#[test]
fn costs_match_the_guide() {
    for (dimensions, standard, high) in [
        (size(200, 200), 64, 64),
        (size(1_000, 1_000), 1_296, 1_296),
        (size(1_092, 1_092), 1_521, 1_521),
        (size(1_920, 1_080), 1_560, 2_691),
        (size(2_000, 1_500), 1_564, 3_888),
        (size(3_840, 2_160), 1_560, 4_784),
    ] {
        assert_eq!(patches(within(STANDARD_RESOLUTION, dimensions)), standard, "{dimensions:?}");
        assert_eq!(patches(within(NEWEST, dimensions)), high, "{dimensions:?}");
    }
}

#[test]
fn reduces_images_to_the_size_that_the_model_sees() {
    for (resolution, dimensions, expected) in [
        (STANDARD_RESOLUTION, size(1_920, 1_080), (1_456, 819)),
        // The table in the vision guide contains 1269×952 pixels, which contradicts the rule in the coordinates guide.
        (STANDARD_RESOLUTION, size(2_000, 1_500), (1_270, 952)),
        (STANDARD_RESOLUTION, size(1_075, 1_520), (924, 1_307)),
        (NEWEST, size(1_075, 1_520), (1_075, 1_520)),
        (NEWEST, size(3_840, 2_160), (2_576, 1_449)),
        (NEWEST, size(2_160, 3_840), (1_449, 2_576)),
        (NEWEST, size(2_577, 100), (2_576, 100)),
        (STANDARD_RESOLUTION, size(1_568, 28), (1_568, 28)),
        (STANDARD_RESOLUTION, size(0, 0), (1, 1)),
    ] {
        assert_eq!(sides(within(resolution, dimensions)), expected, "{resolution:?} {dimensions:?}");
    }
}

#[test]
fn the_resolution_depends_on_the_version() {
    for model in [
        "claude-3-5-sonnet-20241022",
        "claude-3-haiku-20240307",
        "claude-sonnet-4-20250514",
        "claude-opus-4-1@20250805",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "claude-haiku-4-5",
        "claude-opus-4-6",
        "anthropic/claude-sonnet-4.6",
    ] {
        assert_eq!(resolution_of(model), STANDARD_RESOLUTION, "{model}");
    }
    for model in [
        "claude-opus-4-7",
        "anthropic/claude-opus-4.8",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "claude-fable-5",
        "anthropic.claude-haiku-5-5",
        "claude-opus-10-1",
        "claude-mythos-preview",
        "something",
        "",
    ] {
        assert_eq!(resolution_of(model), NEWEST, "{model}");
    }
}

#[test]
fn every_size_has_a_valid_cost() {
    let lengths = [0, 1, 27, 28, 29, 1_567, 1_568, 1_569, 2_576, 2_577, 8_000, 1_000_000, u32::MAX];
    for resolution in [STANDARD_RESOLUTION, NEWEST] {
        for width in lengths {
            for height in lengths {
                let seen = within(resolution, size(width, height));
                let Resolution { max_side, max_patches } = resolution;
                assert!((1..=u64::from(max_patches)).contains(&patches(seen)), "{width}×{height}");
                assert!(seen.width.max(seen.height) <= max_side, "{width}×{height}");
                assert_eq!(sides(within(resolution, seen)), sides(seen), "{width}×{height}");
            }
        }
    }
}

#[test]
fn p4_masks_seen_media_with_a_high_cost() {
    assert_eq!(decide(vec![item(image(1_000, 1_000), 1), item(image(1_000, 1_000), 0)]), "mk");
    assert_eq!(decide(vec![item(pdf(1_000), 3), item(pdf(1_000), 0)]), "mk");
    assert_eq!(decide(vec![item(image(280, 280), 5), item(image(281, 280), 5)]), "km", "100 and 110 tokens");
}

#[test]
fn p4_masked_media_stay_masked_with_the_same_text() {
    let first = decide_for(STANDARD, 200_000, vec![item(image(640, 480), 1)]);
    let mut again = item(image(640, 480), 0);
    again.masked = true;
    assert_eq!(decide_for(HIGH, 1_000_000, vec![again]), first);
    let expected =
        format!("[a.bin (image/png, 640×480 pixels) was shown earlier or did not fit; sha256:{}]", "0".repeat(64));
    assert_eq!(first, [Decision::Mask(expected)]);
}

#[test]
fn masks_other_types_and_large_files() {
    let text = |media: Media| match &decide_for(HIGH, 1_000_000, vec![item(media, 0)])[0] {
        Decision::Mask(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    for mime_type in ["image/svg+xml", "image/heic", "audio/wav", "video/mp4", "text/plain", "application/octet-stream"]
    {
        assert!(text(media_of_type(mime_type, 10, None)).contains("cannot be shown to this model"), "{mime_type}");
    }
    for mime_type in ["image/png", "image/jpeg", "image/webp", "image/gif"] {
        assert_eq!(decide(vec![item(media_of_type(mime_type, 10, Some(size(10, 10))), 0)]), "k", "{mime_type}");
    }
    assert!(text(pdf(22_500_001)).contains("too large"));
    assert_eq!(decide(vec![item(pdf(22_500_000), 0)]), "k", "30 MB in base64");
}

#[test]
fn limits_the_size_of_an_image() {
    let one =
        |bytes, dimensions| decide_for(HIGH, 1_000_000, vec![item(media_of_type("image/png", bytes, dimensions), 0)]);
    assert_eq!(one(7_500_000, Some(size(2_000, 1_000))), [Decision::Keep], "10 MB in base64");
    // Five bytes for each pixel of the scaled image are less than the limit.
    assert_eq!(one(7_500_001, Some(size(2_000, 1_000))), [Decision::downscale(1_732, 866)]);
    assert_eq!(one(20_000_000, Some(size(4_000, 3_000))), [Decision::downscale(1_414, 1_060)]);
    assert_eq!(decision_letters(&one(7_500_001, Some(size(100, 100)))), "m", "scaling does not make it smaller");
    assert_eq!(decision_letters(&one(7_500_001, None)), "m", "the size is unknown");
    assert_eq!(one(7_500_000, None), [Decision::downscale(2_576, 2_576)]);
}

#[test]
fn limits_the_number_of_images_by_the_window() {
    let kept = |window, count| {
        let letters = decision_letters(&decide_for(STANDARD, window, new_items(count, &image(28, 28))));
        (letters.matches('m').count(), letters.starts_with('m'))
    };
    assert_eq!(kept(200_000, 100), (0, false));
    assert_eq!(kept(200_000, 101), (1, true), "the oldest image is masked");
    assert_eq!(kept(999_999, 101), (1, true));
    assert_eq!(kept(1_000_000, 600), (0, false));
    assert_eq!(kept(1_000_000, 601), (1, true));
}

#[test]
fn many_images_have_at_most_2000_pixels_on_a_side() {
    let wide = image(2_500, 300);
    assert_eq!(decide(new_items(20, &wide)), "k".repeat(20));
    let expected = vec![Decision::downscale(2_000, 240); 21];
    assert_eq!(decide_for(HIGH, 1_000_000, new_items(21, &wide)), expected);
    assert_eq!(decide(new_items(21, &image(2_000, 300))), "k".repeat(21));
    let mut with_documents = new_items(20, &pdf(1_000));
    with_documents.push(item(wide.clone(), 0));
    assert_eq!(decide(with_documents), format!("{}d", "k".repeat(20)), "documents count on some platforms");
    let mut with_masked = new_items(20, &media_of_type("audio/wav", 10, None));
    with_masked.push(item(wide, 0));
    assert_eq!(decide(with_masked), format!("{}k", "m".repeat(20)), "masked media do not count");
}

#[test]
fn p4_cheap_images_have_the_same_size_in_requests_with_many_images() {
    let request = |others| {
        let mut items = vec![item(image(2_500, 20), 1)];
        items.extend(new_items(others, &image(100, 100)));
        decide_for(HIGH, 1_000_000, items).remove(0)
    };
    assert_eq!(request(1), Decision::downscale(2_000, 16));
    assert_eq!(request(30), request(1));
}

#[test]
fn limits_the_payload_and_the_cost() {
    let heavy = media_of_type("image/png", 7_500_000, Some(size(100, 100)));
    assert_eq!(decide(new_items(4, &heavy)), "mkkk", "three of 10 MB in base64 are 30 MB");
    let costly = decision_letters(&decide_for(STANDARD, 8_000, new_items(4, &image(756, 756))));
    assert_eq!(costly, "mmkk", "2,000 tokens are enough for two images of 729 tokens");
    assert_eq!(decide(vec![item(pdf(20_000_000), 0), item(pdf(1_000), 0), item(pdf(20_000_000), 0)]), "mkk");
}

#[test]
fn downscales_images_over_the_limit() {
    let one = |model, window, width, height| decide_for(model, window, vec![item(image(width, height), 0)]).remove(0);
    assert_eq!(one(STANDARD, 200_000, 1_920, 1_080), Decision::downscale(1_456, 819));
    assert_eq!(one(HIGH, 1_000_000, 1_920, 1_080), Decision::Keep);
    assert_eq!(one(HIGH, 1_000_000, 9_000, 9_000), Decision::downscale(1_932, 1_932));
    assert_eq!(
        one(STANDARD, 4_000, 1_000, 1_000),
        Decision::downscale(768, 768),
        "the only image is scaled down to fit"
    );
    assert_eq!(decision_letters(&[one(STANDARD, 360, 1_000, 1_000)]), "m", "256×256 pixels cost 100 tokens");
    assert_eq!(one(STANDARD, 400, 1_000, 1_000), Decision::downscale(256, 256));
    let unknown = decide_for(HIGH, 8_000, vec![item(media_of_type("image/png", 1, None), 0)]);
    assert_eq!(decision_letters(&unknown), "m", "the cost of an image of unknown size cannot be reduced");
}

#[test]
fn decides_requests_without_media_and_without_window() {
    assert_eq!(decide(Vec::new()), "");
    assert_eq!(decision_letters(&decide_for(HIGH, 0, vec![item(image(10, 10), 0)])), "m");
}

/// Media are added over several steps of a session. A masked item stays masked with the same text, and a kept item that
/// the model has seen is sent in the same size until it is masked.
#[test]
fn p4_masking_is_monotonic_over_a_session() {
    let mut state = 7_u32;
    let mut random = move |limit: u32| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 16) % limit
    };
    for model in [STANDARD, HIGH] {
        let (mut items, mut before): (Vec<Item>, Vec<Decision>) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            for _ in 0..random(12) {
                let media = match random(8) {
                    0 => pdf(u64::from(random(30_000_000))),
                    1 => media_of_type("audio/wav", 10, None),
                    2 | 3 => image(1 + random(5_000), 1 + random(5_000)),
                    _ => image(1 + random(3_000), 1 + random(60)),
                };
                items.push(item(media, 0));
            }
            let decisions = decide_for(model, 200_000, items.clone());
            for (index, old) in before.iter().enumerate() {
                let stays_masked = !matches!(old, Decision::Mask(_)) || decisions[index] == *old;
                assert!(stays_masked, "{model}: {:?}", items[index]);
                let was_seen = items[index].seen_count > 1 && !matches!(decisions[index], Decision::Mask(_));
                assert!(!was_seen || decisions[index] == *old, "{model}: {old:?} {:?}", decisions[index]);
            }
            for (item, decision) in items.iter_mut().zip(&decisions) {
                item.masked = matches!(decision, Decision::Mask(_));
                item.seen_count += 1;
            }
            before = decisions;
        }
        assert!(before.iter().any(|decision| !matches!(decision, Decision::Mask(_))), "cheap images stay");
    }
}
