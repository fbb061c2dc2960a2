//! Stores one commit in one transaction (D2, D6). One conditional statement checks the lease, the revision and the version
//! of the schema. If the connection breaks while a commit is being stored, its id tells whether it is stored.

mod outcome;
mod tables;

use super::PostgresStore;
use super::audit::{self, AuditTurn};
use super::budget_ledger::{self, CHARGE_PERIOD, CHARGE_SESSION};
use super::connections::Transaction;
use super::failure::Failure;
use super::objects::Uploads;
use super::queries::NOW;
use super::schema::{self, SUPPORTED};
use super::search::WordCounts;
use super::text::{Text, optional};
use super::{session_requests, usage};
use crate::encoding::audit::ServiceEvent;
use crate::encoding::blobs::StoredBytes;
use crate::encoding::commit_rows::{
    CallRow, EventRow, MessageRow, RecordRow, call_row, event_row, message_row, next_number, record_row,
};
use crate::encoding::outbox::{OutboxRow, outbox_row};
use crate::encoding::usage::changed_turns;
use crate::encoding::values::signed;
use crate::{AuditAction, Charge, Commit, Lease, RequestAnswer, SessionState, Status, StoreError, StoredView};
use agent_core::budget::Spending;
use agent_core::change::HiddenMessage;
use agent_core::cost::TurnCost;
use futures::future::try_join_all;
use std::time::Instant;
use tables::INSERT_OUTBOX;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A commit that was converted to rows. The commit has passed all checks that do not need the database.
pub(super) struct PreparedCommit {
    /// Identifies the commit, so that it can be recognised in the database.
    id: String,
    lease: Lease,
    expected_revision: u64,
    snapshot: Vec<u8>,
    view: StoredView,
    messages: Vec<MessageRow>,
    /// The words of each message whose content is in the commit. They are found before the transaction begins, because this takes
    /// long for long texts, and the server ends a transaction whose client does nothing.
    words: Vec<Option<WordCounts>>,
    hidden: Vec<HiddenMessage>,
    calls: Vec<CallRow>,
    events: Vec<EventRow>,
    records: Vec<RecordRow>,
    outbox: Vec<OutboxRow>,
    service_events: Vec<ServiceEvent>,
    texts: Vec<StoredBytes>,
    /// The objects of large texts.
    uploads: Uploads,
    status: Status,
    /// Usage of the turns that the commit changes.
    usage: Vec<TurnCost>,
    charge: Option<Charge>,
    answer: Option<RequestAnswer>,
}

impl PreparedCommit {
    pub(super) fn new(
        lease: &Lease,
        expected_revision: u64,
        commit: Commit,
        uploads: Uploads,
    ) -> Result<Self, StoreError> {
        let Commit { snapshot, view, change, records, texts, status, charge, answer } = commit;
        let usage = changed_turns(&change.events, &status);
        let events = change.events.iter().map(|event| event_row(&lease.session, event));
        let texts = texts.into_iter().map(|text| StoredBytes::new("a text", text.into_bytes()));
        let words = change.messages.iter().map(|message| tables::words_in_commit(message, &change.calls)).collect();
        Ok(Self {
            id: Uuid::now_v7().to_string(),
            lease: lease.clone(),
            expected_revision,
            snapshot,
            view,
            messages: change.messages.into_iter().map(message_row).collect::<Result<_, _>>()?,
            words,
            hidden: change.hidden,
            events: events.collect::<Result<_, _>>()?,
            calls: change.calls.into_iter().map(call_row).collect::<Result<_, _>>()?,
            records: records.iter().map(record_row).collect::<Result<_, _>>()?,
            service_events: change.outbox.iter().filter_map(ServiceEvent::of).collect(),
            outbox: change.outbox.iter().map(outbox_row).collect::<Result<_, _>>()?,
            texts: texts.collect::<Result<_, _>>()?,
            uploads,
            status,
            usage,
            charge,
            answer,
        })
    }
}

/// The numbers that a session had before a commit, and the time of the commit.
struct Base {
    last_message: u64,
    last_event: u64,
    time: i64,
}

/// Waits for running commits of the session that waits for this session, if there is one.
const WAIT_FOR_PARENT: &str = "SELECT 1 FROM sessions p WHERE p.session =
                               (SELECT s.delegated_by FROM sessions s WHERE s.session = $1) FOR SHARE";

