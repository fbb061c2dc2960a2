//! The messages and calls that a session keeps in memory, so that a step of a turn reads only the missing messages and
//! calls from the store.

use agent_core::change::{Body, CallChange, CallRecord, CallResult, Change};
use agent_core::message::{CallId, Message, MessageId, Part, StoredMessage, ToolResult};
use agent_core::run::{Run, ViewEntry};
use agent_core::view::shown_message;
use agent_store::{CallFilter, MAX_PAGE, MessageRange, Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The part of a session's history that is in memory.
pub(crate) struct LoadedHistory {
    pub(super) store: Arc<dyn Store>,
    /// Id (subject) of the session.
    pub(super) session: String,
    messages: HashMap<MessageId, Arc<StoredMessage>>,
    calls: HashMap<CallId, CallRecord>,
}

impl LoadedHistory {
    /// Creates the history of this session, with no messages or calls in memory.
    pub(crate) fn new(store: Arc<dyn Store>, session: String) -> Self {
        Self { store, session, messages: HashMap::new(), calls: HashMap::new() }
    }

    /// Returns the subject of the session.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Applies a committed change to the messages and calls in memory. `run` is the state after the change.
    pub(crate) fn record_change(&mut self, run: &Run, change: &Change) {
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
        if !change.hidden.is_empty() || self.messages.len() > 2 * run.view.len() + 16 {
            let view: HashSet<MessageId> = run.view.iter().map(|entry| entry.id).collect();
            self.messages.retain(|id, _| view.contains(id));
        }
    }

    /// Returns the messages with these ids. Messages that are not in memory are read from the store.
    pub(crate) async fn load(&mut self, ids: &[MessageId]) -> Result<Vec<Arc<StoredMessage>>, StoreError> {
        let missing: Vec<MessageId> = ids.iter().filter(|id| !self.messages.contains_key(id)).copied().collect();
        for page in missing.chunks(MAX_PAGE) {
            let page = MessageRange::Ids(page.to_vec());
            let found = self.store.messages(&self.session, page).await?;
            self.messages.extend(found.into_iter().map(|message| (message.id, Arc::new(message))));
        }
        Ok(ids.iter().filter_map(|id| self.messages.get(id).cloned()).collect())
    }

    /// Returns the messages that are in the model's view and that `filter` accepts, as the messages are shown to the
    /// model. Tool results are truncated to `limit` characters.
    pub(crate) async fn shown(
        &mut self,
        run: &Run,
        limit: usize,
        filter: impl Fn(&ViewEntry) -> bool,
    ) -> Result<Vec<Message>, StoreError> {
        let entries: Vec<ViewEntry> = run.view.iter().filter(|entry| filter(entry)).copied().collect();
        let ids: Vec<MessageId> = entries.iter().map(|entry| entry.id).collect();
        let messages = self.load(&ids).await?;
        let shown = messages.iter().zip(&entries);
        Ok(shown.map(|(message, entry)| shown_message(message, run.seen_count(entry), limit)).collect())
    }

    /// Returns the calls with these ids, in the state that the calls have after `change`.
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

    /// Returns the calls with these ids. Calls that are not stored are left out.
    pub(crate) async fn load_calls(&mut self, ids: &[CallId]) -> Result<Vec<CallRecord>, StoreError> {
        let missing: Vec<CallId> = ids.iter().filter(|id| !self.calls.contains_key(id)).cloned().collect();
        for page in missing.chunks(MAX_PAGE) {
            let found = self.store.calls(&self.session, CallFilter::Ids(page.to_vec())).await?;
            self.calls.extend(found.into_iter().map(|call| (call.id.clone(), call)));
        }
        Ok(ids.iter().filter_map(|id| self.calls.get(id).cloned()).collect())
    }
}

pub(super) fn result_part(call: &CallId, name: String, result: CallResult) -> Part {
    let CallResult { content, is_error, .. } = result;
    Part::ToolResult(ToolResult { call_id: call.clone(), name, content, is_error })
}
