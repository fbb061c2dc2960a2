//! Masks and downscales media in the outgoing prompt. Media that were masked earlier stay masked, and the media policy
//! decides about all other media (P4).

use super::action::{ActionContext, plugin_answer, store_failed};
use super::outgoing::OutgoingPrompt;
use crate::media::{ScaleError, about, read_whole, with_labels};
use crate::prompts::{OutgoingMediaItem, StoredPosition, outgoing_media, replace_media_item};
use crate::records::{MediaPolicyRecord, PolicyQuestion, Question, StepRecordBody, UnscaledPicture};
use agent_core::message::{Dimensions, Media};
use agent_core::model::{Downscaled, MediaDecision};
use agent_core::plugin::{MediaPosition, PolicyRequest};
use agent_core::run::{Mask, Run, TurnError};
use agent_core::tokens;
use agent_core::trace::SpanKey;
use agent_plugins::Kind;
use futures::future::join_all;

/// The text that replaces a media item that is not sent, and whether the replacement is stored.
enum Replacement {
    /// The text is stored as a mask, so it also replaces the item in later model calls.
    Permanent(String),
    /// The text replaces the item only in this model call.
    ThisCall(String),
}

/// Applies the policy's decisions to the outgoing prompt. The stored history keeps the original media.
pub(super) async fn apply_media_policy(
    context: &mut ActionContext<'_>,
    outgoing: &mut OutgoingPrompt,
    step: u32,
) -> Result<(), TurnError> {
    let found =
        outgoing_media(&outgoing.request, &outgoing.ids, |position| earlier_mask(context.run, position).is_some());
    if found.is_empty() {
        return Ok(());
    }
    let decisions = ask_policy(context, outgoing, &found, step).await?;
    let mut smaller = Vec::new();
    for (media_item, decision) in found.into_iter().zip(decisions) {
        match (earlier_mask(context.run, media_item.stored_position), decision) {
            (Some(mask), _) => replace(outgoing, media_item.item.position, mask.text.clone()),
            (None, MediaDecision::Keep) => {}
            (None, MediaDecision::Downscale(to)) => smaller.push((media_item, to)),
            (None, MediaDecision::Mask(text)) => mask_media_item(outgoing, &media_item, Replacement::Permanent(text)),
        }
    }
    downscale_pictures(context, outgoing, smaller, step).await?;
    // No labels are added if no tools are offered, because the model uses labels only to refer to media in tool calls.
    outgoing.labels = context.services.agent.setups().values().any(|setup| setup.plugin().has(Kind::Tool));
    if outgoing.labels {
        with_labels(&mut outgoing.request.messages);
    }
    Ok(())
}

async fn ask_policy(
    context: &mut ActionContext<'_>,
    outgoing: &mut OutgoingPrompt,
    found: &[OutgoingMediaItem],
    step: u32,
) -> Result<Vec<MediaDecision>, TurnError> {
    let agent = context.agent();
    let Some(policy) = agent.media_policy(&context.model().info().model.provider) else {
        return Ok(vec![MediaDecision::Keep; found.len()]);
    };
    let request = PolicyRequest {
        scope: context.scope(Some(SpanKey::Step(step))),
        model: context.model().info().model.clone(),
        messages: u32::try_from(outgoing.request.messages.len()).unwrap_or(u32::MAX),
        items: found.iter().map(|media_item| media_item.item.clone()).collect(),
    };
    let report = context.services.sandbox.decide(policy, &request).await;
    context.note_denials(&report.denials);
    let cost = report.cost;
    let decisions = plugin_answer(policy, report)?;
    let plugin = policy.plugin().identity().to_string();
    let asked = Question::Recorded(PolicyQuestion { model: request.model, messages: request.messages });
    let record = MediaPolicyRecord { plugin, asked, items: request.items, answer: decisions.clone(), cost };
    outgoing.notes.add(context.run, step, StepRecordBody::MediaPolicy(Box::new(record)));
    Ok(decisions)
}