/// The statement that decides whether a commit is stored. It changes nothing if the lease was lost, if the session has
/// another revision, or if a newer host does not allow this host to write.
pub(super) fn conditional_update() -> String {
    format!(
        "UPDATE sessions SET revision = revision + 1, updated = {NOW}, last_commit = $5,
             last_message = last_message + $6, last_event = last_event + $7,
             place = CASE WHEN state <> $8 OR turns <> $9 THEN nextval('session_places') ELSE place END,
             state = $8, turns = greatest(turns, $9), title = coalesce(title, $10), continues_at = $11
         WHERE session = $1 AND epoch = $2 AND owner = $3 AND revision = $4
             AND (SELECT oldest_writer FROM store_version) <= $12
         RETURNING last_message - $6, last_event - $7, updated"
    )
}

impl PostgresStore {
    /// Stores a commit and returns the new revision. Decides an unknown outcome by reading the id of the last commit.
    pub(super) async fn store_commit(&self, commit: &PreparedCommit) -> Result<u64, Failure> {
        let until = Instant::now() + self.max_wait;
        loop {
            let problem = match self.run_until(until, || self.try_commit(commit)).await {
                Err(Failure::OutcomeUnknown(problem)) => problem,
                result => return result,
            };
            tracing::info!(
                session = commit.lease.session,
                problem,
                "a commit has an unknown outcome, which is read back"
            );
            let outcome = self.run_until(until, || self.outcome_of(commit)).await;
            match outcome {
                Ok(outcome::Outcome::Stored(revision)) => return Ok(revision),
                // The same transaction runs again with the same id.
                Ok(outcome::Outcome::NotStored) if Instant::now() < until => {}
                Ok(outcome::Outcome::NotStored) => return Err(Failure::NoConnection(problem)),
                Err(Failure::Store(error)) => return Err(Failure::Store(error)),
                Err(_) => return Err(Failure::OutcomeUnknown(problem)),
            }
        }
    }

    /// Runs the transaction of a commit. Statements that do not need each other's results are sent together, because a commit
    /// would otherwise wait for the server a dozen times.
    async fn try_commit(&self, commit: &PreparedCommit) -> Result<u64, Failure> {
        self.upload(&commit.texts, &commit.uploads).await?;
        let transaction = self.unopened_transaction().await?;
        let written = async {
            transaction.prepare(&[WAIT_FOR_PARENT, &conditional_update()]).await?;
            let opened = transaction.open("BEGIN");
            let ((), base) = tokio::try_join!(biased; opened, commit.claim_revision(&transaction, self))?;
            self.write_commit(&transaction, commit, &base).await
        };
        let result = written.await;
        transaction.end(result).await.map(|(revision, _)| revision)
    }

    /// Writes the rows of a commit, and returns the new revision. The turn of the audit log must be kept until the end of the
    /// transaction.
    async fn write_commit(
        &self,
        transaction: &Transaction,
        commit: &PreparedCommit,
        base: &Base,
    ) -> Result<(u64, Option<AuditTurn<'_>>), Failure> {
        let last_message = commit.check_numbers(base)?;
        // These rows belong to this session alone, except for the blobs, which are written in the order of their digests.
        let calls_and_messages = async {
            commit.write_calls(transaction).await?;
            // The words of a message with a result are those of the call.
            commit.write_messages(transaction).await
        };
        let ((), charges, ..) = tokio::try_join!(
            calls_and_messages,
            commit.charges(transaction),
            commit.write_hidden(transaction, last_message),
            commit.write_events(transaction, base.time),
            commit.write_records(transaction, base.time),
            commit.write_snapshot(transaction),
            commit.write_view(transaction),
            commit.write_answer(transaction),
        )?;
        // Other sessions also write the following rows. They come last, always in the same order.
        transaction.prepare(&[CHARGE_SESSION, CHARGE_PERIOD, &usage::write_usage(), INSERT_OUTBOX]).await?;
        tokio::try_join!(
            biased;
            budget_ledger::charge(transaction, &commit.lease.session, (&charges, commit.charge.as_ref()), base.time),
            try_join_all(commit.usage.iter().map(|cost| usage::write(transaction, &commit.lease.session, cost))),
            commit.write_outbox(transaction, base.time),
        )?;
        let turn = commit.write_audit(transaction, self, base.time).await?;
        Ok((commit.expected_revision + 1, turn))
    }
}

