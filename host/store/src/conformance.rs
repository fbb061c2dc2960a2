//! Conformance suite: tests of the behaviour that every store must have (D6). To test a store, call [`run`], which
//! panics at the first test case that fails.

mod approvals;
mod audit;
mod blobs;
mod budget_ledger;
mod calls;
mod commits;
mod continuations;
mod hostile;
mod key_value;
mod leases;
mod memories;
mod monitoring;
mod outbox;
mod projections;
mod schedules;
mod session_lists;
mod session_requests;
mod sessions;
mod trace_exports;
mod usage;
mod versions;

use crate::{Commit, OpenMode, OpenedSession, SessionMeta, SessionState, Status, Store, StoreError};
use agent_core::change::{Body, CallChange, CallRecord, CallResult, CallState, Change, NewMessage};
use agent_core::event::{Event, EventKind};
use agent_core::message::{CallId, Content, MessageId, Part, Role, ToolCall};
use agent_core::model::Usage;
use agent_core::tool::{CallCost, ModelUse, ToolSource};
use serde_json::{Value, json};
use std::sync::Arc;

/// A new, empty store for one test case.
pub struct TestStore {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// A second instance of the store that uses the same data, as another process would. `None` if the store's data
    /// cannot be shared.
    pub second: Option<Arc<dyn Store>>,
}

