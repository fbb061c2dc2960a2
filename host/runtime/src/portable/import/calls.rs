//! Calls of a document: what the state says of those of the open turn must stand in their records.

use super::media::correct_content;
use super::{Claims, Import, all, check_name, damaged};
use crate::portable::PortableError;
use crate::portable::document::{Batch, List};
use crate::portable::staging::Staging;
use agent_core::change::{CallChange, CallRecord, CallState, Change};
use agent_core::message::CallId;
use agent_store::CallFilter;
use std::collections::HashSet;

/// A call of the open turn, as the state has it.
pub(super) struct OpenCall {
    name: String,
    /// It has its result.
    is_done: bool,
    is_recorded: bool,
    /// A message of the model contains it.
    pub(super) is_written: bool,
}

impl OpenCall {
    pub(super) fn new(name: &str, is_done: bool) -> Self {
        Self { name: name.to_owned(), is_done, is_recorded: false, is_written: false }
    }
}

impl Import {
    pub(super) async fn store_calls(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
        let calls: Vec<(usize, CallRecord)> = all(List::Calls, batch)?;
        refuse_repeated(&calls, staging).await?;
        let mut change = Change::default();
        for (place, mut record) in calls {
            self.check_call(place, &record)?;
            if let Some(result) = &mut record.result {
                correct_content(&mut result.content, &format!("calls[{place}]"), staging).await?;
            }
            // Who runs an open call, and with which arguments somebody has changed it, this host finds out itself.
            if record.result.is_none() && self.claims == Claims::Forgotten {
                (record.source, record.edited) = (None, None);
            }
            if self.unknown.contains(&record.id) {
                record.state = CallState::OutcomeUnknown;
            }
            change.calls.push(CallChange::Requested(record));
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    /// A call without a result is one of the open turn.
    fn check_call(&mut self, place: usize, record: &CallRecord) -> Result<(), PortableError> {
        let id = &record.id;
        check_name(&id.0).map_err(|problem| damaged(format!("calls[{place}].id"), problem))?;
        if record.turn == 0 || record.turn > self.run.turns {
            return Err(damaged("calls", format!("the call `{id}` is of a turn that has not begun")));
        }
        let Some(open) = self.open.get_mut(id) else {
            return match &record.result {
                Some(_) => Ok(()),
                None => Err(damaged("calls", format!("`{id}` has no result, and its turn does not wait for one"))),
            };
        };
        let is_another =
            record.name != open.name || record.turn != self.run.turns || record.result.is_some() != open.is_done;
        if is_another {
            return Err(damaged("calls", format!("the record of the open call `{id}` is another call's")));
        }
        open.is_recorded = true;
        Ok(())
    }

    /// Behind the last call.
    pub(super) fn check_open_calls(&self) -> Result<(), PortableError> {
        match self.open.iter().find(|(_, open)| !open.is_recorded) {
            Some((call, _)) => Err(damaged("calls", format!("the open call `{call}` is missing"))),
            None => Ok(()),
        }
    }
}

async fn refuse_repeated(calls: &[(usize, CallRecord)], staging: &Staging<'_>) -> Result<(), PortableError> {
    let twice =
        |place: usize, id: &CallId| Err(damaged(format!("calls[{place}]"), format!("call `{id}` is there twice")));
    let mut new = HashSet::new();
    if let Some((place, record)) = calls.iter().find(|(_, record)| !new.insert(&record.id)) {
        return twice(*place, &record.id);
    }
    let ids = calls.iter().map(|(_, record)| record.id.clone()).collect();
    let there = staging.store.calls(staging.session(), CallFilter::Ids(ids)).await?;
    let known = calls.iter().find(|(_, record)| there.iter().any(|other| other.id == record.id));
    known.map_or(Ok(()), |(place, record)| twice(*place, &record.id))
}
