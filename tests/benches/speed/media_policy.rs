//! "Media policy": The time of one decision about many large images. The policy receives only the descriptions of
//! the images.

use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, micros, reached};
use agent_core::message::{Digest, Dimensions, Media, Role};
use agent_core::model::{MediaDecision, Model};
use agent_core::plugin::{MediaPosition, PolicyItem, PolicyRequest, Scope, TraceContext};
use agent_plugins::{CallLimits, Grants, PluginSetup, Sandbox, SandboxOptions};
use std::path::Path;
use std::time::{Duration, Instant};
use wasmtime::{bail, format_err};

const IMAGES: u32 = 100;
const IMAGE_BYTES: u64 = 5_000_000;
/// The number of images that the model has seen.
const SEEN_IMAGES: u32 = 90;
const WARM_UP: usize = 200;
const ROUNDS: usize = 2_000;
const TARGET: Duration = Duration::from_millis(1);

/// Measures the time to describe the images and to call the policy. Each call runs in a new instance of the policy.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let options = SandboxOptions { cache_directory: Some(scratch().join("cache")), ..SandboxOptions::default() };
    let sandbox = Sandbox::new(options)?;
    let policy = PluginSetup::new(sandbox.load_file(component).await?, Grants::default(), CallLimits::default());
    let media: Vec<Media> = (0..IMAGES).map(image).collect();
    let mut samples = Samples::default();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        let report = sandbox.decide(&policy, &request(&media)).await;
        let decisions = report.result?.map_err(|failure| format_err!("{failure:?}"))?;
        let elapsed = start.elapsed();
        let masked = decisions.iter().filter(|decision| matches!(decision, MediaDecision::Mask(_))).count();
        if masked < SEEN_IMAGES as usize || decisions.len() != media.len() {
            bail!("{masked} of {} images were masked", decisions.len());
        }
        if round >= WARM_UP {
            samples.push(elapsed);
        }
    }
    table.title(format!(
        "media policy: {IMAGES} images of {} MB, {SEEN_IMAGES} of them seen, {} samples",
        IMAGE_BYTES / 1_000_000,
        samples.count()
    ));
    let verdict = format!("target {}: {}", micros(TARGET), reached(samples.median() <= TARGET));
    table.line("descriptions and the call", samples, verdict);
    Ok(())
}

fn request(media: &[Media]) -> PolicyRequest {
    let trace = TraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        tracestate: None,
    };
    let (agent, session) = ("bench".to_owned(), "bench/0199f3a2-7c1e-7000-8000-3f1b2c4d5e6f".to_owned());
    let model = Model { provider: "openai".to_owned(), name: "gpt-4.1-mini".to_owned(), window: 1_000_000 };
    let items = (0..).zip(media).map(|(message, media)| PolicyItem {
        position: MediaPosition { message, part: 0, item: None },
        role: Role::User,
        seen_count: u32::from(message < SEEN_IMAGES),
        media: media.clone(),
        masked: false,
    });
    PolicyRequest {
        scope: Scope { agent, session, delegated_by: None, user: None, turn: 1, trace },
        model,
        messages: IMAGES,
        items: items.collect(),
    }
}

fn image(number: u32) -> Media {
    let mut hash = [0; 32];
    hash[..4].copy_from_slice(&number.to_be_bytes());
    Media {
        digest: Digest::from_sha256(hash),
        mime_type: "image/png".to_owned(),
        size: IMAGE_BYTES,
        dimensions: Some(Dimensions { width: 2_400, height: 1_600 }),
        name: Some(format!("photo-{number}.png")),
    }
}