/// Runs every test case, each with a new empty store.
pub async fn run(mut new_store: impl FnMut() -> TestStore) {
    commits::commit_stores_all_parts(new_store()).await;
    commits::commit_stores_a_view_in_pieces(new_store()).await;
    commits::snapshot_is_read_without_a_lease(new_store()).await;
    commits::refused_commit_stores_nothing(new_store()).await;
    commits::commit_requires_the_current_revision(new_store()).await;
    commits::commit_refuses_gaps_in_numbers(new_store()).await;
    commits::commit_refuses_provisional_events(new_store()).await;
    commits::messages_are_read_by_range_and_id(new_store()).await;
    commits::sessions_commit_concurrently(new_store()).await;
    calls::result_is_stored_once_and_shown_in_its_message(new_store()).await;
    calls::finished_call_keeps_its_result(new_store()).await;
    calls::calls_are_filtered_by_turn_id_and_state(new_store()).await;
    calls::edited_arguments_are_stored_next_to_the_original(new_store()).await;
    outbox::commit_writes_outbox_items(new_store()).await;
    outbox::item_id_is_written_once_per_session(new_store()).await;
    outbox::items_are_filtered_and_paged(new_store()).await;
    outbox::delivered_items_remain_until_the_session_is_deleted(new_store()).await;
    outbox::memory_is_added_when_its_item_is_delivered(new_store()).await;
    outbox::memory_of_an_undone_turn_is_not_added(new_store()).await;
    outbox::failed_deliveries_are_counted(new_store()).await;
    schedules::schedules_are_kept_per_agent_and_name(new_store()).await;
    approvals::grants_are_listed_per_agent_until_revoked(new_store()).await;
    approvals::grants_that_differ_in_one_field_are_stored_separately(new_store()).await;
    approvals::rule_keeps_its_first_identity(new_store()).await;
    audit::entries_are_appended_in_order(new_store()).await;
    audit::unchanged_grants_add_no_entry(new_store()).await;
    audit::commit_writes_denials_and_approvals(new_store()).await;
    audit::host_grants_and_revocations_add_entries(new_store()).await;
    audit::entries_form_a_chain(new_store()).await;
    audit::long_texts_are_shortened(new_store()).await;
    versions::versions_start_and_end(new_store()).await;
    versions::new_rollback_replaces_the_previous_one(new_store()).await;
    versions::rollback_updates_the_history_immediately(new_store()).await;
    versions::set_serving_returns_each_change_once(new_store()).await;
    versions::turn_plugins_are_recorded_per_agent_and_name(new_store()).await;
    versions::sources_are_added_per_version(new_store()).await;
    versions::trial_totals_grow_until_the_trial_ends(new_store()).await;
    leases::session_has_one_holder(new_store()).await;
    leases::lost_lease_cannot_commit(new_store()).await;
    leases::second_instance_opens_after_release(new_store()).await;
    continuations::sessions_continue_when_they_are_due(new_store()).await;
    continuations::parents_and_children_continue_after_each_other(new_store()).await;
    continuations::open_sessions_are_not_continued(new_store()).await;
    continuations::last_events_are_read_for_many_sessions(new_store()).await;
    sessions::open_modes_are_enforced(new_store()).await;
    sessions::sessions_are_listed_newest_first(new_store()).await;
    sessions::delegated_sessions_are_listed_by_parent(new_store()).await;
    session_lists::suspended_sessions_are_listed_oldest_first(new_store()).await;
    session_lists::search_is_limited_to_sessions(new_store()).await;
    sessions::records_are_read_by_turn_kind_and_page(new_store()).await;
    sessions::incomplete_session_can_only_be_listed_and_deleted(new_store()).await;
    sessions::page_ends_after_max_page_bytes(new_store()).await;
    sessions::delete_removes_everything_of_the_session(new_store()).await;
    sessions::search_finds_evicted_but_not_undone_messages(new_store()).await;
    sessions::missing_session_is_reported(new_store()).await;
    blobs::blob_is_visible_only_to_sessions_that_stored_it(new_store()).await;
    blobs::blob_is_read_in_ranges(new_store()).await;
    blobs::record_texts_are_stored_by_digest(new_store()).await;
    blobs::delete_keeps_blobs_of_other_sessions(new_store()).await;
    blobs::references_are_listed_in_pages(new_store()).await;
    blobs::media_are_shared_between_sessions(new_store()).await;
    key_value::buckets_are_separate(new_store()).await;
    key_value::oversized_keys_and_values_are_refused(new_store()).await;
    key_value::quota_covers_all_buckets_of_a_plugin(new_store()).await;
    key_value::increment_is_atomic(new_store()).await;
    key_value::compare_and_swap_is_atomic(new_store()).await;
    memories::search_ranks_the_memories_of_one_user(new_store()).await;
    memories::rare_words_find_old_memories(new_store()).await;
    memories::add_is_idempotent_and_forget_removes(new_store()).await;
    memories::memories_are_listed_newest_first(new_store()).await;
    memories::search_respects_the_memory_scope(new_store()).await;
    memories::search_respects_the_project(new_store()).await;
    memories::memories_are_removed_with_their_turn_or_session(new_store()).await;
    projections::projections_match_the_log(new_store()).await;
    projections::pending_messages_do_not_count_as_differences(new_store()).await;
    projections::rebuild_takes_the_status_from_the_snapshot(new_store()).await;
    budget_ledger::usage_is_charged_once(new_store()).await;
    budget_ledger::charges_are_added_up_in_intervals(new_store()).await;
    budget_ledger::all_tokens_of_a_prompt_are_charged(new_store()).await;
    budget_ledger::delegated_work_is_charged_to_the_delegating_turns(new_store()).await;
    budget_ledger::charges_never_overflow(new_store()).await;
    trace_exports::export_begins_with_new_events(new_store()).await;
    trace_exports::turns_are_read_after_a_position(new_store()).await;
    trace_exports::one_instance_exports_a_session(new_store()).await;
    trace_exports::several_sessions_are_exported_together(new_store()).await;
    monitoring::sessions_are_counted_by_agent_and_state(new_store()).await;
    monitoring::undelivered_items_are_counted(new_store()).await;
    monitoring::writes_are_counted(new_store()).await;
    session_requests::requests_reach_the_owner_of_the_session(new_store()).await;
    session_requests::a_commit_answers_a_request(new_store()).await;
    session_requests::lost_leases_are_found(new_store()).await;
    session_requests::requests_to_a_session_are_bounded(new_store()).await;
    session_requests::all_requests_are_bounded(new_store()).await;
    session_requests::pending_requests_are_shared_out(new_store()).await;
    usage::usage_follows_the_log(new_store()).await;
    usage::usage_is_added_up_per_agent_and_user(new_store()).await;
    usage::sums_of_usage_never_overflow(new_store()).await;
    hostile::strange_text_is_stored_unchanged(new_store()).await;
    hostile::search_accepts_any_query(new_store()).await;
    hostile::long_text_is_stored_and_found(new_store()).await;
    hostile::too_deep_json_is_refused(new_store()).await;
}

