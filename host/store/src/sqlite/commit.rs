//! Writes one commit. The calling thread converts the commit to rows, and the writer stores the rows in one savepoint
//! (D2, D6).

use super::audit;
use super::blobs::insert_bytes;
use super::budget_ledger;
use super::failure::{Failure, invalid};
use super::outbox;
use super::queries::{from_json, now, signed, unsigned};
use super::session_requests;
use super::usage;
use super::writer::Effort;
use crate::encoding::audit::ServiceEvent;
use crate::encoding::blobs::StoredBytes;
use crate::encoding::commit_rows::{
    CallRow, EventRow, MessageRow, RecordRow, call_row, event_row, message_row, next_number, record_row,
};
use crate::encoding::outbox::{OutboxRow, outbox_row};
use crate::encoding::usage::changed_turns;
use crate::{Charge, Commit, Lease, RequestAnswer, Status, StoreError, StoredView, ViewPiece};
use agent_core::change::{CallResult, HiddenMessage};
use agent_core::cost::TurnCost;
use agent_core::message::CallId;
use rusqlite::{Connection, OptionalExtension, Params, params};

/// A commit that was converted to rows. The commit has passed all checks that do not need the database.
pub(super) struct PreparedCommit {
    lease: Lease,
    expected_revision: u64,
    snapshot: Vec<u8>,
    view: StoredView,
    messages: Vec<MessageRow>,
    hidden: Vec<HiddenMessage>,
    calls: Vec<CallRow>,
    events: Vec<EventRow>,
    records: Vec<RecordRow>,
    outbox: Vec<OutboxRow>,
    service_events: Vec<ServiceEvent>,
    texts: Vec<StoredBytes>,
    status: Status,
    /// Usage of the turns that the commit changes.
    usage: Vec<TurnCost>,
    charge: Option<Charge>,
    answer: Option<RequestAnswer>,
}

/// Moves the session to the front of session lists, by setting its `place` to a number above the `place` of every other
/// session. Sessions are ordered by `place` and not by time, because clocks can be set back. The session whose turn was
/// started or stopped last comes first.
fn move_to_front(connection: &Connection, session_row: &SessionRow) -> Result<(), Failure> {
    let front: i64 = connection.prepare_cached("SELECT max(place) FROM sessions")?.query_row([], |row| row.get(0))?;
    if session_row.place == 0 || session_row.place < front {
        let sql = "UPDATE sessions SET place = ?2 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![session_row.session, front + 1])?;
    }
    Ok(())
}

/// A session's row in the table `sessions`: only the columns that a commit reads.
struct SessionRow {
    session: i64,
    revision: u64,
    last_message: u64,
    last_event: u64,
    /// Position of the session in session lists. Sessions with higher positions come first. The position is 0 before
    /// the first commit.
    place: i64,
    state: String,
    turns: u32,
}

impl PreparedCommit {
    /// Converts the commit to rows. The conversion does not run on the writer thread, because all sessions
    /// share this thread.
    pub(super) fn new(lease: &Lease, expected_revision: u64, commit: Commit) -> Result<Self, StoreError> {
        let Commit { snapshot, view, change, records, texts, status, charge, answer } = commit;
        let usage = changed_turns(&change.events, &status);
        let events = change.events.iter().map(|event| event_row(&lease.session, event));
        Ok(Self {
            lease: lease.clone(),
            expected_revision,
            snapshot,
            view,
            messages: change.messages.into_iter().map(message_row).collect::<Result<_, _>>()?,
            hidden: change.hidden,
            events: events.collect::<Result<_, _>>()?,
            calls: change.calls.into_iter().map(call_row).collect::<Result<_, _>>()?,
            records: records.iter().map(record_row).collect::<Result<_, _>>()?,
            service_events: change.outbox.iter().filter_map(ServiceEvent::of).collect(),
            outbox: change.outbox.iter().map(outbox_row).collect::<Result<_, _>>()?,
            texts: texts
                .into_iter()
                .map(|text| StoredBytes::new("a text", text.into_bytes()))
                .collect::<Result<_, _>>()?,
            status,
            usage,
            charge,
            answer,
        })
    }

