//! Writes the rows of a commit, with one statement for each table.

use super::PreparedCommit;
use crate::encoding::commit_rows::{CallRow, MessageRow, RecordRow};
use crate::encoding::outbox::OutboxRow;
use crate::encoding::search::searchable_text;
use crate::encoding::values::{from_json, invalid, signed};
use crate::postgres::blobs::insert_bytes;
use crate::postgres::connections::Transaction;
use crate::postgres::failure::Failure;
use crate::postgres::queries::{tool_result, value};
use crate::postgres::search::{WordCounts, insert_message_words};
use crate::postgres::text::{Text, list, optional, text};
use crate::{StoreError, StoredView};
use agent_core::change::{Body, CallChange, CallResult, HiddenMessage, NewMessage};
use agent_core::message::{CallId, MessageId, Part, Role, StoredMessage, ToolResult};
use futures::future::try_join_all;
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::types::ToSql;

/// Statements of a commit, in addition to the conditional update. All of them use primary keys that begin with the session.
pub(in crate::postgres) const INSERT_MESSAGES: &str =
    "INSERT INTO messages (session, id, turn, role, tokens, call, parts)
     SELECT $1::text, * FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::text[], $7::text[])";
pub(in crate::postgres) const INSERT_HIDDEN: &str = "INSERT INTO hidden (session, id, seen_count, why)
     SELECT $1::text, * FROM unnest($2::bigint[], $3::bigint[], $4::text[])
     ON CONFLICT (session, id) DO UPDATE SET seen_count = excluded.seen_count, why = excluded.why";
pub(in crate::postgres) const INSERT_CALL: &str =
    "INSERT INTO calls (session, id, turn, step, name, state, attempt, source, arguments, result, edited)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (session, id) DO NOTHING";
const MOVE_CALL: &str =
    "UPDATE calls SET state = $3, attempt = $4 WHERE session = $1 AND id = $2 AND state <> 'finished'";
const EDIT_CALL: &str = "UPDATE calls SET edited = $3 WHERE session = $1 AND id = $2 AND state <> 'finished'";
pub(in crate::postgres) const FINISH_CALL: &str =
    "UPDATE calls SET state = 'finished', result = $3 WHERE session = $1 AND id = $2 AND state <> 'finished'";
pub(in crate::postgres) const READ_RESULTS: &str =
    "SELECT id, name, result FROM calls WHERE session = $1 AND id = ANY($2) AND state = 'finished'";
pub(in crate::postgres) const INSERT_EVENTS: &str = "INSERT INTO events (session, sequence, turn, time, kind)
     SELECT $1::text, given.sequence, given.turn, $2::bigint, given.kind
     FROM unnest($3::bigint[], $4::bigint[], $5::text[]) AS given (sequence, turn, kind)";
pub(in crate::postgres) const INSERT_RECORDS: &str = "INSERT INTO records (session, turn, step, kind, time, body)
     SELECT $1::text, given.turn, given.step, given.kind, $2::bigint, given.body
     FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[]) WITH ORDINALITY
         AS given (turn, step, kind, body, position) ORDER BY given.position";
pub(in crate::postgres) const WRITE_SNAPSHOT: &str =
    "INSERT INTO snapshots (session, run) VALUES ($1, $2) ON CONFLICT (session) DO UPDATE SET run = excluded.run";
pub(in crate::postgres) const WRITE_PIECES: &str =
    "INSERT INTO view_pieces (session, number, items) SELECT $1::text, * FROM unnest($2::bigint[], $3::bytea[])
     ON CONFLICT (session, number) DO UPDATE SET items = excluded.items";
pub(in crate::postgres) const DELETE_PIECES: &str = "DELETE FROM view_pieces WHERE session = $1 AND number = ANY($2)";
pub(super) const INSERT_OUTBOX: &str = "
    INSERT INTO outbox (session, id, number, kind, body, created)
    SELECT $1::text, given.id, nextval('outbox_item_numbers'), given.kind, given.body, $2::bigint
    FROM (SELECT id, kind, body FROM unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS item (id, kind, body, position)
          ORDER BY item.position) AS given
    ON CONFLICT (session, id) DO NOTHING";

