//! Reads the turns of a stored session after a position, and builds their spans.

use crate::content::{ContentLevel, Scrubber};
use crate::derive::{
    Positions, Prompt, QuestionBody, SummaryBody, TraceBody, TurnData, body_of, commit_spans, message_text,
};
use crate::span::{CommitSpans, Span};
use agent_core::event::EventKind;
use agent_core::message::{CallId, Digest, MessageId, Role, StoredMessage};
use agent_store::{CallFilter, ExportPosition, MAX_PAGE, MessageRange, Store, StoreError, StoredRecord, StoredTurn};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The trace of a stored session. Reading it changes nothing in the store.
pub struct SessionTrace {
    store: Arc<dyn Store>,
    session: String,
    scrubber: Scrubber,
    position: ExportPosition,
    /// Whether the last read returned everything that was stored at that moment.
    is_at_end: bool,
}

impl SessionTrace {
    /// Creates a reader that begins after `position`. With the default position, it begins with the first turn.
    pub fn new(store: Arc<dyn Store>, session: &str, scrubber: Scrubber, position: ExportPosition) -> Self {
        Self { store, session: session.to_owned(), scrubber, position, is_at_end: false }
    }

    /// Returns the spans of a turn that was read completely, or of the part of it that is stored now, in the order in which
    /// commits completed them.
    pub async fn spans_of_turn(
        store: Arc<dyn Store>,
        session: &str,
        scrubber: Scrubber,
        turn: &StoredTurn,
    ) -> Result<Vec<Span>, StoreError> {
        let trace = Self::new(store, session, scrubber, ExportPosition::default());
        Ok(trace.load(turn).await?.into_iter().flat_map(|commit| commit.spans).collect())
    }

    /// Returns the spans of the next turn, or of the part of it that is stored now, in the order of the commits. Returns
    /// `None` if nothing was stored after the position when the last turn was read.
    pub async fn next(&mut self) -> Result<Option<Vec<CommitSpans>>, StoreError> {
        if std::mem::take(&mut self.is_at_end) {
            return Ok(None);
        }
        let Some(stored) = self.store.turn_after(&self.session, self.position).await? else { return Ok(None) };
        let commits = self.load(&stored).await?;
        match commits.last() {
            Some(last) if last.position != self.position => self.position = last.position,
            _ => return Ok(None),
        }
        self.is_at_end = !stored.is_followed;
        Ok(Some(commits))
    }

    /// Loads the data to which the events and records of a turn refer, and builds the spans.
    async fn load(&self, stored: &StoredTurn) -> Result<Vec<CommitSpans>, StoreError> {
        let mut data = TurnData {
            session: &self.session,
            stored,
            position: self.position,
            scrubber: &self.scrubber,
            calls: BTreeMap::new(),
            messages: BTreeMap::new(),
            prompts: BTreeMap::new(),
            texts: BTreeMap::new(),
            input: None,
            output: None,
        };
        let filter = CallFilter::Ids(self.named_calls(stored));
        let calls = self.store.calls(&self.session, filter).await?;
        data.calls = calls.into_iter().map(|call| (call.id.clone(), call)).collect();
        if self.scrubber.level() != ContentLevel::Off {
            self.load_content(&mut data).await?;
        }
        Ok(commit_spans(&data))
    }

    /// Returns the calls that finish after the position.
    fn named_calls(&self, stored: &StoredTurn) -> Vec<CallId> {
        let new = stored.events.iter().filter(|event| event.event.sequence > self.position.event);
        let calls = new.filter_map(|event| match &event.event.kind {
            EventKind::ToolResult { call, .. } | EventKind::ToolResultError { call, .. } => Some(call.clone()),
            _ => None,
        });
        calls.take(MAX_PAGE).collect()
    }

    async fn load_content(&self, data: &mut TurnData<'_>) -> Result<(), StoreError> {
        for record in data.stored.records.iter().filter(|record| record.number > self.position.record) {
            match record.record.kind.as_str() {
                "prompt" => self.load_prompt(record, data).await?,
                "host_model" => {
                    let Some(body) = body_of::<QuestionBody>(record) else { continue };
                    let digests = body.question.system.into_iter();
                    let digests = digests.chain(body.question.messages.into_iter().map(|(_, digest)| digest));
                    self.load_texts(digests, data).await?;
                }
                "summary" => {
                    let Some(body) = body_of::<SummaryBody>(record) else { continue };
                    self.load_texts([body.summary], data).await?;
                }
                _ => {}
            }
        }
        if data.stored.events.iter().any(|event| matches!(event.event.kind, EventKind::LoopEnd { .. })) {
            self.load_input_and_output(data).await?;
        }
        Ok(())
    }

