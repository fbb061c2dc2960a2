//! What has left the view, events and step records of a document.

use super::media::check_digest;
use super::{Import, all, damaged};
use crate::portable::PortableError;
use crate::portable::document::{Batch, DocumentEvent, DocumentRecord, DocumentText, List};
use crate::portable::staging::Staging;
use agent_core::change::{Change, HiddenMessage};
use agent_core::event::EventKind;
use agent_store::StepRecord;

impl Import {
    pub(super) async fn store_hidden(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
        let mut change = Change::default();
        for (place, hidden) in all::<HiddenMessage>(List::Hidden, batch)? {
            if hidden.id == 0 || hidden.id > self.messages {
                return Err(damaged(format!("hidden[{place}]"), "there is no such message"));
            }
            change.hidden.push(hidden);
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    /// Denials and approvals are entries of this host's audit log, so a document cannot bring any.
    pub(super) async fn store_events(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
        let mut change = Change::default();
        for (place, DocumentEvent { mut event, .. }) in all(List::Events, batch)? {
            let (read, kept) = &mut self.events;
            *read += 1;
            if event.sequence != *read {
                return Err(damaged(format!("events[{place}]"), format!("the event {read} is missing")));
            }
            if event.session != self.exported_as {
                return Err(damaged(format!("events[{place}]"), "it is another session's"));
            }
            if !matches!(event.kind, EventKind::Denied { .. } | EventKind::ApprovalResolved { .. }) {
                *kept += 1;
                event.sequence = *kept;
                staging.session().clone_into(&mut event.session);
                let turn = event.turn;
                change.events.push(event);
                self.check_turn(List::Events, place, turn)?;
            }
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    pub(super) async fn store_records(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
        let mut records = Vec::with_capacity(batch.items.len());
        for (place, DocumentRecord { turn, step, kind, body, .. }) in all(List::Records, batch)? {
            self.check_turn(List::Records, place, turn)?;
            let body = serde_json::from_str(body.get());
            let body = body.map_err(|error| damaged(format!("records[{place}].body"), error))?;
            records.push(StepRecord { turn, step, kind, body });
        }
        Ok(staging.add(Change::default(), records, Vec::new()).await?)
    }
}

pub(super) async fn store_texts(batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
    let mut texts = Vec::with_capacity(batch.items.len());
    for (place, DocumentText { digest, text }) in all(List::Texts, batch)? {
        check_digest(&format!("texts[{place}]"), &digest, text.as_bytes())?;
        texts.push(text);
    }
    Ok(staging.add(Change::default(), Vec::new(), texts).await?)
}
