//! Adds details of the calls to the approval requests that users see. If a user has changed the arguments of a call,
//! adds a note for the model to the result of the call.

use super::context::ApprovalContext;
use crate::history::LoadedHistory;
use agent_core::approval::edit_note;
use agent_core::change::{CallChange, CallRecord, Change};
use agent_core::event::{ApprovalDetails, ApprovalItem, EventKind};
use agent_core::message::{CallId, Content};
use agent_core::run::Input;
use agent_store::StoreError;
use serde_json::Value;

/// Adds details to the approval requests in a change, for example the arguments of the calls. The details show users
/// what a call does before they allow the call.
pub(crate) async fn add_event_details(
    context: ApprovalContext<'_>,
    history: &mut LoadedHistory,
    change: &mut Change,
) -> Result<(), StoreError> {
    let requested = |call: &CallChange| match call {
        CallChange::Requested(record) => Some(record.clone()),
        _ => None,
    };
    let new_records: Vec<CallRecord> = change.calls.iter().filter_map(requested).collect();
    for event in &mut change.events {
        match &mut event.kind {
            EventKind::ApprovalRequested { calls, .. } => {
                add_item_details(context, history, calls, &new_records).await?
            }
            // The run does not store the arguments of calls. If a call never ran, its event has no arguments yet, so
            // they are copied from the call's record.
            EventKind::ToolCall { call, arguments, attempt: 0, .. } if *arguments == Value::Null => {
                let stored = history.load_calls(std::slice::from_ref(call)).await?;
                let record = new_records.iter().chain(&stored).find(|record| record.id == *call);
                *arguments = record.map(|record| record.effective_arguments().clone()).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds the details of each call to the items of an approval request. `new_records` contains the records of calls that
/// are not stored yet.
pub(crate) async fn add_item_details(
    context: ApprovalContext<'_>,
    history: &mut LoadedHistory,
    items: &mut [ApprovalItem],
    new_records: &[CallRecord],
) -> Result<(), StoreError> {
    let is_new = |item: &&ApprovalItem| new_records.iter().any(|record| record.id == item.call);
    let stored: Vec<CallId> = items.iter().filter(|item| !is_new(item)).map(|item| item.call.clone()).collect();
    let stored = history.load_calls(&stored).await?;
    for item in items {
        let record = new_records.iter().chain(&stored).find(|record| record.id == item.call);
        let Some(record) = record else { continue };
        if let Some(details) = context.held_request_details(item, record).await? {
            item.details = Some(details);
            continue;
        }
        let Some(tool) = context.services.agent.registry().get(&item.name) else { continue };
        item.details = Some(ApprovalDetails {
            source: tool.source.clone(),
            arguments: record.effective_arguments().clone(),
            traits: tool.definition.traits,
            because: context.ruling(tool).await?.because,
        });
    }
    Ok(())
}

/// Adds a note to the result of a call if a user had changed the arguments of the call. Without the note, the model
/// would not know about the change, because it is still shown the original arguments (L17).
pub(crate) async fn add_edit_note(history: &mut LoadedHistory, mut input: Input) -> Result<Input, StoreError> {
    let (Input::Outcome { call, result } | Input::Respond { call, result, .. }) = &mut input else {
        return Ok(input);
    };
    let record = history.load_calls(std::slice::from_ref(call)).await?.pop();
    if let Some(CallRecord { arguments, edited: Some(edited), .. }) = record {
        result.content.insert(0, Content::Text(edit_note(&arguments, &edited)));
    }
    Ok(input)
}

/// Returns the content of a call's result. If the host has added a note about changed arguments, the content is
/// returned without the note.
pub(crate) fn without_edit_note<'c>(record: &CallRecord, content: &'c [Content]) -> &'c [Content] {
    let CallRecord { arguments, edited: Some(edited), .. } = record else { return content };
    match content.split_first() {
        Some((Content::Text(note), original)) if *note == edit_note(arguments, edited) => original,
        _ => content,
    }
}