    /// Estimates how long it takes to write the commit.
    pub(super) fn effort(&self) -> Effort {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let calls = self.calls.iter().map(|call| match call {
            CallRow::Requested { arguments, edited, result, .. } => arguments.len() + length(edited) + length(result),
            CallRow::Edited { json, .. } | CallRow::Finished { json, .. } => json.len(),
            CallRow::Moved { .. } => 0,
        });
        let messages = self.messages.iter().map(|message| length(&message.parts));
        let events = self.events.iter().map(|event| event.kind.len());
        let records = self.records.iter().map(|record| record.body.len());
        let outbox = self.outbox.iter().map(|item| item.body.len());
        let texts = self.texts.iter().map(StoredBytes::len);
        let session = calls.chain(messages).chain(events);
        let view = self.view.pieces().iter().map(|piece| piece.items.len()).sum::<usize>();
        Effort::of(self.snapshot.len() + view + session.chain(records).chain(outbox).chain(texts).sum::<usize>())
    }

    /// Writes the whole commit and returns the new revision. If the write fails, the caller must roll back its
    /// savepoint to undo partial writes.
    pub(super) fn write(&self, connection: &Connection, owner: &str) -> Result<u64, Failure> {
        let session_row = self.check(connection, owner)?;
        let time = now();
        self.write_calls(connection, &session_row)?;
        let last_message = self.write_messages(connection, &session_row)?;
        self.write_hidden(connection, &session_row, last_message)?;
        let last_event = self.write_events(connection, &session_row, time)?;
        self.write_records(connection, &session_row, time)?;
        outbox::insert(connection, session_row.session, &self.outbox, time)?;
        for event in &self.service_events {
            audit::write_service_event(connection, event, (session_row.session, &self.lease.session), time)?;
        }
        connection
            .prepare_cached(
                "INSERT INTO snapshots (session, run) VALUES (?1, ?2) ON CONFLICT (session) DO UPDATE SET run = ?2",
            )?
            .execute(params![session_row.session, self.snapshot])?;
        self.write_view(connection, session_row.session)?;
        if let Some(answer) = &self.answer {
            session_requests::write_answer(connection, session_row.session, answer)?;
        }
        if let Some(charge) = &self.charge {
            budget_ledger::charge(connection, session_row.session, (&self.usage, charge), time)?;
        }
        for cost in &self.usage {
            usage::write(connection, session_row.session, cost)?;
        }
        if (session_row.state.as_str(), session_row.turns) != (self.status.state.as_str(), self.status.turn) {
            move_to_front(connection, &session_row)?;
        }
        let revision = session_row.revision + 1;
        connection
            .prepare_cached(
                "UPDATE sessions SET revision = ?2, updated = ?3, last_message = ?4, last_event = ?5,
                 state = ?6, turns = max(turns, ?7), title = coalesce(title, ?8), continues_at = ?9 WHERE id = ?1",
            )?
            .execute(params![
                session_row.session,
                signed(revision),
                time,
                signed(last_message),
                signed(last_event),
                self.status.state.as_str(),
                self.status.turn,
                self.status.title,
                self.status.continues_at.map(signed),
            ])?;
        Ok(revision)
    }

