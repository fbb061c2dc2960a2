//! Imports calls. The records of the open turn's calls must match the state.

use super::media::replace_descriptions_in_result;
use super::{Claims, Import, check_name, damaged, parse_items};
use crate::transfer::TransferError;
use crate::transfer::document::{Batch, List};
use crate::transfer::staging::Staging;
use agent_core::change::{CallChange, CallRecord, CallState, Change};
use agent_core::message::CallId;
use agent_store::CallFilter;
use std::collections::HashSet;

/// A call of the open turn, according to the document's state.
pub(super) struct OpenCall {
    name: String,
    /// Whether the call has a result, according to the document's state.
    is_done: bool,
    /// Whether a record of the call has been read.
    is_recorded: bool,
    /// Whether a message of the model contains the call.
    pub(super) is_written: bool,
}

impl OpenCall {
    pub(super) fn new(name: &str, is_done: bool) -> Self {
        Self { name: name.to_owned(), is_done, is_recorded: false, is_written: false }
    }
}

impl Import {
    pub(super) async fn store_calls(&mut self, batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
        let calls: Vec<(usize, CallRecord)> = parse_items(List::Calls, batch)?;
        refuse_repeated(&calls, staging).await?;
        let mut change = Change::default();
        for (index, mut record) in calls {
            self.check_call(index, &record)?;
            if let Some(result) = &mut record.result {
                replace_descriptions_in_result(&mut result.content, &format!("calls[{index}]"), staging).await?;
            }
            // This host determines the source of an open call itself, and does not use edited arguments from
            // a document.
            if record.result.is_none() && self.claims == Claims::Discarded {
                (record.source, record.edited) = (None, None);
            }
            if self.unknown.contains(&record.id) {
                record.state = CallState::OutcomeUnknown;
            }
            change.calls.push(CallChange::Requested(record));
        }
        Ok(staging.add(change, Vec::new(), Vec::new()).await?)
    }

    /// Checks that a call without a result belongs to the open turn and matches the state.
    fn check_call(&mut self, index: usize, record: &CallRecord) -> Result<(), TransferError> {
        let id = &record.id;
        check_name(&id.0).map_err(|problem| damaged(format!("calls[{index}].id"), problem))?;
        if record.turn == 0 || record.turn > self.run.turns {
            return Err(damaged("calls", format!("the turn of the call `{id}` has not started")));
        }
        let Some(open) = self.open.get_mut(id) else {
            return match &record.result {
                Some(_) => Ok(()),
                None => {
                    Err(damaged("calls", format!("the call `{id}` has no result and does not belong to an open turn")))
                }
            };
        };
        let is_mismatch =
            record.name != open.name || record.turn != self.run.turns || record.result.is_some() != open.is_done;
        if is_mismatch {
            return Err(damaged("calls", format!("the record of the open call `{id}` does not match the state")));
        }
        open.is_recorded = true;
        Ok(())
    }

    /// Checks that all open calls have a record. This function must not be called before the last call was read.
    pub(super) fn check_open_calls(&self) -> Result<(), TransferError> {
        match self.open.iter().find(|(_, open)| !open.is_recorded) {
            Some((call, _)) => Err(damaged("calls", format!("the open call `{call}` is missing"))),
            None => Ok(()),
        }
    }
}

async fn refuse_repeated(calls: &[(usize, CallRecord)], staging: &Staging<'_>) -> Result<(), TransferError> {
    let duplicate =
        |index: usize, id: &CallId| Err(damaged(format!("calls[{index}]"), format!("the call `{id}` occurs twice")));
    let mut seen = HashSet::new();
    if let Some((index, record)) = calls.iter().find(|(_, record)| !seen.insert(&record.id)) {
        return duplicate(*index, &record.id);
    }
    let ids = calls.iter().map(|(_, record)| record.id.clone()).collect();
    let stored = staging.store.calls(staging.session(), CallFilter::Ids(ids)).await?;
    let repeated = calls.iter().find(|(_, record)| stored.iter().any(|other| other.id == record.id));
    repeated.map_or(Ok(()), |(index, record)| duplicate(*index, &record.id))
}