/// Downscales those images that the policy wants to be smaller, before the request is sent. If an image cannot be
/// downscaled, the model receives a note instead of the image. The original is not sent, because that would contradict
/// the policy's decision (row 22). The turn does not fail: if it failed because of the image, every later turn would
/// fail too.
async fn downscale_pictures(
    context: &ActionContext<'_>,
    outgoing: &mut OutgoingPrompt,
    pictures: Vec<(OutgoingMediaItem, Dimensions)>,
    step: u32,
) -> Result<(), TurnError> {
    let made = join_all(pictures.iter().map(|(media_item, to)| {
        let media = &media_item.item.media;
        let read = read_whole(&*context.services.store, &context.services.subject, media);
        context.services.downscaler.scaled(media, *to, read)
    }));
    let mut failures: Vec<UnscaledPicture> = Vec::new();
    for ((media_item, to), made) in pictures.iter().zip(made.await) {
        let media = &media_item.item.media;
        let error = match made {
            Ok(_) => {
                add_downscaled(&mut outgoing.request.downscaled, media, *to);
                continue;
            }
            Err(ScaleError::Store(error)) => return Err(store_failed(error)),
            Err(error) => error,
        };
        let session = &context.services.subject;
        tracing::warn!(%session, digest = %media.digest, %error, "an image cannot be downscaled, so it is not sent");
        let text = format!("[not shown: {}; it cannot be made smaller: {error}; {}]", about(media), media.digest);
        failures.push(UnscaledPicture { position: media_item.item.position, text: text.clone() });
        let replacement = match error.is_final() {
            true => Replacement::Permanent(text),
            false => Replacement::ThisCall(text),
        };
        mask_media_item(outgoing, media_item, replacement);
    }
    if !failures.is_empty() {
        outgoing.notes.add(context.run, step, StepRecordBody::MediaNotScaled(failures));
    }
    Ok(())
}

fn earlier_mask(run: &Run, (message, part, item): StoredPosition) -> Option<&Mask> {
    run.masks.iter().find(|mask| (mask.message, mask.part, mask.item) == (message, part, item))
}

/// Adds a media item to the list of downscaled media. If the list already contains the item with another size, the
/// smaller of the two sizes is kept.
fn add_downscaled(downscaled: &mut Vec<Downscaled>, media: &Media, to: Dimensions) {
    match downscaled.iter_mut().find(|other| other.media.digest == media.digest) {
        Some(Downscaled { to: other, .. }) => {
            *other = Dimensions { width: other.width.min(to.width), height: other.height.min(to.height) };
        }
        None => downscaled.push(Downscaled { media: media.clone(), to }),
    }
}

fn mask_media_item(outgoing: &mut OutgoingPrompt, media_item: &OutgoingMediaItem, replacement: Replacement) {
    let text = match replacement {
        Replacement::ThisCall(text) => text,
        Replacement::Permanent(text) => {
            let (message, part, item) = media_item.stored_position;
            outgoing.new_masks.push(Mask { message, part, item, text: text.clone() });
            text
        }
    };
    replace(outgoing, media_item.item.position, text);
}

/// Replaces a media item of the prompt by a text, and counts the tokens that this saves.
fn replace(outgoing: &mut OutgoingPrompt, position: MediaPosition, text: String) {
    outgoing.saved_tokens += u64::from(tokens::saved_by_mask(&text));
    replace_media_item(&mut outgoing.request, position, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::digest_of;

    fn media_item(name: &str) -> Media {
        let (digest, mime_type) = (digest_of(name.as_bytes()), "image/png".to_owned());
        Media { digest, mime_type, size: 5, dimensions: None, name: Some(name.to_owned()) }
    }

    #[test]
    fn image_at_two_places_is_sent_in_the_smaller_size() {
        let mut downscaled = Vec::new();
        let size = |width, height| Dimensions { width, height };
        add_downscaled(&mut downscaled, &media_item("a"), size(100, 50));
        add_downscaled(&mut downscaled, &media_item("b"), size(10, 10));
        add_downscaled(&mut downscaled, &media_item("a"), size(80, 60));
        let sizes: Vec<_> = downscaled.iter().map(|downscaled| downscaled.to).collect();
        assert_eq!(sizes, [size(80, 50), size(10, 10)]);
    }
}