/// An open session with its current revision, the id of its last message and the number of its last event.
struct SessionWriter {
    store: Arc<dyn Store>,
    opened: OpenedSession,
    revision: u64,
    messages: MessageId,
    events: u64,
}

impl SessionWriter {
    async fn new(store: &Arc<dyn Store>, session: &str) -> Self {
        let opened = store.open(session, OpenMode::Either, meta("tester")).await.expect("the session opens");
        let (revision, messages, events) = (opened.revision, opened.last_message, opened.last_event);
        Self { store: store.clone(), opened, revision, messages, events }
    }

    /// Stores the commit. Then updates the revision, the last message id and the last event number of this writer.
    async fn commit(&mut self, commit: Commit) -> Result<u64, StoreError> {
        let (messages, events) = (commit.change.messages.len() as u64, commit.change.events.len() as u64);
        self.revision = self.store.commit(&self.opened.lease, self.revision, commit).await?;
        self.messages += messages;
        self.events += events;
        Ok(self.revision)
    }

    /// Appends one message of the user for each text.
    async fn append_texts(&mut self, texts: &[&str]) {
        let first = self.messages + 1;
        let messages = (first..).zip(texts).map(|(id, text)| message(id, vec![Part::Text((*text).to_owned())]));
        let change = Change { messages: messages.collect(), ..Change::default() };
        self.commit(commit_of(change)).await.expect("the commit succeeds");
    }

    async fn release(self) {
        self.store.release(self.opened.lease).await.expect("the lease is released");
    }
}

fn meta(agent: &str) -> SessionMeta {
    SessionMeta { agent: agent.to_owned(), user: Some("somebody".to_owned()), delegated_by: None }
}

fn commit_of(change: Change) -> Commit {
    let status =
        Status { state: SessionState::Running, turn: 1, title: Some("the title".to_owned()), ..Status::default() };
    Commit { snapshot: b"{\"run\":1}".to_vec(), change, status, ..Commit::default() }
}

fn message(id: MessageId, parts: Vec<Part>) -> NewMessage {
    NewMessage { id, turn: 1, role: Role::User, body: Body::Parts(parts), tokens: 7 }
}

fn text_parts(text: &str) -> Vec<Part> {
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

fn finished_change(id: &str, content: &str) -> CallChange {
    let cost = CallCost {
        cpu_us: 3,
        wall_us: 5,
        queue_us: 7,
        memory_bytes: 11,
        bytes_in: 13,
        bytes_out: 17,
        requests: 19,
        fuel: Some(23),
        model: ModelUse { asks: 29, usage: Usage::new(31, 37) },
    };
    let content = vec![Content::Text(content.to_owned()), Content::Json(json!({"lines": 2}))];
    let result = CallResult { content, structured: Some(json!([1, 2])), cost, ..CallResult::default() };
    CallChange::Finished { id: CallId(id.to_owned()), result }
}

/// Returns a message of the assistant that requests the call.
fn call_message(id: MessageId, call: &CallRecord) -> NewMessage {
    let part = ToolCall { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() };
    NewMessage { role: Role::Assistant, ..message(id, vec![Part::ToolCall(part)]) }
}

fn result_message(id: MessageId, call: &str) -> NewMessage {
    NewMessage { id, turn: 1, role: Role::Tool, body: Body::ResultOf(CallId(call.to_owned())), tokens: 9 }
}

/// Returns a JSON value that is nested in `levels` arrays.
fn nested_json(levels: usize) -> Value {
    (0..levels).fold(json!("core"), |inner, _| json!([inner]))
}
