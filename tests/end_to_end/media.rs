//! Media from end to end (P4): real images, the plugin `image`, the media policies, and the requests to a provider.

use crate::support::{
    TestHost, call_reply, records, results, run_turn, script, text_reply, visible_messages, with_tree_grant,
};
use agent_core::message::{Content, Digest, Media, Message, Part, TurnInput};
use agent_core::model::{Delta, ModelRequest};
use agent_core::run::TurnError;
use agent_models::{MediaBytes, ModelError, ModelInfo, Provider, RawReply, ReplyContext};
use agent_plugins::NewMediaItem;
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// A provider that records each request with the bytes of its media items, and returns the replies of a script.
struct RecordingProvider {
    info: ModelInfo,
    script: Arc<dyn Provider>,
    sent: Mutex<Vec<SentRequest>>,
}

#[derive(Clone)]
struct SentRequest {
    request: ModelRequest,
    media: BTreeMap<Digest, MediaBytes>,
}

#[async_trait::async_trait]
impl Provider for RecordingProvider {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let mut media = BTreeMap::new();
        for media_item in request.messages.iter().flat_map(media_of) {
            let bytes = context.media.read(media_item).await.unwrap_or_else(|error| panic!("{error}"));
            media.insert(media_item.digest.clone(), bytes);
        }
        self.sent.lock().unwrap().push(SentRequest { request: request.clone(), media });
        self.script.reply(request, context, deltas).await
    }
}

impl RecordingProvider {
    /// Creates a provider named `kind/name` that returns the replies of the script `words`.
    fn new(test_host: &TestHost, (kind, name): (&str, &str), words: Value) -> Arc<Self> {
        let file = test_host.directory.path().join(format!("{kind}-{name}.json"));
        std::fs::write(&file, words.to_string()).unwrap();
        let script = agent_models::provider(&format!("scripted:{}", file.display()), test_host.directory.path());
        let script = script.unwrap_or_else(|error| panic!("{error}"));
        let mut info = script.info().clone();
        (info.model.provider, info.model.name) = (kind.to_owned(), name.to_owned());
        Arc::new(Self { info, script, sent: Mutex::default() })
    }

    fn sent(&self) -> Vec<SentRequest> {
        self.sent.lock().unwrap().clone()
    }
}

fn media_of(message: &Message) -> Vec<&Media> {
    message.parts.iter().flat_map(media_in).collect()
}

fn media_in(part: &Part) -> Vec<&Media> {
    match part {
        Part::Media(media) => vec![media],
        Part::ToolResult(result) => {
            let media = result.content.iter().filter_map(|content| match content {
                Content::Media(media) => Some(media),
                _ => None,
            });
            media.collect()
        }
        _ => Vec::new(),
    }
}

