//! What every store must do, as one suite (D6): a store's tests call [`run`]. A failing case panics with what it saw.

mod approvals;
mod audit;
mod blobs;
mod calls;
mod commits;
mod hostile;
mod key_value;
mod leases;
mod memories;
mod outbox;
mod projections;
mod sessions;
mod versions;

use crate::{Commit, OpenMode, OpenedSession, SessionMeta, Status, Store, StoreError};
use agent_core::change::{Body, CallChange, CallRecord, CallResult, CallState, Change, NewMessage};
use agent_core::event::{Event, EventKind};
use agent_core::message::{CallId, Content, MessageId, Part, Role, ToolCall};
use agent_core::model::Usage;
use agent_core::tool::{CallCost, ModelUse, ToolSource};
use serde_json::{Value, json};
use std::sync::Arc;

/// An empty store to test.
pub struct Place {
    /// Itself.
    pub store: Arc<dyn Store>,
    /// Another instance over the same data, as another process has it; none where nobody else can reach the data.
    pub another: Option<Arc<dyn Store>>,
}

/// Runs every case, each in a new place.
pub async fn run(mut new_place: impl FnMut() -> Place) {
    commits::all_of_a_commit_is_stored(new_place()).await;
    commits::a_view_is_stored_in_pieces(new_place()).await;
    commits::nothing_of_a_refused_commit_is_stored(new_place()).await;
    commits::a_commit_needs_the_revision_it_was_made_for(new_place()).await;
    commits::numbers_have_no_gaps(new_place()).await;
    commits::provisional_events_are_refused(new_place()).await;
    commits::ranges_and_hidden_messages(new_place()).await;
    commits::many_sessions_commit_at_once(new_place()).await;
    calls::a_result_stands_once_and_in_its_message(new_place()).await;
    calls::a_finished_call_keeps_its_result(new_place()).await;
    calls::calls_by_turn_id_and_state(new_place()).await;
    calls::edited_arguments_stand_beside_the_models(new_place()).await;
    outbox::items_are_written_with_their_commit(new_place()).await;
    outbox::an_item_is_written_once_a_session(new_place()).await;
    outbox::items_by_session_state_and_page(new_place()).await;
    outbox::delivered_items_stay_and_a_deleted_sessions_go(new_place()).await;
    outbox::a_delivered_memory_leaves_no_text(new_place()).await;
    approvals::grants_by_agent_until_they_are_revoked(new_place()).await;
    approvals::a_grant_is_bound_to_all_it_says(new_place()).await;
    approvals::a_rule_is_bound_once(new_place()).await;
    audit::entries_are_added_in_order(new_place()).await;
    audit::the_same_grants_are_one_entry(new_place()).await;
    audit::denials_and_approvals_come_with_their_commit(new_place()).await;
    audit::host_grants_and_revocations_are_entries(new_place()).await;
    versions::versions_begin_and_end(new_place()).await;
    versions::a_plugin_is_taken_back_once(new_place()).await;
    versions::a_rollback_is_in_the_history_at_once(new_place()).await;
    versions::what_has_changed_is_said_once(new_place()).await;
    versions::components_of_turns_by_agent_and_name(new_place()).await;
    versions::trials_add_up_until_they_end(new_place()).await;
    leases::a_session_has_one_holder(new_place()).await;
    leases::a_lost_lease_cannot_write(new_place()).await;
    leases::another_instance_waits_for_the_release(new_place()).await;
    sessions::modes_of_opening(new_place()).await;
    sessions::lists_and_the_latest(new_place()).await;
    sessions::children_of_a_session(new_place()).await;
    sessions::records_by_turn_and_page(new_place()).await;
    sessions::an_incomplete_session_is_only_listed_and_deleted(new_place()).await;
    sessions::a_page_ends_after_so_many_bytes(new_place()).await;
    sessions::deleting_removes_everything_of_the_session(new_place()).await;
    sessions::only_what_was_evicted_is_found_again(new_place()).await;
    sessions::what_is_missing_is_named(new_place()).await;
    blobs::bytes_are_seen_by_the_sessions_that_put_them(new_place()).await;
    blobs::ranges_of_bytes(new_place()).await;
    blobs::texts_of_records(new_place()).await;
    blobs::deleting_keeps_what_others_refer_to(new_place()).await;
    blobs::references_by_session_and_page(new_place()).await;
    blobs::media_are_shared_without_a_copy(new_place()).await;
    key_value::values_by_agent_plugin_bucket_and_key(new_place()).await;
    key_value::bounds_of_values(new_place()).await;
    key_value::quota_of_a_plugin(new_place()).await;
    key_value::numbers(new_place()).await;
    key_value::swaps_are_atomic(new_place()).await;
    memories::nearest_first_and_only_the_users(new_place()).await;
    memories::adding_twice_and_forgetting(new_place()).await;
    memories::pages_newest_first(new_place()).await;
    memories::found_for_whom_they_are_made(new_place()).await;
    memories::forgotten_with_their_turn_and_session(new_place()).await;
    projections::they_say_what_the_log_says(new_place()).await;
    projections::what_has_not_been_taken_in_is_no_difference(new_place()).await;
    projections::lists_follow_the_snapshot(new_place()).await;
    hostile::strange_text_is_stored_as_text(new_place()).await;
    hostile::queries_cannot_break_the_search(new_place()).await;
    hostile::long_text(new_place()).await;
    hostile::deep_json(new_place()).await;
}