    /// Checks the lease first and then the revision, because the revision does not matter without a valid lease.
    fn check(&self, connection: &Connection, owner: &str) -> Result<SessionRow, Failure> {
        let session = || self.lease.session.clone();
        let mut statement = connection.prepare_cached(
            "SELECT id, revision, last_message, last_event, epoch, owner, place, state, turns
             FROM sessions WHERE subject = ?1",
        )?;
        let found = statement.query_row([&self.lease.session], |row| {
            let session_row = SessionRow {
                session: row.get(0)?,
                revision: unsigned(row.get(1)?),
                last_message: unsigned(row.get(2)?),
                last_event: unsigned(row.get(3)?),
                place: row.get(6)?,
                state: row.get(7)?,
                turns: row.get(8)?,
            };
            Ok((session_row, unsigned(row.get(4)?), row.get::<_, Option<String>>(5)?))
        });
        let (session_row, epoch, holder) =
            found.optional()?.ok_or_else(|| StoreError::NoSession { session: session() })?;
        if epoch != self.lease.epoch || holder.as_deref() != Some(owner) {
            return Err(StoreError::LeaseLost { session: session(), epoch: self.lease.epoch }.into());
        }
        if session_row.revision != self.expected_revision {
            let (expected, found) = (self.expected_revision, session_row.revision);
            return Err(StoreError::Conflict { session: session(), expected, found }.into());
        }
        Ok(session_row)
    }

    fn write_view(&self, connection: &Connection, session: i64) -> Result<(), Failure> {
        if !matches!(self.view, StoredView::Changed(_)) {
            connection.prepare_cached("DELETE FROM view_pieces WHERE session = ?1")?.execute([session])?;
        }
        for ViewPiece { number, items } in self.view.pieces() {
            let number = signed(*number);
            if items.is_empty() {
                let sql = "DELETE FROM view_pieces WHERE session = ?1 AND number = ?2";
                connection.prepare_cached(sql)?.execute(params![session, number])?;
                continue;
            }
            let sql = "INSERT INTO view_pieces (session, number, items) VALUES (?1, ?2, ?3)
                       ON CONFLICT (session, number) DO UPDATE SET items = ?3";
            connection.prepare_cached(sql)?.execute(params![session, number, items])?;
        }
        Ok(())
    }