fn png(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let noise = RgbImage::from_fn(width, height, |x, y| {
        let mixed = (x * 7 + y * 13 + seed).wrapping_mul(2_654_435_761);
        Rgb([(mixed >> 8) as u8, (mixed >> 16) as u8, x as u8])
    });
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(noise).write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// Creates a PNG of 67 bytes whose header claims 60,000 × 60,000 pixels.
fn image_bomb() -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::new_luma8(1, 1).write_to(&mut bytes, ImageFormat::Png).unwrap();
    let mut bytes = bytes.into_inner();
    bytes[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
    bytes[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
    let sum = !bytes[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    });
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    assert!(bytes.len() < 100);
    bytes
}

async fn agent(test_host: &TestHost, config: AgentConfig, models: Models) -> Arc<Agent> {
    Arc::new(Agent::new(config, models, test_host.generation().await).unwrap_or_else(|error| panic!("{error}")))
}

async fn open(test_host: &TestHost, agent: Arc<Agent>) -> Session {
    Session::open(&test_host.host(), agent, OpenSession::New).await.unwrap()
}

pub(crate) async fn attach(session: &Session, bytes: Vec<u8>, name: &str) -> Media {
    let media_item = NewMediaItem { bytes, mime_type: "image/png".to_owned(), name: Some(name.to_owned()) };
    session.attach(media_item).await.unwrap()
}

async fn turn_with(session: &mut Session, text: &str, media: &[&Media]) -> TurnResult {
    let media = media.iter().map(|media| Part::Media((*media).clone()));
    let parts = std::iter::once(Part::Text(text.to_owned())).chain(media).collect();
    let input = Some(TurnInput::Message(parts));
    session.run(input, CancellationToken::new()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that every request begins like the previous request, except for media that have been masked since the
/// previous request. The function also checks that masked media stay masked.
fn check_prefixes(sent: &[SentRequest]) {
    for (number, pair) in sent.windows(2).enumerate() {
        let (before, after) = (&pair[0].request, &pair[1].request);
        assert_eq!(before.system, after.system, "request {number}");
        assert!(after.messages.len() >= before.messages.len(), "request {number}");
        for (index, (old, new)) in before.messages.iter().zip(&after.messages).enumerate() {
            let index = format!("request {number}, message {index}: {old:?} became {new:?}");
            let (media_before, media_after) = (media_of(old), media_of(new));
            assert!(media_after.iter().all(|media| media_before.contains(media)), "a mask was removed: {index}");
            if media_before.len() == media_after.len() {
                assert_eq!(old.parts, new.parts, "{index}");
            } else {
                assert_eq!(
                    old.seen_count, 0,
                    "only media that the model has just seen for the first time are masked: {index}"
                );
                assert!(new.seen_count > 0, "{index}");
            }
        }
    }
}

/// P4: Each image from the user or from a tool is sent in one request only. In later requests the image is masked, even
/// in other steps and turns and after a restart. The host masks an image only in the copy that is sent to the model. Equal images have
/// the same digest, and the beginning of the prompt stays the same.
#[tokio::test(flavor = "multi_thread")]
async fn p4_masks_seen_media_and_keeps_the_prompt_prefix() {
    let test_host = TestHost::new(&["image", "mask-openai"]).await;
    std::fs::write(test_host.tree().join("plan.png"), png(400, 300, 1)).unwrap();
    let photo = png(2_600, 1_300, 2);
    let digest = agent_store::digest_of(&photo);
    let open_plan = ("image.open", json!({"path": "plan.png"}));
    let crop = (
        "image.crop",
        json!({"from": {"digest": digest}, "x": 50, "y": 0, "width": 10, "height": 10, "unit": "percent"}),
    );
    let model_script = script(&[
        call_reply(&[open_plan.clone(), open_plan]),
        call_reply(&[crop]),
        text_reply("Seen."),
        text_reply("Still there."),
        text_reply("After a restart."),
    ]);
    let mut config = with_tree_grant(&test_host, "image");
    config.plugins.get_mut("image").unwrap().grants.media = true;
    config.media_policies.insert("openai".to_owned(), "mask-openai".to_owned());
    let model = RecordingProvider::new(&test_host, ("openai", "gpt-4o"), model_script);
    let models = || Models::new(model.clone(), []);
    let mut session = open(&test_host, agent(&test_host, config.clone(), models()).await).await;
    let attached = attach(&session, photo.clone(), "photo.png").await;
    assert_eq!(attached.digest, digest);
    let result = turn_with(&mut session, "Look at this.", &[&attached]).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    run_turn(&mut session, "And now?").await;
    let subject = session.subject().to_owned();
    let masks = session.state().masks.clone();
    session.close().await.unwrap();
    let open_session = OpenSession::Existing(subject);
    let mut session =
        Session::open(&test_host.host(), agent(&test_host, config, models()).await, open_session).await.unwrap();
    assert_eq!(session.state().masks, masks, "masks are stored");
    run_turn(&mut session, "And after a restart?").await;

    let sent = model.sent();
    let image_counts: Vec<usize> =
        sent.iter().map(|sent| sent.request.messages.iter().flat_map(media_of).count()).collect();
    assert_eq!(image_counts, [1, 2, 1, 0, 0], "the user's image, then both images of the tool, the crop, and no image");
    check_prefixes(&sent);
    let text = serde_json::to_string(&sent[0].request).unwrap();
    assert!(text.contains(&format!("[photo.png: image/png, 2600 × 1300 pixels; {digest}]")), "{text}");
    let smaller = image::load_from_memory(&sent[0].media[&digest].bytes).unwrap();
    assert_eq!((smaller.width(), smaller.height()), (2_048, 1_024), "the image is scaled down for gpt-4o");
    let crops = results(&test_host, &session).await;
    assert!(crops.iter().all(|(_, is_error, _)| !is_error), "{crops:?}");
    let history: Vec<Media> = visible_messages(&test_host, &session).await.iter().flat_map(media_of).cloned().collect();
    assert_eq!(history.len(), 4, "the history keeps the originals");
    assert_eq!((&history[0], &history[1].digest), (&attached, &history[2].digest), "equal bytes have the same digest");
    assert_eq!(
        history[3].dimensions.map(|size| (size.width, size.height)),
        Some((260, 130)),
        "the crop has the size from the original, not from the smaller copy"
    );
    let stored = agent_store::Blobs::read(&*test_host.store, session.subject(), &digest, 0, u32::MAX).await.unwrap();
    assert_eq!(stored, photo);
}

/// P4: A masked media item stays masked with the same text across turns and a restart, even if the policy later decides
/// otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn p4_a_mask_stays_when_the_policy_changes_its_decision() {
    let test_host = TestHost::new(&["bad-policy"]).await;
    let mut config = AgentConfig::new("test");
    config.media_policies.insert("openai".to_owned(), "bad-policy".to_owned());
    let model_script = script(&[text_reply("One."), text_reply("Two."), text_reply("Three."), text_reply("Four.")]);
    let model = RecordingProvider::new(&test_host, ("openai", "gpt-4o"), model_script);
    let models = || Models::new(model.clone(), []);
    let mut session = open(&test_host, agent(&test_host, config.clone(), models()).await).await;
    let attached = attach(&session, png(8, 8, 1), "fickle").await;
    turn_with(&mut session, "One.", &[&attached]).await;
    run_turn(&mut session, "Two.").await;
    run_turn(&mut session, "Three.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let open_session = OpenSession::Existing(subject);
    let mut session =
        Session::open(&test_host.host(), agent(&test_host, config, models()).await, open_session).await.unwrap();
    run_turn(&mut session, "Four.").await;
    let sent_parts = model.sent().into_iter().map(|sent| sent.request.messages[0].parts[1].clone()).collect::<Vec<_>>();
    let mask = Part::Text("[seen once]".to_owned());
    assert_eq!(sent_parts, [Part::Media(attached), mask.clone(), mask.clone(), mask]);
}

/// P4: For each media item, the policy receives its position, its role, how often the model has seen it, its type,
/// size, dimensions and digest, and whether it is masked. The policy never receives the bytes of the item.
#[tokio::test(flavor = "multi_thread")]
async fn p4_the_policy_gets_descriptions_and_no_bytes() {
    let test_host = TestHost::new(&["image", "masker"]).await;
    std::fs::write(test_host.tree().join("plan.png"), png(40, 30, 1)).unwrap();
    let model_script = script(&[
        call_reply(&[("image.open", json!({"path": "plan.png"}))]),
        text_reply("Seen."),
        text_reply("Again."),
    ]);
    let mut config = with_tree_grant(&test_host, "image");
    config.media_policies.insert("openai".to_owned(), "masker".to_owned());
    let model = RecordingProvider::new(&test_host, ("openai", "gpt-4o"), model_script);
    let mut session = open(&test_host, agent(&test_host, config, Models::new(model, [])).await).await;
    let attached = attach(&session, png(50, 20, 2), "photo.png").await;
    turn_with(&mut session, "Look.", &[&attached]).await;
    run_turn(&mut session, "Again.").await;
    let decisions = |stored: Vec<agent_store::StoredRecord>| {
        let records = stored.into_iter().map(|stored| stored.record).filter(|record| record.kind == "media_policy");
        records.map(|record| record.body["items"].clone()).collect::<Vec<_>>()
    };
    let plan = agent_store::digest_of(&png(40, 30, 1));
    let item = |position: Value, role: &str, seen: u32, (media, masked): (Value, bool)| json!({"position": position, "role": role, "seen_count": seen, "media": media, "masked": masked});
    let photo = json!({"digest": attached.digest, "mime_type": "image/png", "size": attached.size,
        "dimensions": {"width": 50, "height": 20}, "name": "photo.png"});
    let plan = json!({"digest": plan, "mime_type": "image/png", "size": png(40, 30, 1).len(),
        "dimensions": {"width": 40, "height": 30}, "name": "plan.png"});
    let (first, second) = (json!({"message": 0, "part": 1}), json!({"message": 2, "part": 0, "item": 1}));
    let turns = (decisions(records(&test_host, &session, 1).await), decisions(records(&test_host, &session, 2).await));
    assert_eq!(turns.0[0], json!([item(first.clone(), "user", 0, (photo.clone(), false))]));
    let expected = json!([
        item(first.clone(), "user", 1, (photo.clone(), false)),
        item(second.clone(), "tool", 0, (plan.clone(), false)),
    ]);
    assert_eq!(turns.0[1], expected);
    let expected = json!([item(first, "user", 2, (photo, true)), item(second, "tool", 1, (plan, false))]);
    assert_eq!(turns.1[0], expected);
}

/// Row 22: If a policy traps, hangs, fails or returns an invalid decision, the turn ends with an error that names the
/// policy, and no request is sent. The session can continue after this error.
#[tokio::test(flavor = "multi_thread")]
async fn row_22_sends_nothing_when_a_policy_fails() {
    let test_host = TestHost::new(&["bad-policy"]).await;
    for name in ["trap", "spin", "too few", "no size", "fail"] {
        let mut config = AgentConfig::new(name.replace(' ', "-"));
        config.media_policies.insert("openai".to_owned(), "bad-policy".to_owned());
        let model = RecordingProvider::new(&test_host, ("openai", name), script(&[text_reply("Going on.")]));
        let mut session = open(&test_host, agent(&test_host, config, Models::new(model.clone(), [])).await).await;
        let attached = attach(&session, png(8, 8, 1), name).await;
        let result = turn_with(&mut session, "Look.", &[&attached]).await;
        let TurnResult::Failed(error @ TurnError::PluginFailed { .. }) = result else {
            panic!("`{name}` was not refused: {result:?}")
        };
        assert!(error.code() == "plugin_failed" && error.to_string().contains("bad-policy@"), "{error}");
        assert!(model.sent().is_empty(), "`{name}`: nothing is sent");
        session.undo().await.unwrap();
        assert!(matches!(run_turn(&mut session, "Without the picture.").await, TurnResult::Finished(_)));
        assert_eq!(model.sent().len(), 1);
    }
}

/// P4, M3: Each provider has its own media policy. The fallback provider receives a copy that is masked according to
/// its own policy, and mask decisions that were made for a failed request are discarded.
#[tokio::test(flavor = "multi_thread")]
async fn p4_masks_media_separately_for_a_fallback() {
    let test_host = TestHost::new(&["image", "mask-openai", "masker"]).await;
    std::fs::write(test_host.tree().join("icon.png"), png(64, 64, 1)).unwrap();
    std::fs::write(test_host.tree().join("photo.png"), png(600, 600, 1)).unwrap();
    let opening =
        call_reply(&[("image.open", json!({"path": "icon.png"})), ("image.open", json!({"path": "photo.png"}))]);
    let look = call_reply(&[("image.describe", json!({"from": {"path": "icon.png"}}))]);
    let refused = json!({"error": {"message": "this model is gone", "status": 404}});
    let first = RecordingProvider::new(&test_host, ("openai", "gpt-5-mini"), script(&[opening, look, refused]));
    let unused = || text_reply("not asked");
    let second =
        RecordingProvider::new(&test_host, ("other", "small"), script(&[unused(), unused(), text_reply("Seen.")]));
    let mut config = with_tree_grant(&test_host, "image");
    config.media_policies.insert("openai".to_owned(), "mask-openai".to_owned());
    config.media_policies.insert("other".to_owned(), "masker".to_owned());
    let models = Models::new(first.clone(), [second.clone() as Arc<dyn Provider>]);
    let mut session = open(&test_host, agent(&test_host, config, models).await).await;
    let result = run_turn(&mut session, "Look.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let names = |sent: &SentRequest| {
        let media = sent.request.messages.iter().flat_map(media_of).map(|media| media.name.clone().unwrap());
        media.collect::<Vec<_>>()
    };
    let to_first: Vec<_> = first.sent().iter().map(names).collect();
    assert_eq!(to_first, [vec![], vec!["icon.png".to_owned(), "photo.png".to_owned()], vec!["icon.png".to_owned()]]);
    let to_second = second.sent();
    assert_eq!((to_second.len(), names(&to_second[0])), (1, vec![]), "both images have already been seen");
    assert_eq!(to_second[0].request.model.provider, "other");
    let masks: Vec<_> = session.state().masks.iter().map(|mask| mask.text.as_str()).collect();
    assert_eq!(
        masks,
        ["[icon.png seen before]", "[photo.png seen before]"],
        "the masks come from the decisions for the answered request"
    );
}

/// Row 34: An image whose header claims enormous dimensions is not decoded. Instead of the image, the model gets a
/// note, and the plugin `image` refuses the image. If an image does not fit into the memory of a call, the error names
/// the limit that must be raised.
#[tokio::test(flavor = "multi_thread")]
async fn row_34_refuses_image_bombs() {
    let test_host = TestHost::new(&["image", "mask-openai"]).await;
    std::fs::write(test_host.tree().join("bomb.png"), image_bomb()).unwrap();
    let mut white = Cursor::new(Vec::new());
    DynamicImage::new_rgba8(5_000, 4_000).write_to(&mut white, ImageFormat::Png).unwrap();
    std::fs::write(test_host.tree().join("white.png"), white.into_inner()).unwrap();
    let scale = |path: &str| ("image.scale", json!({"from": {"path": path}, "width": 100}));
    let opening = || call_reply(&[("image.open", json!({"path": "bomb.png"})), scale("bomb.png"), scale("white.png")]);
    let mut config = with_tree_grant(&test_host, "image");
    config.media_policies.insert("openai".to_owned(), "mask-openai".to_owned());
    let model_script = script(&[opening(), text_reply("Refused."), text_reply("Again.")]);
    let model = RecordingProvider::new(&test_host, ("openai", "gpt-4o"), model_script);
    let mut session = open(&test_host, agent(&test_host, config.clone(), Models::new(model.clone(), [])).await).await;
    let attached = attach(&session, image_bomb(), "bomb.png").await;
    let result = turn_with(&mut session, "Look.", &[&attached]).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    run_turn(&mut session, "Again.").await;
    let sent = model.sent();
    check_prefixes(&sent);
    for sent in &sent {
        assert!(sent.media.is_empty(), "the bytes of the image are not sent");
        let expected = format!(
            "[not shown: bomb.png: image/png, 60000 × 60000 pixels; it cannot be made smaller: its header declares \
             60000 × 60000 pixels, which take more than 256 MiB of memory; {}]",
            attached.digest
        );
        assert_eq!(sent.request.messages[0].parts[1], Part::Text(expected));
    }
    let refused = results(&test_host, &session).await;
    for (name, is_error, text) in &refused[..2] {
        assert!(*is_error && text.contains("claims 3600.0 megapixels"), "{name}: {text}");
    }
    let (_, is_error, text) = &refused[2];
    assert!(*is_error && text.contains("20.0 megapixels") && text.contains("raise `memory_mib`"), "{text}");
    // With a higher memory limit, the call succeeds.
    config.plugins.get_mut("image").unwrap().limits.memory = 128 << 20;
    let model = RecordingProvider::new(&test_host, ("other", "raised"), script(&[opening(), text_reply("Done.")]));
    let mut session = open(&test_host, agent(&test_host, config, Models::new(model, [])).await).await;
    run_turn(&mut session, "Look.").await;
    let (_, is_error, text) = results(&test_host, &session).await.remove(2);
    assert!(!is_error && text.contains("100 × 80 pixels"), "{text}");
}

/// P2, P8: The default memory is enough for the plugin to process a phone photograph. The resulting images are too
/// large for a tool result, so the plugin returns them through the media store.
#[tokio::test(flavor = "multi_thread")]
async fn p8_processes_a_twelve_megapixel_photograph_in_64_mib() {
    let test_host = TestHost::new(&["image"]).await;
    let noise = RgbImage::from_fn(4_032, 3_024, |x, y| {
        let mixed = (x * 31 + y * 17).wrapping_mul(2_654_435_761);
        Rgb([(mixed >> 24) as u8, (mixed >> 16) as u8, (x / 16) as u8])
    });
    let mut photo = Vec::new();
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut photo, 60);
    DynamicImage::ImageRgb8(noise).write_with_encoder(encoder).unwrap();
    assert!(photo.len() > 4 << 20, "{} bytes", photo.len());
    std::fs::write(test_host.tree().join("photo.jpg"), photo).unwrap();
    let from = json!({"path": "photo.jpg"});
    let model_script = script(&[
        call_reply(&[
            ("image.open", from.clone()),
            ("image.scale", json!({"from": from, "width": 1_024, "height": 1_024})),
            ("image.crop", json!({"from": from, "x": 1_000, "y": 1_000, "width": 800, "height": 600})),
        ]),
        text_reply("Done."),
    ]);
    let mut session = test_host.session(with_tree_grant(&test_host, "image"), model_script).await;
    run_turn(&mut session, "Look.").await;
    for (name, is_error, text) in results(&test_host, &session).await {
        assert!(!is_error, "{name}: {text}");
    }
    let media: Vec<Media> = visible_messages(&test_host, &session).await.iter().flat_map(media_of).cloned().collect();
    let sizes: Vec<_> = media.iter().map(|media| media.dimensions.map(|size| (size.width, size.height))).collect();
    assert_eq!(sizes, [Some((4_032, 3_024)), Some((1_024, 768)), Some((800, 600))]);
}
