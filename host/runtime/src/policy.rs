//! Media of the outgoing copy: what earlier decisions mask stays masked, the policy decides on the rest (P4).

use crate::context::{answer, store_failed};
use crate::media::{ScaleError, about, read_whole, with_labels};
use crate::model_step::Outgoing;
use crate::session::Session;
use agent_core::message::{Content, Dimensions, Media, MessageId, Part};
use agent_core::model::{Downscaled, MediaDecision, ModelRequest};
use agent_core::plugin::{MediaPosition, PolicyItem, PolicyRequest};
use agent_core::run::{Mask, TurnError};
use agent_plugins::Kind;
use futures::future::join_all;
use serde_json::{Value, json};

/// A medium of the outgoing copy.
struct Found {
    item: PolicyItem,
    /// Its place in the stored history, as masks name it.
    place: Place,
}

/// A message, a part of it, and which of the media of a tool result. Unlike the position in the outgoing copy, it does
/// not depend on how much of a result's text is shown.
type Place = (MessageId, u32, Option<u32>);

/// What stands for a medium that is not sent, and whether it stays so.
enum Replacement {
    Lasting(String),
    ThisTime(String),
}

impl Session {
    /// Puts the decisions into the outgoing copy. The stored history keeps the original.
    pub(crate) async fn mask(&mut self, outgoing: &mut Outgoing, step: u32) -> Result<(), TurnError> {
        let found = found(&outgoing.request, &outgoing.ids, |place| self.earlier_mask(place).is_some());
        if found.is_empty() {
            return Ok(());
        }
        let decisions = self.decisions(outgoing, &found, step).await?;
        let mut smaller = Vec::new();
        for (medium, decision) in found.into_iter().zip(decisions) {
            match (self.earlier_mask(medium.place), decision) {
                (Some(mask), _) => replace(&mut outgoing.request, medium.item.position, mask.text.clone()),
                (None, MediaDecision::Keep) => {}
                (None, MediaDecision::Downscale(to)) => smaller.push((medium, to)),
                (None, MediaDecision::Mask(text)) => take_out(outgoing, &medium, Replacement::Lasting(text)),
            }
        }
        self.downscale(outgoing, smaller, step).await?;
        // A model that has no tools has nobody to name a medium to.
        if self.shared.agent.setups().values().any(|setup| setup.plugin().has(Kind::Tool)) {
            with_labels(&mut outgoing.request.messages);
        }
        Ok(())
    }

    async fn decisions(
        &mut self,
        outgoing: &mut Outgoing,
        found: &[Found],
        step: u32,
    ) -> Result<Vec<MediaDecision>, TurnError> {
        let agent = self.shared.agent.clone();
        let Some(policy) = agent.media_policy(&self.model().facts().model.provider) else {
            return Ok(vec![MediaDecision::Keep; found.len()]);
        };
        let request = PolicyRequest {
            scope: self.scope(),
            model: self.model().facts().model.clone(),
            messages: u32::try_from(outgoing.request.messages.len()).unwrap_or(u32::MAX),
            items: found.iter().map(|medium| medium.item.clone()).collect(),
        };
        let report = self.shared.sandbox.decide(policy, &request).await;
        self.note_denials(&report.denials);
        let cost = report.cost;
        let decisions = answer(policy, report)?;
        let plugin = policy.plugin().identity().to_string();
        let asked = json!({"model": request.model, "messages": request.messages});
        let body = json!({"plugin": plugin, "asked": asked, "items": request.items, "answer": decisions, "cost": cost});
        self.note(&mut outgoing.notes, step, "media_policy", body);
        Ok(decisions)
    }

    /// Makes the pictures smaller before anything is sent, so that one that cannot be is told to the model and not sent
    /// against the policy's decision (row 22), nor fails every turn to come.
    async fn downscale(
        &self,
        outgoing: &mut Outgoing,
        pictures: Vec<(Found, Dimensions)>,
        step: u32,
    ) -> Result<(), TurnError> {
        let made = join_all(pictures.iter().map(|(medium, to)| {
            let media = &medium.item.media;
            let read = read_whole(&*self.shared.store, &self.shared.subject, media);
            self.shared.downscaler.scaled(media, *to, read)
        }));
        let mut failures: Vec<Value> = Vec::new();
        for ((medium, to), made) in pictures.iter().zip(made.await) {
            let media = &medium.item.media;
            let error = match made {
                Ok(_) => {
                    send_smaller(&mut outgoing.request.downscaled, media, *to);
                    continue;
                }
                Err(ScaleError::Store(error)) => return Err(store_failed(error)),
                Err(error) => error,
            };
            tracing::warn!(session = %self.shared.subject, digest = %media.digest, %error, "a picture is not sent");
            let text = format!("[not shown: {}; it cannot be made smaller: {error}; {}]", about(media), media.digest);
            failures.push(json!({"position": medium.item.position, "text": text}));
            let replacement = match error.is_final() {
                true => Replacement::Lasting(text),
                false => Replacement::ThisTime(text),
            };
            take_out(outgoing, medium, replacement);
        }
        if !failures.is_empty() {
            self.note(&mut outgoing.notes, step, "media_not_scaled", json!(failures));
        }
        Ok(())
    }

    fn earlier_mask(&self, (message, part, item): Place) -> Option<&Mask> {
        self.run.masks.iter().find(|mask| (mask.message, mask.part, mask.item) == (message, part, item))
    }
}