    fn write_calls(&self, connection: &Connection, session_row: &SessionRow) -> Result<(), Failure> {
        for call in &self.calls {
            match call {
                CallRow::Requested { record, source, arguments, edited, result } => {
                    let parameters = params![
                        session_row.session,
                        record.id.0,
                        record.turn,
                        record.step,
                        record.name,
                        record.state.as_str(),
                        record.attempt,
                        source,
                        arguments,
                        result,
                        edited,
                    ];
                    if insert_call(connection, parameters)? == 0 {
                        let problem = "the session already has a call with this id";
                        return Err(invalid(format!("call `{}`", record.id), problem).into());
                    }
                }
                CallRow::Moved { id, state, attempt } => {
                    let sql = "UPDATE calls SET state = ?3, attempt = ?4
                               WHERE session = ?1 AND id = ?2 AND state <> 'finished'";
                    let parameters = params![session_row.session, id.0, state.as_str(), attempt];
                    if connection.prepare_cached(sql)?.execute(parameters)? == 0 {
                        return Err(self.existing_result(connection, session_row, id)?.1);
                    }
                }
                CallRow::Edited { id, json } => {
                    let sql = "UPDATE calls SET edited = ?3 WHERE session = ?1 AND id = ?2 AND state <> 'finished'";
                    if connection.prepare_cached(sql)?.execute(params![session_row.session, id.0, json])? == 0 {
                        return Err(self.existing_result(connection, session_row, id)?.1);
                    }
                }
                CallRow::Finished { id, result, json } => {
                    let sql = "UPDATE calls SET state = 'finished', result = ?3
                               WHERE session = ?1 AND id = ?2 AND state <> 'finished'";
                    if connection.prepare_cached(sql)?.execute(params![session_row.session, id.0, json])? == 0 {
                        let (existing, refusal) = self.existing_result(connection, session_row, id)?;
                        // If the new result equals the stored result, the commit is accepted and changes nothing.
                        if existing.as_ref() != Some(result) {
                            return Err(refusal);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// If a change of a call was refused, returns the call's stored result and the error for the refusal. The result is
    /// `None` if the call has no result or does not exist.
    fn existing_result(
        &self,
        connection: &Connection,
        session_row: &SessionRow,
        id: &CallId,
    ) -> Result<(Option<CallResult>, Failure), Failure> {
        let sql = "SELECT result FROM calls WHERE session = ?1 AND id = ?2";
        let mut statement = connection.prepare_cached(sql)?;
        let found = statement.query_row(params![session_row.session, id.0], |row| row.get::<_, Option<String>>(0));
        let Some(result) = found.optional()? else {
            return Ok((None, invalid(format!("call `{id}`"), "the session contains no request for this call").into()));
        };
        let refusal = StoreError::AlreadyFinished { session: self.lease.session.clone(), call: id.clone() };
        Ok((result.as_deref().map(from_json).transpose()?, refusal.into()))
    }

    fn write_messages(&self, connection: &Connection, session_row: &SessionRow) -> Result<u64, Failure> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO messages (session, id, turn, role, tokens, call, parts) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let mut last = session_row.last_message;
        for message in &self.messages {
            last = next_number("message", last, message.id)?;
            if let Some(call) = &message.call {
                self.check_finished(connection, session_row.session, call)?;
            }
            statement.execute(params![
                session_row.session,
                signed(message.id),
                message.turn,
                message.role,
                message.tokens,
                message.call.as_ref().map(|call| &call.0),
                message.parts,
            ])?;
        }
        Ok(last)
    }

    fn check_finished(&self, connection: &Connection, session: i64, call: &CallId) -> Result<(), Failure> {
        let mut statement =
            connection.prepare_cached("SELECT 1 FROM calls WHERE session = ?1 AND id = ?2 AND state = 'finished'")?;
        if statement.exists(params![session, call.0])? {
            return Ok(());
        }
        Err(invalid(format!("a message with the result of call `{call}`"), "the call has not finished").into())
    }

    fn write_hidden(
        &self,
        connection: &Connection,
        session_row: &SessionRow,
        last_message: u64,
    ) -> Result<(), Failure> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO hidden (session, id, seen_count, why) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, id) DO UPDATE SET seen_count = ?3, why = ?4",
        )?;
        for HiddenMessage { id, seen_count, why } in &self.hidden {
            if *id == 0 || *id > last_message {
                return Err(StoreError::NoMessage { session: self.lease.session.clone(), id: *id }.into());
            }
            statement.execute(params![session_row.session, signed(*id), seen_count, why.as_str()])?;
        }
        Ok(())
    }

    fn write_events(&self, connection: &Connection, session_row: &SessionRow, time: i64) -> Result<u64, Failure> {
        let mut statement = connection
            .prepare_cached("INSERT INTO events (session, sequence, turn, time, kind) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut last = session_row.last_event;
        for event in &self.events {
            last = next_number("event", last, event.sequence)?;
            statement.execute(params![session_row.session, signed(event.sequence), event.turn, time, event.kind])?;
            if let Some(audited_event) = &event.audited_event {
                audit::write_event(connection, audited_event, (session_row.session, &self.lease.session), time)?;
            }
        }
        Ok(last)
    }

    fn write_records(&self, connection: &Connection, session_row: &SessionRow, time: i64) -> Result<(), Failure> {
        for text in &self.texts {
            insert_bytes(connection, session_row.session, text)?;
        }
        let mut statement = connection.prepare_cached(
            "INSERT INTO records (session, turn, step, kind, time, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for RecordRow { turn, step, kind, body } in &self.records {
            statement.execute(params![session_row.session, turn, step, kind, time, body])?;
        }
        Ok(())
    }
}

fn insert_call(connection: &Connection, parameters: impl Params) -> Result<usize, Failure> {
    let sql = "INSERT INTO calls (session, id, turn, step, name, state, attempt, source, arguments, result, edited)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (session, id) DO NOTHING";
    Ok(connection.prepare_cached(sql)?.execute(parameters)?)
}