    async fn load_prompt(&self, record: &StoredRecord, data: &mut TurnData<'_>) -> Result<(), StoreError> {
        let Some(prompt) = body_of::<Prompt>(record) else { return Ok(()) };
        self.load_texts(prompt.system.iter().cloned(), data).await?;
        if let Some(list) = prompt.tool_list.filter(|_| self.scrubber.level() == ContentLevel::Complete) {
            self.load_texts([list.clone()], data).await?;
            let list = data.texts.get(&list).and_then(|list| serde_json::from_str::<serde_json::Value>(list).ok());
            let digests = list.as_ref().and_then(|list| list["definitions"].as_array()).cloned().unwrap_or_default();
            let digests = digests.iter().filter_map(|digest| digest.as_str().map(str::to_owned));
            self.load_texts(digests.collect::<Vec<_>>(), data).await?;
        }
        let (ids, omitted) = self.latest_messages(&prompt.messages).await?;
        let missing: Vec<_> = ids.iter().copied().filter(|id| !data.messages.contains_key(id)).collect();
        match self.store.messages(&self.session, MessageRange::Ids(missing)).await {
            Ok(messages) => data.messages.extend(messages.into_iter().map(|message| (message.id, message))),
            // An imported record may refer to messages that do not exist.
            Err(StoreError::NoMessage { .. }) => {}
            Err(error) => return Err(error),
        }
        data.prompts.insert(record.number, (ids, omitted));
        Ok(())
    }

    /// Returns the ids of the latest messages of a prompt, oldest first, and how many earlier messages are left out.
    async fn latest_messages(&self, positions: &Positions) -> Result<(Vec<MessageId>, usize), StoreError> {
        let limit = self.scrubber.level().messages();
        let ids = |listed: &[(u64, i64)]| listed.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let (mut latest, earlier) = match positions {
            Positions::Each(listed) => (ids(listed), &[] as &[String]),
            Positions::Blocks { blocks, rest } => (ids(rest), blocks.as_slice()),
        };
        let mut omitted = latest.len().saturating_sub(limit);
        latest.drain(..omitted);
        for block in earlier.iter().rev() {
            let text = self.text(block).await?.unwrap_or_default();
            let mut listed = ids(&serde_json::from_str::<Vec<(u64, i64)>>(&text).unwrap_or_default());
            let excess = (latest.len() + listed.len()).saturating_sub(limit).min(listed.len());
            omitted += excess;
            listed.drain(..excess);
            listed.append(&mut latest);
            latest = listed;
        }
        Ok((latest, omitted))
    }

    async fn load_texts(
        &self,
        digests: impl IntoIterator<Item = String>,
        data: &mut TurnData<'_>,
    ) -> Result<(), StoreError> {
        for digest in digests.into_iter().collect::<BTreeSet<_>>() {
            if !data.texts.contains_key(&digest)
                && let Some(text) = self.text(&digest).await?
            {
                data.texts.insert(digest, text);
            }
        }
        Ok(())
    }

    /// Returns a text of the session. Returns `None` if the session has no such text.
    async fn text(&self, digest: &str) -> Result<Option<String>, StoreError> {
        let Ok(digest) = Digest::parse(digest) else { return Ok(None) };
        match self.store.text(&self.session, &digest).await {
            Ok(text) => Ok(Some(text)),
            Err(StoreError::NoBlob { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Loads the input of an ended turn, which is its first message of the user, and its output, which is its last message
    /// of the assistant.
    async fn load_input_and_output(&self, data: &mut TurnData<'_>) -> Result<(), StoreError> {
        let trace = data.stored.records.iter().rfind(|record| record.record.kind == "trace");
        let first = trace.and_then(body_of::<TraceBody>).and_then(|body| body.first_message).unwrap_or(1);
        let turn = data.stored.turn;
        let mut after = first.saturating_sub(1);
        loop {
            let range = MessageRange::After { id: after, limit: MAX_PAGE };
            let page = self.store.messages(&self.session, range).await?;
            let Some(last) = page.last().map(|message| (message.id, message.turn)) else { return Ok(()) };
            let of_turn = |role| move |message: &&StoredMessage| message.turn == turn && message.role == role;
            if data.input.is_none() {
                data.input = page.iter().find(of_turn(Role::User)).map(message_text);
            }
            let outputs = page.iter().rev().filter(of_turn(Role::Assistant)).map(message_text);
            if let Some(output) = outputs.into_iter().find(|text| !text.is_empty()) {
                data.output = Some(output);
            }
            if last.1 > turn {
                return Ok(());
            }
            after = last.0;
        }
    }
}
