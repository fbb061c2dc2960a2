//! What a session keeps of its messages and calls, so that a step reads from the store only what is new to it.

use super::Session;
use agent_core::change::{Body, CallChange, CallRecord, CallResult, Change};
use agent_core::message::{CallId, Message, MessageId, Part, StoredMessage, ToolResult};
use agent_core::run::Entry;
use agent_core::view::shown_message;
use agent_store::{CallFilter, MAX_PAGE, MessageRange, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Session {
    /// Keeps what the open turn will need again.
    pub(super) fn remember(&mut self, change: &Change) {
        for call in &change.calls {
            match call {
                CallChange::Requested(record) => {
                    self.calls.insert(record.id.clone(), record.clone());
                }
                CallChange::Finished { id, result } => {
                    if let Some(record) = self.calls.get_mut(id) {
                        record.result = Some(result.clone());
                    }
                }
                CallChange::Edited { id, arguments } => {
                    if let Some(record) = self.calls.get_mut(id) {
                        record.edited = Some(arguments.clone());
                    }
                }
                CallChange::Moved { .. } => {}
            }
        }
        for message in &change.messages {
            let parts = match &message.body {
                Body::Parts(parts) => parts.clone(),
                Body::ResultOf(call) => match self.calls.remove(call) {
                    Some(CallRecord { name, result: Some(result), .. }) => vec![result_part(call, name, result)],
                    _ => continue,
                },
            };
            let (id, turn, role, tokens) = (message.id, message.turn, message.role, message.tokens);
            self.messages.insert(id, Arc::new(StoredMessage { id, turn, role, parts, tokens }));
        }
        if !change.hidden.is_empty() || self.messages.len() > 2 * self.run.view.len() + 16 {
            let view: HashSet<MessageId> = self.run.view.iter().map(|entry| entry.id).collect();
            self.messages.retain(|id, _| view.contains(id));
        }
    }

    /// Messages of the view, from memory where they are there.
    pub(crate) async fn load(&mut self, ids: &[MessageId]) -> Result<Vec<Arc<StoredMessage>>, StoreError> {
        let missing: Vec<MessageId> = ids.iter().filter(|id| !self.messages.contains_key(id)).copied().collect();
        for page in missing.chunks(MAX_PAGE) {
            let page = MessageRange::Ids(page.to_vec());
            let found = self.shared.store.messages(&self.shared.subject, page).await?;
            self.messages.extend(found.into_iter().map(|message| (message.id, Arc::new(message))));
        }
        Ok(ids.iter().filter_map(|id| self.messages.get(id).cloned()).collect())
    }

    /// Messages of the view, as the model is shown them.
    pub(crate) async fn shown(&mut self, which: impl Fn(&Entry) -> bool) -> Result<Vec<Message>, StoreError> {
        let limit = self.shared.agent.config().bounds.result_characters as usize;
        self.shown_up_to(limit, which).await
    }

    /// Messages of the view by place: id, and in how many model calls it was seen.
    pub(crate) fn places(&self, which: impl Fn(&Entry) -> bool) -> Vec<(MessageId, u32)> {
        let entries = self.run.view.iter().filter(|entry| which(entry));
        entries.map(|entry| (entry.id, self.run.seen_count(entry))).collect()
    }

    /// The same with another limit of a result's characters.
    pub(crate) async fn shown_up_to(
        &mut self,
        limit: usize,
        which: impl Fn(&Entry) -> bool,
    ) -> Result<Vec<Message>, StoreError> {
        let entries: Vec<Entry> = self.run.view.iter().filter(|entry| which(entry)).copied().collect();
        let ids: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
        let messages = self.load(&ids).await?;
        let shown = messages.iter().zip(&entries);
        Ok(shown.map(|(message, entry)| shown_message(message, self.run.seen_count(entry), limit)).collect())
    }

    /// Calls as the change leaves them.
    pub(crate) async fn calls_after(&mut self, ids: &[CallId], change: &Change) -> Result<Vec<CallRecord>, StoreError> {
        let requested = change.calls.iter().filter_map(|call| match call {
            CallChange::Requested(record) => Some((record.id.clone(), record.clone())),
            _ => None,
        });
        let mut calls: HashMap<CallId, CallRecord> = requested.collect();
        let stored: Vec<CallId> = ids.iter().filter(|id| !calls.contains_key(id)).cloned().collect();
        calls.extend(self.load_calls(&stored).await?.into_iter().map(|record| (record.id.clone(), record)));
        for call in &change.calls {
            match call {
                CallChange::Finished { id, result } => {
                    calls.entry(id.clone()).and_modify(|record| record.result = Some(result.clone()));
                }
                CallChange::Edited { id, arguments } => {
                    calls.entry(id.clone()).and_modify(|record| record.edited = Some(arguments.clone()));
                }
                CallChange::Requested(_) | CallChange::Moved { .. } => {}
            }
        }
        Ok(ids.iter().filter_map(|id| calls.remove(id)).collect())
    }

    /// Calls of the open batch.
    pub(crate) async fn load_calls(&mut self, ids: &[CallId]) -> Result<Vec<CallRecord>, StoreError> {
        let missing: Vec<CallId> = ids.iter().filter(|id| !self.calls.contains_key(id)).cloned().collect();
        for page in missing.chunks(MAX_PAGE) {
            let found = self.shared.store.calls(&self.shared.subject, CallFilter::Ids(page.to_vec())).await?;
            self.calls.extend(found.into_iter().map(|call| (call.id.clone(), call)));
        }
        Ok(ids.iter().filter_map(|id| self.calls.get(id).cloned()).collect())
    }
}

pub(crate) fn result_part(call: &CallId, name: String, result: CallResult) -> Part {
    let CallResult { content, is_error, .. } = result;
    Part::ToolResult(ToolResult { call_id: call.clone(), name, content, is_error })
}
