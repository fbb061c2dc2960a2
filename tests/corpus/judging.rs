//! Row 22: Validators and media policies that fail. Row 34: Images whose header states enormous dimensions.

use crate::scene::{Scene, run_exclusively};
use crate::support::{run_turn, text_reply};
use agent_core::run::TurnError;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::Value;

/// Row 22: If a validator traps, loops, fails or returns nonsense, the turn ends with an error that names the
/// validator.
#[test]
fn row_22_a_failing_validator_ends_the_turn() {
    run_exclusively(async {
        let scene = Scene::new(&["bad-validator"]).await;
        let attack = async |_| {
            for words in ["trap", "no problems", "bad json", "spin", "fail"] {
                let mut config = AgentConfig::new("validated");
                config.validators = vec!["bad-validator".to_owned()];
                // The fallback text is the turn's output if the model fails, but not if a validator fails.
                config.bounds.fallback = Some(agent_core::plugin::OutputData::Text("The fixed reply.".to_owned()));
                let mut session = scene.session(config, &[text_reply(words)]).await;
                let result = run_turn(&mut session, "Go.").await;
                let TurnResult::Failed(TurnError::PluginFailed { plugin, message }) = result else {
                    panic!("`{words}` was not refused: {result:?}")
                };
                assert_eq!(plugin, scene.identity("bad-validator"), "{message}");
                assert!(words != "spin" || message.contains("of 250ms"), "{message}");
                session.close().await.unwrap();
            }
        };
        scene.repeat("row 22, validators", attack).await;
    });
}

/// Row 22: If a media policy fails, the turn ends with an error that names the policy, and the media item is not sent.
#[test]
fn row_22_a_failing_policy_sends_nothing() {
    run_exclusively(async {
        let scene = Scene::new(&["bad-policy"]).await;
        let attack = async |_| {
            for name in ["trap", "spin", "too few", "no size", "fail"] {
                let mut config = AgentConfig::new("judged");
                config.media_policies.insert("scripted".to_owned(), "bad-policy".to_owned());
                let mut session = scene.session(config, &[text_reply("Never said.")]).await;
                let media_item = agent_plugins::NewMediaItem {
                    bytes: image_bytes(8, 8),
                    mime_type: "image/png".to_owned(),
                    name: Some(name.to_owned()),
                };
                let media_item = session.attach(media_item).await.unwrap();
                let parts = vec![
                    agent_core::message::Part::Text("Look.".to_owned()),
                    agent_core::message::Part::Media(media_item),
                ];
                let input = Some(agent_core::message::TurnInput::Message(parts));
                let result = session.run(input, tokio_util::sync::CancellationToken::new()).await.unwrap();
                // The name of the media item selects the policy's behaviour, as in the end-to-end tests.
                let TurnResult::Failed(TurnError::PluginFailed { plugin, .. }) = result else {
                    panic!("`{name}` was not refused: {result:?}")
                };
                assert_eq!(plugin, scene.identity("bad-policy"));
                session.close().await.unwrap();
            }
        };
        scene.repeat("row 22, policies", attack).await;
    });
}

/// Creates an image of one pixel whose header states these dimensions.
fn image_bytes(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::DynamicImage::new_luma8(1, 1).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    let mut bytes = bytes.into_inner();
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = !bytes[12..29].iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    });
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Row 34: An image whose header states 3,600 megapixels is not decoded. The plugin that opens the image reports the
/// error, and the turn continues.
#[test]
fn row_34_refuses_images_with_huge_dimensions() {
    run_exclusively(async {
        let scene = Scene::new(&["image", "mask-openai"]).await;
        let tree = crate::files::tree(&scene, "images");
        std::fs::write(tree.join("bomb.png"), image_bytes(60_000, 60_000)).unwrap();
        let grants = || crate::files::trees(&[(&tree, agent_plugins::Access::Read)]);
        let attack = async |_| {
            let mut config = crate::scene::with_grants("image", grants(), Default::default());
            config.media_policies.insert("scripted".to_owned(), "mask-openai".to_owned());
            let path = serde_json::json!({"path": "images/bomb.png"});
            let scale: Value = serde_json::json!({"from": path, "width": 100});
            let calls = [("image.open", path.clone()), ("image.scale", scale)];
            for (is_error, text) in scene.calls(config, &calls).await {
                assert!(is_error && text.contains("megapixels"), "{text}");
            }
        };
        scene.repeat("row 34, images", attack).await;
    });
}
