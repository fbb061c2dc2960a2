//! Results of the tools that the program which began the turn offers (I3).

use super::responses::ResponseOutcome;
use crate::host::SessionServices;
use crate::records::CommitNotes;
use crate::requests::{Accepted, ClientResult, RequestError, RequestProblem};
use crate::session::Session;
use crate::tools::results::bounded;
use agent_core::change::{CallRecord, CallResult};
use agent_core::event::WaitCause;
use agent_core::message::{CallId, Content};
use agent_core::run::{Answerer, Input, MAX_CALLS};
use agent_core::tool::ToolSource;
use agent_store::CallFilter;
use std::collections::BTreeMap;

impl Session {
    /// Takes the results of calls of the client's tools. All results are checked before the first of them is stored. A result
    /// that the call already has is skipped, so a client may send all results again after an error.
    pub(crate) async fn take_results(&mut self, results: Vec<ClientResult>) -> Result<Accepted, RequestError> {
        let records = called(&self.services, &results).await?;
        let waits = self.run.waits();
        let mut taken = Vec::new();
        let mut outcome = ResponseOutcome::Duplicate;
        for result in results {
            let record = record_of(&records, &result, &self.services)?;
            let is_awaited = |cause: &WaitCause| *cause == WaitCause::Client;
            match settled(record, &result) {
                Some(ResponseOutcome::Duplicate) => {}
                Some(settled) => outcome = settled,
                None if waits.iter().any(|wait| wait.call == record.id && is_awaited(&wait.cause)) => {
                    if taken.iter().any(|(call, _)| *call == record.id) {
                        let message = format!("the call `{}` has two results", record.id);
                        return Err(RequestError::new(RequestProblem::Invalid, message));
                    }
                    taken.push((record.id.clone(), call_result(&result)));
                }
                None => {
                    let message = format!("the call `{}` does not wait for a result of the client", record.id);
                    return Err(RequestError::new(RequestProblem::Conflict, message));
                }
            }
        }
        if taken.is_empty() {
            return Ok(outcome.into());
        }
        for (call, result) in taken {
            self.apply(Input::Respond { call, from: Answerer::Client, result }, CommitNotes::default()).await?;
        }
        Ok(Accepted::Stored { violations: Vec::new(), waits: self.run.waits() })
    }
}

/// Returns the outcome of results if all of their calls already have a result. Only the store is read.
pub(crate) async fn settled_results(
    services: &SessionServices,
    results: &[ClientResult],
) -> Result<Option<ResponseOutcome>, RequestError> {
    let records = called(services, results).await?;
    let mut outcome = ResponseOutcome::Duplicate;
    for result in results {
        match settled(record_of(&records, result, services)?, result) {
            None => return Ok(None),
            Some(ResponseOutcome::Duplicate) => {}
            Some(settled) => outcome = settled,
        }
    }
    Ok(Some(outcome))
}

/// Reads the calls to which the results belong.
async fn called(
    services: &SessionServices,
    results: &[ClientResult],
) -> Result<BTreeMap<CallId, CallRecord>, RequestError> {
    if results.len() > MAX_CALLS {
        let message = format!("{} results were sent, but a reply has at most {MAX_CALLS} calls", results.len());
        return Err(RequestError::new(RequestProblem::Invalid, message));
    }
    let ids = results.iter().flat_map(|result| services.call_ids(&result.call.0)).collect();
    let records = services.store.calls(&services.subject, CallFilter::Ids(ids)).await?;
    Ok(records.into_iter().map(|record| (record.id.clone(), record)).collect())
}

/// Returns the call of a client's tool to which a result belongs.
fn record_of<'r>(
    records: &'r BTreeMap<CallId, CallRecord>,
    result: &ClientResult,
    services: &SessionServices,
) -> Result<&'r CallRecord, RequestError> {
    let mut ids = services.call_ids(&result.call.0).into_iter();
    let record = ids.find_map(|id| records.get(&id)).filter(|record| record.source == Some(ToolSource::Client));
    record.ok_or_else(|| {
        let message = format!("the session has no call `{}` of a client's tool", result.call);
        RequestError::new(RequestProblem::NotFound, message)
    })
}

/// Returns the outcome of a result if the call already has one.
fn settled(record: &CallRecord, result: &ClientResult) -> Option<ResponseOutcome> {
    let known = record.result.as_ref()?;
    let own = call_result(result);
    let is_same = (&known.content, known.is_error) == (&own.content, own.is_error);
    Some(if is_same { ResponseOutcome::Duplicate } else { ResponseOutcome::Late })
}

fn call_result(result: &ClientResult) -> CallResult {
    let content = bounded(vec![Content::Text(result.text.clone())]);
    CallResult { content, is_error: result.is_error, ..CallResult::default() }
}
