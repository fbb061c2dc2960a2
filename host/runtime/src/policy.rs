//! Media of the outgoing copy: what earlier decisions mask stays masked, the policy decides on the rest (P4).

use crate::context::answer;
use crate::model_step::Outgoing;
use crate::session::Session;
use agent_core::message::{Content, Media, MessageId, Part};
use agent_core::model::{Downscaled, MediaDecision, ModelRequest};
use agent_core::plugin::{MediaPosition, PolicyItem, PolicyRequest};
use agent_core::run::{Mask, TurnError};
use serde_json::json;

impl Session {
    /// Puts the decisions into the outgoing copy. The stored history keeps the original.
    pub(crate) async fn mask(&self, outgoing: &mut Outgoing, step: u32) -> Result<(), TurnError> {
        let items = self.items(&outgoing.request, &outgoing.ids);
        if items.is_empty() {
            return Ok(());
        }
        let decisions = self.decisions(outgoing, &items, step).await?;
        for (item, decision) in items.iter().zip(decisions) {
            let earlier = self.earlier_mask(outgoing.ids[item.position.message as usize], item.position);
            match (earlier, decision) {
                (Some(mask), _) => replace(&mut outgoing.request, item.position, mask.text.clone()),
                (None, MediaDecision::Keep) => {}
                (None, MediaDecision::Downscale(to)) => {
                    outgoing.request.downscaled.push(Downscaled { media: item.media.clone(), to });
                }
                (None, MediaDecision::Mask(text)) => {
                    replace(&mut outgoing.request, item.position, text.clone());
                    let MediaPosition { message, part, item } = item.position;
                    let message = outgoing.ids[message as usize];
                    outgoing.new_masks.push(Mask { message, part, item, text });
                }
            }
        }
        Ok(())
    }

    async fn decisions(
        &self,
        outgoing: &mut Outgoing,
        items: &[PolicyItem],
        step: u32,
    ) -> Result<Vec<MediaDecision>, TurnError> {
        let agent = &self.shared.agent;
        let Some(policy) = agent.media_policy(&self.model().facts().model.provider) else {
            return Ok(vec![MediaDecision::Keep; items.len()]);
        };
        let request = PolicyRequest {
            scope: self.scope(),
            model: self.model().facts().model.clone(),
            messages: u32::try_from(outgoing.request.messages.len()).unwrap_or(u32::MAX),
            items: items.to_vec(),
        };
        let report = self.shared.sandbox.decide(policy, &request).await;
        let decisions = answer(policy, report)?;
        let body = json!({"plugin": policy.plugin().identity().to_string(), "items": items, "answer": decisions});
        self.note(&mut outgoing.notes, step, "media_policy", body);
        Ok(decisions)
    }

    /// Every medium of the outgoing copy, with its place.
    fn items(&self, request: &ModelRequest, ids: &[MessageId]) -> Vec<PolicyItem> {
        let mut items = Vec::new();
        for (place, message) in request.messages.iter().enumerate() {
            let mut push = |part: usize, item: Option<usize>, media: &Media| {
                let position = MediaPosition { message: place as u32, part: part as u32, item: item.map(|i| i as u32) };
                let masked = self.earlier_mask(ids[place], position).is_some();
                let (role, seen_count) = (message.role, message.seen_count);
                items.push(PolicyItem { position, role, seen_count, media: media.clone(), masked });
            };
            for (number, part) in message.parts.iter().enumerate() {
                match part {
                    Part::Media(media) => push(number, None, media),
                    Part::ToolResult(result) => {
                        for (item, content) in result.content.iter().enumerate() {
                            if let Content::Media(media) = content {
                                push(number, Some(item), media);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        items
    }

    fn earlier_mask(&self, message: MessageId, position: MediaPosition) -> Option<&Mask> {
        let MediaPosition { part, item, .. } = position;
        self.run.masks.iter().find(|mask| (mask.message, mask.part, mask.item) == (message, part, item))
    }
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