/// A session that a case writes to.
struct Writing {
    store: Arc<dyn Store>,
    opened: OpenedSession,
    revision: u64,
    messages: MessageId,
    events: u64,
}

impl Writing {
    async fn new(store: &Arc<dyn Store>, session: &str) -> Self {
        let opened = store.open(session, OpenMode::Either, meta("tester")).await.expect("the session opens");
        let (revision, messages, events) = (opened.revision, opened.last_message, opened.last_event);
        Self { store: store.clone(), opened, revision, messages, events }
    }

    /// Commits and counts on.
    async fn commit(&mut self, commit: Commit) -> Result<u64, StoreError> {
        let (messages, events) = (commit.change.messages.len() as u64, commit.change.events.len() as u64);
        self.revision = self.store.commit(&self.opened.lease, self.revision, commit).await?;
        self.messages += messages;
        self.events += events;
        Ok(self.revision)
    }

    /// Appends messages of one text each.
    async fn say(&mut self, texts: &[&str]) {
        let first = self.messages + 1;
        let messages = (first..).zip(texts).map(|(id, text)| message(id, vec![Part::Text((*text).to_owned())]));
        let change = Change { messages: messages.collect(), ..Change::default() };
        self.commit(commit_of(change)).await.expect("the messages are taken");
    }

    /// Gives the lease back.
    async fn done(self) {
        self.store.release(self.opened.lease).await.expect("the lease is released");
    }
}

fn meta(agent: &str) -> SessionMeta {
    SessionMeta { agent: agent.to_owned(), user: Some("somebody".to_owned()), delegated_by: None }
}

fn commit_of(change: Change) -> Commit {
    let status = Status { state: "running".to_owned(), turn: 1, title: Some("the title".to_owned()) };
    Commit { snapshot: b"{\"run\":1}".to_vec(), change, status, ..Commit::default() }
}

fn message(id: MessageId, parts: Vec<Part>) -> NewMessage {
    NewMessage { id, turn: 1, role: Role::User, body: Body::Parts(parts), tokens: 7 }
}

fn text(text: &str) -> Vec<Part> {
    vec![Part::Text(text.to_owned())]
}

fn event(session: &str, sequence: u64, kind: EventKind) -> Event {
    Event { session: session.to_owned(), turn: 1, sequence, provisional: None, kind }
}

fn call(id: &str, turn: u32) -> CallRecord {
    CallRecord {
        id: CallId(id.to_owned()),
        turn,
        step: 1,
        name: "files.read".to_owned(),
        source: Some(ToolSource::BuiltIn),
        arguments: json!({"path": "README.md", "from": 1}),
        edited: None,
        state: CallState::Waiting,
        attempt: 0,
        result: None,
    }
}

fn finished(id: &str, content: &str) -> CallChange {
    let cost = CallCost {
        cpu_us: 3,
        wall_us: 5,
        queue_us: 7,
        memory_bytes: 11,
        bytes_in: 13,
        bytes_out: 17,
        requests: 19,
        fuel: Some(23),
        model: ModelUse { asks: 29, usage: Usage { prompt_tokens: 31, completion_tokens: 37 } },
    };
    let content = vec![Content::Text(content.to_owned()), Content::Json(json!({"lines": 2}))];
    let result = CallResult { content, structured: Some(json!([1, 2])), cost, ..CallResult::default() };
    CallChange::Finished { id: CallId(id.to_owned()), result }
}

/// The message in which the model asks for the call.
fn asking(id: MessageId, call: &CallRecord) -> NewMessage {
    let part = ToolCall { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() };
    NewMessage { role: Role::Assistant, ..message(id, vec![Part::ToolCall(part)]) }
}

fn result_of(id: MessageId, call: &str) -> NewMessage {
    NewMessage { id, turn: 1, role: Role::Tool, body: Body::ResultOf(CallId(call.to_owned())), tokens: 9 }
}

/// JSON in `levels` arrays.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("core"), |inner, _| json!([inner]))
}