impl PreparedCommit {
    /// Runs the conditional statement. If it changes nothing, finds out why.
    async fn claim_revision(&self, transaction: &Transaction, store: &PostgresStore) -> Result<Base, Failure> {
        let Lease { session, epoch } = &self.lease;
        let parameters: [&(dyn ToSql + Sync); 12] = [
            &Text(session),
            &signed(*epoch),
            &store.owner.id(),
            &signed(self.expected_revision),
            &self.id,
            &(self.messages.len() as i64),
            &(self.events.len() as i64),
            &self.status.state.as_str(),
            &i64::from(self.status.turn),
            &optional(self.status.title.as_deref()),
            &self.status.continues_at.map(signed),
            &SUPPORTED,
        ];
        let update = conditional_update();
        let claimed = transaction.query_opt(&update, &parameters);
        let ((), row) = tokio::try_join!(biased; self.wait_for_parent(transaction), claimed)?;
        let Some(row) = row else { return Err(self.refusal(transaction, store).await?) };
        let number = |column| super::queries::number(&row, column);
        Ok(Base { last_message: number(0)?, last_event: number(1)?, time: row.try_get(2)? })
    }

    /// If the commit ends a turn that another session waits for, waits for running commits of that session. Otherwise, the
    /// other session could be suspended with a later time after this session has ended, and would not continue.
    async fn wait_for_parent(&self, transaction: &Transaction) -> Result<(), Failure> {
        let ended = [SessionState::Idle, SessionState::Failed, SessionState::Cancelled];
        if !ended.contains(&self.status.state) {
            return Ok(());
        }
        transaction.query_opt(WAIT_FOR_PARENT, &[&Text(&self.lease.session)]).await?;
        Ok(())
    }

    /// Returns why the conditional statement changed nothing. The lease is checked first, because the revision does not
    /// matter without a valid lease.
    async fn refusal(&self, transaction: &Transaction, store: &PostgresStore) -> Result<Failure, Failure> {
        if let Some(version) = schema::version(transaction).await? {
            version.check(&store.path)?;
        }
        let Lease { session, epoch } = &self.lease;
        let session = || session.clone();
        let sql = "SELECT epoch, owner, revision FROM sessions WHERE session = $1";
        let Some(row) = transaction.query_opt(sql, &[&Text(&self.lease.session)]).await? else {
            return Ok(StoreError::NoSession { session: session() }.into());
        };
        let owner = super::text::optional_text(&row, 1)?;
        if super::queries::number(&row, 0)? != *epoch || owner.as_deref() != Some(store.owner.id()) {
            return Ok(StoreError::LeaseLost { session: session(), epoch: *epoch }.into());
        }
        let (expected, found) = (self.expected_revision, super::queries::number(&row, 2)?);
        if expected == found {
            // The statement was refused because of data that has changed since.
            return Ok(Failure::RunAgain);
        }
        Ok(StoreError::Conflict { session: session(), expected, found }.into())
    }

    /// Checks that the numbers of messages and events continue the stored numbers. Returns the number
    /// of the last message.
    fn check_numbers(&self, base: &Base) -> Result<u64, StoreError> {
        let mut sequences = self.events.iter().map(|event| event.sequence);
        sequences.try_fold(base.last_event, |last, sequence| next_number("event", last, sequence))?;
        let mut ids = self.messages.iter().map(|message| message.id);
        ids.try_fold(base.last_message, |last, id| next_number("message", last, id))
    }

    /// Returns what the commit charges for each turn.
    async fn charges(&self, transaction: &Transaction) -> Result<Vec<(u32, Spending)>, Failure> {
        match &self.charge {
            Some(charge) => budget_ledger::charges(transaction, &self.lease.session, (&self.usage, charge)).await,
            None => Ok(Vec::new()),
        }
    }

    async fn write_answer(&self, transaction: &Transaction) -> Result<(), Failure> {
        match &self.answer {
            Some(answer) => session_requests::write_answer(transaction, &self.lease.session, answer).await,
            None => Ok(()),
        }
    }

    /// Adds the entries of the audit log, last of all, because this locks a row for all processes.
    async fn write_audit<'s>(
        &self,
        transaction: &Transaction,
        store: &'s PostgresStore,
        time: i64,
    ) -> Result<Option<AuditTurn<'s>>, Failure> {
        let session = &self.lease.session;
        let mut actions: Vec<AuditAction> = Vec::new();
        for event in &self.service_events {
            let source = audit::source_of(transaction, session, &event.call).await?;
            actions.extend(event.action(session, source));
        }
        for event in self.events.iter().filter_map(|event| event.audited_event.as_ref()) {
            let source = match event.call() {
                Some(call) => audit::source_of(transaction, session, call).await?,
                None => None,
            };
            actions.extend(event.action(session, source));
        }
        if actions.is_empty() {
            return Ok(None);
        }
        let turn = store.audit_turn().await?;
        audit::insert(transaction, &actions.iter().collect::<Vec<_>>(), time, &turn).await?;
        Ok(Some(turn))
    }
}