/// Every medium of the outgoing copy, with its place.
fn found(request: &ModelRequest, ids: &[MessageId], is_masked: impl Fn(Place) -> bool) -> Vec<Found> {
    let mut found = Vec::new();
    for (message, (id, sent)) in (0..).zip(ids.iter().zip(&request.messages)) {
        let mut push = |part: u32, (item, medium): (Option<u32>, Option<u32>), media: &Media| {
            let place = (*id, part, medium);
            let position = MediaPosition { message, part, item };
            let (role, seen_count, masked) = (sent.role, sent.seen_count, is_masked(place));
            let item = PolicyItem { position, role, seen_count, media: media.clone(), masked };
            found.push(Found { item, place });
        };
        for (number, part) in (0..).zip(&sent.parts) {
            match part {
                Part::Media(media) => push(number, (None, None), media),
                Part::ToolResult(result) => {
                    let content = (0..).zip(&result.content);
                    let media = content.filter_map(|(item, content)| match content {
                        Content::Media(media) => Some((item, media)),
                        _ => None,
                    });
                    for (medium, (item, media)) in (0..).zip(media) {
                        push(number, (Some(item), Some(medium)), media);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// The same medium at two places is sent once, as small as the smaller of both.
fn send_smaller(downscaled: &mut Vec<Downscaled>, media: &Media, to: Dimensions) {
    match downscaled.iter_mut().find(|other| other.media.digest == media.digest) {
        Some(Downscaled { to: other, .. }) => {
            *other = Dimensions { width: other.width.min(to.width), height: other.height.min(to.height) };
        }
        None => downscaled.push(Downscaled { media: media.clone(), to }),
    }
}

fn take_out(outgoing: &mut Outgoing, medium: &Found, replacement: Replacement) {
    let text = match replacement {
        Replacement::ThisTime(text) => text,
        Replacement::Lasting(text) => {
            let (message, part, item) = medium.place;
            outgoing.new_masks.push(Mask { message, part, item, text: text.clone() });
            text
        }
    };
    replace(&mut outgoing.request, medium.item.position, text);
}

fn replace(request: &mut ModelRequest, position: MediaPosition, text: String) {
    let Some(message) = request.messages.get_mut(position.message as usize) else { return };
    let Some(part) = message.parts.get_mut(position.part as usize) else { return };
    match (part, position.item) {
        (part @ Part::Media(_), None) => *part = Part::Text(text),
        (Part::ToolResult(result), Some(item)) => {
            if let Some(content) = result.content.get_mut(item as usize) {
                *content = Content::Text(text);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{CallId, Message, Role, StoredMessage, ToolResult};
    use agent_core::model::Model;
    use agent_core::plugin::Lifecycle;
    use agent_core::view::shown_message;
    use agent_store::digest_of;

    fn medium(name: &str) -> Media {
        let (digest, mime_type) = (digest_of(name.as_bytes()), "image/png".to_owned());
        Media { digest, mime_type, size: 5, dimensions: None, name: Some(name.to_owned()) }
    }

    fn request(message: Message) -> ModelRequest {
        let model = Model { provider: "p".to_owned(), name: "m".to_owned(), window: 1 };
        ModelRequest {
            model,
            lifecycle: Lifecycle::Init,
            system: Vec::new(),
            messages: vec![message],
            downscaled: Vec::new(),
            tools: Vec::new(),
            output_schema: None,
            max_tokens: 1,
        }
    }

    /// P4: a mask stays where it is, whether the texts before the medium are shown whole or cut.
    #[test]
    fn places_do_not_depend_on_what_is_shown_of_texts() {
        let text = |text: &str| Content::Text(text.to_owned());
        let content =
            vec![text("one"), text("two"), Content::Media(medium("a")), text("three"), Content::Media(medium("b"))];
        let result = ToolResult { call_id: CallId("c".to_owned()), name: "t".to_owned(), content, is_error: false };
        let parts = vec![Part::ToolResult(result)];
        let stored = StoredMessage { id: 7, turn: 1, role: Role::Tool, parts, tokens: 1 };
        let of = |limit: usize| {
            let request = request(shown_message(&stored, 0, limit));
            let found = found(&request, &[7], |place| place == (7, 0, Some(1)));
            let about = |found: &Found| (found.place, found.item.position.item, found.item.masked);
            found.iter().map(about).collect::<Vec<_>>()
        };
        assert_eq!(of(1_000), [((7, 0, Some(0)), Some(2), false), ((7, 0, Some(1)), Some(4), true)]);
        assert_eq!(of(5), [((7, 0, Some(0)), Some(1), false), ((7, 0, Some(1)), Some(2), true)]);
    }

    #[test]
    fn a_picture_at_two_places_is_sent_as_small_as_the_smaller() {
        let mut downscaled = Vec::new();
        let size = |width, height| Dimensions { width, height };
        send_smaller(&mut downscaled, &medium("a"), size(100, 50));
        send_smaller(&mut downscaled, &medium("b"), size(10, 10));
        send_smaller(&mut downscaled, &medium("a"), size(80, 60));
        let sizes: Vec<_> = downscaled.iter().map(|downscaled| downscaled.to).collect();
        assert_eq!(sizes, [size(80, 50), size(10, 10)]);
    }
}
