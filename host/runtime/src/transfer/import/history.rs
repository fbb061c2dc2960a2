//! Imports events, step records, texts, and the messages that are not in the session's view.

use super::media::check_digest;
use super::{Import, damaged, parse_items};
use crate::transfer::TransferError;
use crate::transfer::document::{Batch, DocumentEvent, DocumentRecord, DocumentText, List};
use crate::transfer::staging::Staging;
use agent_core::change::{Change, HiddenMessage};
use agent_core::event::EventKind;
use agent_store::StepRecord;

impl Import {
    pub(super) async fn store_hidden(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
        let mut change = Change::default();
        for (index, hidden) in parse_items::<HiddenMessage>(List::Hidden, batch)? {
            if hidden.id == 0 || hidden.id > self.messages {
                return Err(damaged(format!("hidden[{index}]"), "this message does not exist"));
            }
            change.hidden.push(hidden);
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    /// Stores events. Events about denials and approvals are skipped, because they would become entries in this host's
    /// audit log.
    pub(super) async fn store_events(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
        let mut change = Change::default();
        for (index, DocumentEvent { mut event, .. }) in parse_items(List::Events, batch)? {
            let (read, kept) = &mut self.events;
            *read += 1;
            if event.sequence != *read {
                return Err(damaged(format!("events[{index}]"), format!("event {read} is missing")));
            }
            if event.session != self.exported_as {
                return Err(damaged(format!("events[{index}]"), "the event does not belong to the exported session"));
            }
            if !matches!(event.kind, EventKind::Denied { .. } | EventKind::ApprovalResolved { .. }) {
                *kept += 1;
                event.sequence = *kept;
                staging.session().clone_into(&mut event.session);
                let turn = event.turn;
                change.events.push(event);
                self.check_turn(List::Events, index, turn)?;
            }
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    pub(super) async fn store_records(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
        let mut records = Vec::with_capacity(batch.items.len());
        for (index, DocumentRecord { turn, step, kind, body, .. }) in parse_items(List::Records, batch)? {
            self.check_turn(List::Records, index, turn)?;
            let body = serde_json::from_str(body.get());
            let body = body.map_err(|error| damaged(format!("records[{index}].body"), error))?;
            records.push(StepRecord { turn, step, kind, body });
        }
        Ok(staging.add(Change::default(), records, Vec::new()).await?)
    }
}

pub(super) async fn store_texts(batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
    let mut texts = Vec::with_capacity(batch.items.len());
    for (index, DocumentText { digest, text }) in parse_items(List::Texts, batch)? {
        check_digest(&format!("texts[{index}]"), &digest, text.as_bytes())?;
        texts.push(text);
    }
    Ok(staging.add(Change::default(), Vec::new(), texts).await?)
}