/// Returns the words of a message. `None` if its content is the result of a call that does not finish in this commit.
pub(super) fn words_in_commit(message: &NewMessage, calls: &[CallChange]) -> Option<WordCounts> {
    let parts = match &message.body {
        Body::Parts(parts) => parts.clone(),
        Body::ResultOf(call) => {
            let CallResult { content, is_error, .. } = calls.iter().find_map(|change| match change {
                CallChange::Finished { id, result } if id == call => Some(result),
                CallChange::Requested(record) if record.id == *call => record.result.as_ref(),
                _ => None,
            })?;
            // The words do not depend on the name of the tool.
            let result = ToolResult {
                call_id: call.clone(),
                name: String::new(),
                content: content.clone(),
                is_error: *is_error,
            };
            vec![Part::ToolResult(result)]
        }
    };
    Some(words_of((message.id, message.turn, message.tokens), parts))
}

fn words_of((id, turn, tokens): (MessageId, u32, u32), parts: Vec<Part>) -> WordCounts {
    // The words do not depend on the role.
    WordCounts::of(&searchable_text(&StoredMessage { id, turn, role: Role::User, parts, tokens }))
}

impl PreparedCommit {
    fn session(&self) -> Text<'_> {
        Text(&self.lease.session)
    }

    pub(super) async fn write_calls(&self, transaction: &Transaction) -> Result<(), Failure> {
        if self.calls.is_empty() {
            return Ok(());
        }
        // Several rows may concern one call, so the statements are sent in the order of the rows.
        transaction.prepare(&[INSERT_CALL, MOVE_CALL, EDIT_CALL, FINISH_CALL]).await?;
        try_join_all(self.calls.iter().map(|call| self.write_call(transaction, call))).await.map(drop)
    }

    async fn write_call(&self, transaction: &Transaction, call: &CallRow) -> Result<(), Failure> {
        let id = match call {
            CallRow::Requested { .. } => return self.insert_call(transaction, call).await,
            CallRow::Moved { id, .. } | CallRow::Edited { id, .. } | CallRow::Finished { id, .. } => id,
        };
        let key = Text(&id.0);
        let changed = match call {
            CallRow::Moved { state, attempt, .. } => {
                let parameters: [&(dyn ToSql + Sync); 4] =
                    [&self.session(), &key, &state.as_str(), &i64::from(*attempt)];
                transaction.execute(MOVE_CALL, &parameters).await?
            }
            CallRow::Edited { json, .. } => transaction.execute(EDIT_CALL, &[&self.session(), &key, json]).await?,
            CallRow::Finished { json, .. } => transaction.execute(FINISH_CALL, &[&self.session(), &key, json]).await?,
            CallRow::Requested { .. } => 0,
        };
        if changed > 0 {
            return Ok(());
        }
        let (existing, refusal) = self.existing_result(transaction, id).await?;
        match call {
            // If the new result equals the stored result, the commit is accepted and changes nothing.
            CallRow::Finished { result, .. } if existing.as_ref() == Some(result) => Ok(()),
            _ => Err(refusal),
        }
    }

    async fn insert_call(&self, transaction: &Transaction, call: &CallRow) -> Result<(), Failure> {
        let CallRow::Requested { record, source, arguments, edited, result } = call else { return Ok(()) };
        let (turn, step, attempt) = (i64::from(record.turn), i64::from(record.step), i64::from(record.attempt));
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &self.session(),
            &Text(&record.id.0),
            &turn,
            &step,
            &Text(&record.name),
            &record.state.as_str(),
            &attempt,
            source,
            arguments,
            result,
            edited,
        ];
        if transaction.execute(INSERT_CALL, &parameters).await? == 0 {
            let problem = "the session already has a call with this id";
            return Err(invalid(format!("call `{}`", record.id), problem).into());
        }
        Ok(())
    }

    /// If a change of a call was refused, returns the call's stored result and the error for the refusal. The result is
    /// `None` if the call has no result or does not exist.
    async fn existing_result(
        &self,
        transaction: &Transaction,
        id: &CallId,
    ) -> Result<(Option<Box<CallResult>>, Failure), Failure> {
        let sql = "SELECT result FROM calls WHERE session = $1 AND id = $2";
        let Some(row) = transaction.query_opt(sql, &[&self.session(), &Text(&id.0)]).await? else {
            return Ok((None, invalid(format!("call `{id}`"), "the session contains no request for this call").into()));
        };
        let refusal = StoreError::AlreadyFinished { session: self.lease.session.clone(), call: id.clone() };
        let result = value::<Option<&str>>(&row, 0)?.map(from_json).transpose()?;
        Ok((result.map(Box::new), refusal.into()))
    }

    /// Writes the messages, and their words for the search.
    pub(super) async fn write_messages(&self, transaction: &Transaction) -> Result<(), Failure> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let results = self.results_in_messages(transaction).await?;
        let of = |column: fn(&MessageRow) -> i64| self.messages.iter().map(column).collect::<Vec<_>>();
        let roles: Vec<&str> = self.messages.iter().map(|message| message.role).collect();
        let calls: Vec<Option<Text<'_>>> =
            self.messages.iter().map(|message| optional(message.call.as_ref().map(|call| call.0.as_str()))).collect();
        let parts: Vec<Option<&str>> = self.messages.iter().map(|message| message.parts.as_deref()).collect();
        let parameters: [&(dyn ToSql + Sync); 7] = [
            &self.session(),
            &of(|message| signed(message.id)),
            &of(|message| i64::from(message.turn)),
            &roles,
            &of(|message| i64::from(message.tokens)),
            &calls,
            &parts,
        ];
        let words = self.messages.iter().zip(&self.words).map(|(message, own)| match own {
            Some(own) => (message.id, own.clone()),
            None => {
                let result = message.call.iter().filter_map(|call| results.get(&call.0)).cloned().collect();
                (message.id, words_of((message.id, message.turn, message.tokens), result))
            }
        });
        let words: Vec<_> = words.collect();
        let inserted = transaction.execute(INSERT_MESSAGES, &parameters);
        tokio::try_join!(inserted, insert_message_words(transaction, &self.lease.session, &words)).map(drop)
    }

    /// Reads the results of calls that have finished before this commit and are the content of messages. Fails if a call has not
    /// finished.
    async fn results_in_messages(&self, transaction: &Transaction) -> Result<HashMap<String, Part>, Failure> {
        let unread = self.messages.iter().zip(&self.words).filter(|(_, words)| words.is_none());
        let calls: Vec<&CallId> = unread.filter_map(|(message, _)| message.call.as_ref()).collect();
        if calls.is_empty() {
            return Ok(HashMap::new());
        }
        let ids = list(calls.iter().map(|call| &call.0));
        let rows = transaction.query(READ_RESULTS, &[&self.session(), &ids]).await?;
        let mut results = HashMap::new();
        for row in &rows {
            let id = text(row, 0)?;
            results.insert(id.clone(), tool_result(CallId(id), text(row, 1)?, value(row, 2)?)?);
        }
        match calls.into_iter().find(|call| !results.contains_key(&call.0)) {
            None => Ok(results),
            Some(call) => {
                let what = format!("a message with the result of call `{call}`");
                Err(invalid(what, "the call has not finished").into())
            }
        }
    }

    pub(super) async fn write_hidden(&self, transaction: &Transaction, last_message: u64) -> Result<(), Failure> {
        // If a message occurs several times, the last element counts.
        let mut last = BTreeMap::new();
        for hidden in &self.hidden {
            if hidden.id == 0 || hidden.id > last_message {
                return Err(StoreError::NoMessage { session: self.lease.session.clone(), id: hidden.id }.into());
            }
            last.insert(hidden.id, hidden);
        }
        if last.is_empty() {
            return Ok(());
        }
        let of = |column: fn(&HiddenMessage) -> i64| last.values().map(|hidden| column(hidden)).collect::<Vec<_>>();
        let reasons: Vec<&str> = last.values().map(|hidden| hidden.why.as_str()).collect();
        let (ids, counts) = (of(|hidden| signed(hidden.id)), of(|hidden| i64::from(hidden.seen_count)));
        transaction.execute(INSERT_HIDDEN, &[&self.session(), &ids, &counts, &reasons]).await?;
        Ok(())
    }

    pub(super) async fn write_events(&self, transaction: &Transaction, time: i64) -> Result<(), Failure> {
        if self.events.is_empty() {
            return Ok(());
        }
        let sequences: Vec<i64> = self.events.iter().map(|event| signed(event.sequence)).collect();
        let turns: Vec<i64> = self.events.iter().map(|event| i64::from(event.turn)).collect();
        let kinds: Vec<&str> = self.events.iter().map(|event| event.kind.as_str()).collect();
        transaction.execute(INSERT_EVENTS, &[&self.session(), &time, &sequences, &turns, &kinds]).await?;
        Ok(())
    }

    pub(super) async fn write_records(&self, transaction: &Transaction, time: i64) -> Result<(), Failure> {
        insert_bytes(transaction, &self.lease.session, &self.texts, &self.uploads).await?;
        if self.records.is_empty() {
            return Ok(());
        }
        let of = |column: fn(&RecordRow) -> u32| {
            self.records.iter().map(|record| i64::from(column(record))).collect::<Vec<_>>()
        };
        let (turns, steps) = (of(|record| record.turn), of(|record| record.step));
        let kinds: Vec<Text<'_>> = self.records.iter().map(|record| Text(&record.kind)).collect();
        let bodies: Vec<&str> = self.records.iter().map(|record| record.body.as_str()).collect();
        let parameters: [&(dyn ToSql + Sync); 6] = [&self.session(), &time, &turns, &steps, &kinds, &bodies];
        transaction.execute(INSERT_RECORDS, &parameters).await?;
        Ok(())
    }

    pub(super) async fn write_snapshot(&self, transaction: &Transaction) -> Result<(), Failure> {
        transaction.execute(WRITE_SNAPSHOT, &[&self.session(), &self.snapshot]).await?;
        Ok(())
    }

    pub(super) async fn write_view(&self, transaction: &Transaction) -> Result<(), Failure> {
        if !matches!(self.view, StoredView::Changed(_)) {
            transaction.execute("DELETE FROM view_pieces WHERE session = $1", &[&self.session()]).await?;
        }
        let last: BTreeMap<i64, &Vec<u8>> =
            self.view.pieces().iter().map(|piece| (signed(piece.number), &piece.items)).collect();
        let (removed, kept): (Vec<_>, Vec<_>) = last.into_iter().partition(|(_, items)| items.is_empty());
        if !removed.is_empty() {
            let numbers: Vec<i64> = removed.into_iter().map(|(number, _)| number).collect();
            transaction.execute(DELETE_PIECES, &[&self.session(), &numbers]).await?;
        }
        if !kept.is_empty() {
            let (numbers, items): (Vec<i64>, Vec<&[u8]>) =
                kept.into_iter().map(|(number, items)| (number, items.as_slice())).unzip();
            transaction.execute(WRITE_PIECES, &[&self.session(), &numbers, &items]).await?;
        }
        Ok(())
    }

    /// Writes the outbox items. Skips each item whose id already belongs to an item of the session. The items of a session
    /// are numbered in commit order, because the transaction has locked the row of the session before. Items of different
    /// sessions are not, because no lock orders their commits.
    pub(super) async fn write_outbox(&self, transaction: &Transaction, time: i64) -> Result<(), Failure> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        let of =
            |column: fn(&OutboxRow) -> &String| self.outbox.iter().map(|item| Text(column(item))).collect::<Vec<_>>();
        let (ids, kinds, bodies) = (of(|item| &item.id), of(|item| &item.kind), of(|item| &item.body));
        transaction.execute(INSERT_OUTBOX, &[&self.session(), &time, &ids, &kinds, &bodies]).await?;
        Ok(())
    }
}
