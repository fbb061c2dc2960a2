//! The database schema and its migrations. A released migration never changes; every later change is a new migration.

use super::audit;
use super::failure::Failure;
use crate::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::Path;

/// SQLite application id of the databases of this host: `agho` in ASCII. Databases of other programs have other ids.
const APPLICATION_ID: i64 = 0x6167_686f;

/// All migrations, oldest first. `user_version` of a file is the number of migrations that were applied to it.
const MIGRATIONS: &[&str] = &[
    INITIAL_SCHEMA,
    OUTBOX_AND_APPROVALS,
    HIDE_REASONS,
    MEMORY_ORIGINS,
    AUDIT_AND_VERSIONS,
    PLUGIN_TRIALS,
    KEY_VALUE_USAGE,
    APPROVAL_BINDINGS,
    SESSION_ORDER,
    VIEW_PIECES,
    TURN_USAGE,
    CONTINUATION_TIMES,
    DELIVERIES_AND_SCHEDULES,
    MEMORY_PROJECTS,
    AUDIT_CHAIN,
    BUDGET_LEDGER,
    TRACE_EXPORTS,
    REQUESTS,
    PLUGIN_SOURCES,
];

/// Refuses a file that belongs to another program or was migrated by a newer host. Does not write to the file.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let supported = MIGRATIONS.len() as i64;
    match application {
        0 if found == 0 && objects == 0 => Ok(()),
        APPLICATION_ID if found > supported => {
            Err(StoreError::Newer { path: path.to_owned(), found, supported }.into())
        }
        APPLICATION_ID if found > 0 => Ok(()),
        APPLICATION_ID => Err(Failure::Unreadable(format!("its schema version is {found}"))),
        _ => Err(StoreError::Foreign { path: path.to_owned() }.into()),
    }
}

/// Refuses a file that a newer host has migrated since it was opened (row 50). Every write transaction calls
/// this function.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let found: i64 = connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    let supported = MIGRATIONS.len() as i64;
    if found > supported { Err(StoreError::Newer { path: path.to_owned(), found, supported }.into()) } else { Ok(()) }
}

/// Returns whether the file has this host's schema version.
pub(super) fn is_current(connection: &Connection) -> Result<bool, Failure> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(found == MIGRATIONS.len() as i64)
}

/// Migrates the file to this host's version. The version is checked again after the write lock is acquired, because
/// another process may have migrated the file before the lock was acquired.
pub(super) fn migrate(connection: &Connection, path: &Path) -> Result<(), Failure> {
    let version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).map_err(Failure::from)
    };
    if version(connection)? == MIGRATIONS.len() as i64 {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    check(&transaction, path)?;
    let applied = usize::try_from(version(&transaction)?).unwrap_or_default();
    for migration in &MIGRATIONS[applied..] {
        transaction.execute_batch(migration)?;
        if *migration == AUDIT_CHAIN {
            audit::add_hashes(&transaction)?;
            transaction.execute_batch(AUDIT_TRIGGERS)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    transaction.commit()?;
    Ok(())
}

/// The first version of the schema. Times are in microseconds since 1970 in UTC. Columns named `session` refer to
/// `sessions.id`.
///
/// Tables with large rows have a row number, so that the content is stored outside of the index. Tables with small rows
/// store the rows in the index itself (`WITHOUT ROWID`). A commit rewrites one row of `sessions` and one row of
/// `snapshots`; neither row grows with the history.
const INITIAL_SCHEMA: &str = "
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    subject TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    user TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    owner TEXT,
    last_message INTEGER NOT NULL DEFAULT 0,
    last_event INTEGER NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'new',
    title TEXT
) STRICT;

CREATE TABLE snapshots (
    session INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    run BLOB NOT NULL
) STRICT;

-- A message whose content is the result of a call only stores the id of the call.
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    role TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    call TEXT,
    parts TEXT,
    UNIQUE (session, id),
    CHECK ((call IS NULL) <> (parts IS NULL))
) STRICT;

CREATE TRIGGER messages_are_never_rewritten BEFORE UPDATE ON messages
BEGIN SELECT raise(ABORT, 'the content of a stored message is never rewritten'); END;

CREATE TABLE hidden (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id INTEGER NOT NULL,
    seen_count INTEGER NOT NULL,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id TEXT NOT NULL,
    turn INTEGER NOT NULL,
    step INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    source TEXT,
    arguments TEXT NOT NULL,
    result TEXT,
    UNIQUE (session, id),
    CHECK ((state = 'finished') = (result IS NOT NULL))
) STRICT;
CREATE INDEX calls_by_turn ON calls (session, turn);
CREATE INDEX calls_unfinished ON calls (session) WHERE state <> 'finished';

CREATE TRIGGER results_are_never_rewritten BEFORE UPDATE ON calls WHEN old.state = 'finished'
BEGIN SELECT raise(ABORT, 'the result of a finished call is never rewritten'); END;

-- A consumer of events stores how far it has read.
CREATE TABLE events (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX records_by_turn ON records (session, turn);

CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

-- A reference without a media type is a text of a step record.
CREATE TABLE blob_references (
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    blob INTEGER NOT NULL REFERENCES blobs,
    mime_type TEXT,
    width INTEGER,
    height INTEGER,
    name TEXT,
    PRIMARY KEY (session, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_references_by_blob ON blob_references (blob);

CREATE TABLE key_values (
    number INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    plugin TEXT NOT NULL,
    bucket TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (agent, plugin, bucket, key)
) STRICT;

CREATE TABLE memories (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    kind TEXT NOT NULL,
    session TEXT NOT NULL,
    text TEXT NOT NULL,
    written INTEGER NOT NULL
) STRICT;
CREATE INDEX memories_by_user ON memories (user, written, number);

-- Full-text indexes. They store no text and can be rebuilt.
CREATE VIRTUAL TABLE message_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE memory_words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);
-- Number of the last row of `messages` that `message_words` contains.
CREATE TABLE message_words_progress (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL
) STRICT;
INSERT INTO message_words_progress VALUES (1, 0);
";

/// Adds edited arguments, lasting approvals, delegated sessions, and the outbox.
///
/// Numbers of outbox items are never reused, so that a reader that has read the items up to a number does not miss
/// later items. The id of an approval is the digest of its content.
const OUTBOX_AND_APPROVALS: &str = "
ALTER TABLE calls ADD COLUMN edited TEXT;

ALTER TABLE sessions ADD COLUMN delegated_by TEXT;
CREATE INDEX sessions_by_parent ON sessions (delegated_by) WHERE delegated_by IS NOT NULL;

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    delivered INTEGER,
    UNIQUE (session, id)
) STRICT;
CREATE INDEX outbox_pending ON outbox (number) WHERE delivered IS NULL;

CREATE TABLE approvals (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    arguments TEXT,
    given INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_agent ON approvals (agent, given);
";

/// Adds a column for the reason why a message left the view. If a message left the view before this column existed, the
/// reason is not known, so `superseded` is stored.
const HIDE_REASONS: &str = "
ALTER TABLE hidden ADD COLUMN why TEXT NOT NULL DEFAULT 'superseded';
";

/// Adds columns for the agent that made a memory and for the turn in which the memory was made. For older memories, the
/// turn is read from the memory's id, which contains the session, the turn and the kind.
const MEMORY_ORIGINS: &str = "
ALTER TABLE memories ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE memories ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
UPDATE memories SET
    agent = coalesce((SELECT agent FROM sessions WHERE subject = memories.session), ''),
    turn = CASE WHEN substr(id, 1, length(session) + 1) = session || '/'
        THEN CAST(substr(id, length(session) + 2) AS INTEGER) ELSE 0 END;
CREATE INDEX memories_by_session ON memories (session, turn);
";

/// Adds the history of plugin versions, the rollbacks, and the audit log. No row refers to a session, because the audit
/// log outlives sessions.
const AUDIT_AND_VERSIONS: &str = "
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_subject ON audit (kind, subject, number);

CREATE TRIGGER audit_is_never_rewritten BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is never rewritten'); END;

CREATE TABLE plugin_versions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    directory TEXT NOT NULL,
    plugin TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL,
    began INTEGER NOT NULL,
    ended INTEGER,
    why TEXT
) STRICT;
CREATE INDEX plugin_versions_serving ON plugin_versions (directory) WHERE ended IS NULL;
CREATE INDEX plugin_versions_by_plugin ON plugin_versions (directory, plugin, number);

CREATE TABLE plugin_rollbacks (
    directory TEXT NOT NULL,
    plugin TEXT NOT NULL,
    rolled_back TEXT NOT NULL,
    serving TEXT NOT NULL,
    why TEXT NOT NULL,
    time INTEGER NOT NULL,
    PRIMARY KEY (directory, plugin)
) STRICT, WITHOUT ROWID;
";

/// Adds a table of the plugin versions on trial. For each version, the table contains the number of calls that all
/// processes have made to this version. Versions that were in use before this migration are not on trial.
const PLUGIN_TRIALS: &str = "
CREATE TABLE plugin_trials (
    directory TEXT NOT NULL,
    plugin TEXT NOT NULL,
    digest TEXT NOT NULL,
    before TEXT NOT NULL,
    calls INTEGER NOT NULL,
    traps INTEGER NOT NULL,
    PRIMARY KEY (directory, plugin)
) STRICT, WITHOUT ROWID;
";

/// Adds the identity to which each lasting approval and each rule for a tool name is bound. For each agent, adds the
/// components that were in use when a turn started. Approvals that were stored before this migration are not bound to
/// an identity, so the host requests these approvals again.
const APPROVAL_BINDINGS: &str = "
ALTER TABLE approvals ADD COLUMN identity TEXT;
ALTER TABLE approvals ADD COLUMN grants TEXT;

CREATE TABLE rule_bindings (
    agent TEXT NOT NULL,
    tool TEXT NOT NULL,
    identity TEXT NOT NULL,
    bound INTEGER NOT NULL,
    PRIMARY KEY (agent, tool)
) STRICT, WITHOUT ROWID;

CREATE TABLE turn_plugins (
    agent TEXT NOT NULL,
    plugin TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (agent, plugin, digest)
) STRICT, WITHOUT ROWID;
";

/// Adds the total size of the values that each plugin stores, so that a write does not have to add up all values.
/// Triggers maintain the totals, so that no write can bypass them.
const KEY_VALUE_USAGE: &str = "
CREATE TABLE key_value_usage (
    agent TEXT NOT NULL,
    plugin TEXT NOT NULL,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (agent, plugin)
) STRICT, WITHOUT ROWID;
INSERT INTO key_value_usage
    SELECT agent, plugin, count(*), sum(length(CAST(key AS BLOB)) + length(value)) FROM key_values GROUP BY agent, plugin;

CREATE TRIGGER key_value_is_added AFTER INSERT ON key_values
BEGIN
    INSERT INTO key_value_usage VALUES (new.agent, new.plugin, 1, length(CAST(new.key AS BLOB)) + length(new.value))
    ON CONFLICT (agent, plugin) DO UPDATE SET entries = entries + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER key_value_is_replaced AFTER UPDATE ON key_values
BEGIN
    UPDATE key_value_usage SET bytes = bytes + length(new.value) - length(old.value)
    WHERE agent = new.agent AND plugin = new.plugin;
END;
CREATE TRIGGER key_value_is_removed AFTER DELETE ON key_values
BEGIN
    UPDATE key_value_usage
    SET entries = entries - 1, bytes = bytes - length(CAST(old.key AS BLOB)) - length(old.value)
    WHERE agent = old.agent AND plugin = old.plugin;
END;
";

/// Adds a column that orders sessions by the time at which their last turn was started or stopped. The order is stored
/// as a number, because clocks may be set back. 0 means that no turn was started in the session.
const SESSION_ORDER: &str = "
ALTER TABLE sessions ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET place = ordered.place FROM (
    SELECT id, row_number() OVER (ORDER BY updated, id) AS place FROM sessions WHERE revision > 0
) AS ordered WHERE sessions.id = ordered.id;
CREATE INDEX sessions_by_place ON sessions (place);
";

/// Adds a table for views that are stored in pieces, so that a commit writes only the pieces that it changes. If a
/// session has no pieces, the view is in the session's snapshot.
const VIEW_PIECES: &str = "
CREATE TABLE view_pieces (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    items BLOB NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
";

/// Adds a table for the model calls of each turn, and for their tokens and costs. A column for a part of the tokens is
/// null if the provider does not report the parts. The cost is null if no price is known.
const TURN_USAGE: &str = "
CREATE TABLE turn_usage (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    execution_units INTEGER NOT NULL,
    model_calls INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    uncached_prompt INTEGER,
    cache_read INTEGER,
    cache_write INTEGER,
    completion INTEGER,
    thinking INTEGER,
    nanodollars INTEGER,
    is_partial INTEGER NOT NULL,
    saved_tokens INTEGER NOT NULL,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;
";

/// Adds the time from which a session can continue without an answer from outside, in milliseconds. It is 0 for a turn
/// that was interrupted and for a queued prompt. For a suspended turn, it is the earliest deadline.
const CONTINUATION_TIMES: &str = "
ALTER TABLE sessions ADD COLUMN continues_at INTEGER;
UPDATE sessions SET continues_at = (
    SELECT CASE
        WHEN sessions.state IN ('running', 'suspended') AND json_extract(run, '$.turn.pinned') IS NULL THEN NULL
        WHEN sessions.state = 'running' THEN 0
        WHEN sessions.state = 'suspended' THEN (
            SELECT min(deadlines.value) FROM json_tree(run, '$.turn.phase') AS deadlines
            WHERE deadlines.key = 'expires_at' AND deadlines.type = 'integer'
        )
        ELSE CASE WHEN json_array_length(run, '$.kept') > 0 THEN 0 END
    END
    FROM (
        SELECT CASE WHEN json_valid(CAST(snapshots.run AS TEXT)) THEN CAST(snapshots.run AS TEXT) ELSE '{}' END AS run
        FROM snapshots WHERE snapshots.session = sessions.id
    )
) WHERE state <> 'incomplete';
CREATE INDEX sessions_to_continue ON sessions (continues_at) WHERE continues_at IS NOT NULL;
CREATE INDEX sessions_open ON sessions (subject) WHERE state IN ('running', 'suspended');
";

/// Adds the failed attempts to deliver outbox items, and the next times of schedules. `due` and `last_run` are in
/// milliseconds since the Unix epoch.
const DELIVERIES_AND_SCHEDULES: &str = "
ALTER TABLE outbox ADD COLUMN failed_attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN problem TEXT;
CREATE TABLE schedules (
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    due INTEGER NOT NULL,
    last_run INTEGER,
    last_session TEXT,
    PRIMARY KEY (agent, name)
) STRICT, WITHOUT ROWID;
";

/// Adds a column for the project folder that a memory comes from. The folder of older memories is not known, so every
/// project recalls them.
const MEMORY_PROJECTS: &str = "
ALTER TABLE memories ADD COLUMN project TEXT;
";

/// Adds the hash of each entry of the audit log. [`audit::add_hashes`] computes the hashes of existing entries, and
/// [`AUDIT_TRIGGERS`] then forbids changes.
const AUDIT_CHAIN: &str = "
DROP TRIGGER audit_is_never_rewritten;
ALTER TABLE audit ADD COLUMN hash TEXT NOT NULL DEFAULT '';
";

/// Part of the migration [`AUDIT_CHAIN`].
const AUDIT_TRIGGERS: &str = "
CREATE TRIGGER audit_is_never_rewritten BEFORE UPDATE ON audit
BEGIN SELECT raise(ABORT, 'the audit log is never rewritten'); END;
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit
BEGIN SELECT raise(ABORT, 'entries of the audit log are never removed'); END;
";

/// Adds what was charged to turns, sessions, agents and users (O4). Turn 0 stands for the whole session. A period has 15
/// minutes, because all time zones differ by a multiple of 15 minutes; its number is the number of periods since 1970. An
/// empty user stands for sessions without a user. The rows of agents and users do not refer to sessions, so that the
/// deletion of a session does not free its budget. Turns of earlier versions are charged to the time of their last event.
const BUDGET_LEDGER: &str = "
CREATE TABLE session_charges (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    nanodollars INTEGER NOT NULL,
    milliseconds INTEGER NOT NULL,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE period_charges (
    agent TEXT NOT NULL,
    user TEXT NOT NULL,
    period INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    nanodollars INTEGER NOT NULL,
    milliseconds INTEGER NOT NULL,
    PRIMARY KEY (agent, user, period)
) STRICT, WITHOUT ROWID;
CREATE INDEX period_charges_by_agent ON period_charges (agent, period);
CREATE INDEX period_charges_by_user ON period_charges (user, period);

INSERT INTO session_charges
    SELECT session, turn, CAST(tokens AS INTEGER), CAST(nanodollars AS INTEGER), 0 FROM (
        SELECT session, turn, total(coalesce(uncached_prompt + cache_read + cache_write + completion,
            prompt_tokens + completion_tokens)) AS tokens, total(nanodollars) AS nanodollars
        FROM turn_usage WHERE turn > 0 GROUP BY session, turn
    );
INSERT INTO session_charges
    SELECT session, 0, CAST(total(tokens) AS INTEGER), CAST(total(nanodollars) AS INTEGER), 0
    FROM session_charges GROUP BY session;
INSERT INTO period_charges
    SELECT s.agent, coalesce(s.user, ''), ended.time / 900000000, CAST(total(c.tokens) AS INTEGER),
        CAST(total(c.nanodollars) AS INTEGER), 0
    FROM session_charges c JOIN sessions s ON s.id = c.session
    JOIN (SELECT session, turn, max(time) AS time FROM events GROUP BY session, turn) ended
        ON ended.session = c.session AND ended.turn = c.turn
    GROUP BY s.agent, coalesce(s.user, ''), ended.time / 900000000;
";

/// Adds the positions up to which sessions were exported as traces, the store instances that export them, and the agents
/// whose export has begun.
const TRACE_EXPORTS: &str = "
CREATE TABLE trace_exports (
    session INTEGER PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    event INTEGER NOT NULL,
    record INTEGER NOT NULL,
    turn_start INTEGER NOT NULL,
    owner TEXT
) STRICT;
CREATE TABLE traced_agents (agent TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
";

/// Adds requests to sessions that another process has open, and their answers. The sender deletes a request when it has read
/// the answer.
const REQUESTS: &str = "
CREATE TABLE requests (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    posted INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    content TEXT NOT NULL,
    claimed INTEGER NOT NULL DEFAULT 0,
    answer TEXT,
    PRIMARY KEY (session, id)
) STRICT;
CREATE INDEX requests_to_handle ON requests (posted) WHERE answer IS NULL;
CREATE INDEX requests_by_expiry ON requests (expires);
";

/// Adds where the versions of plugins come from.
const PLUGIN_SOURCES: &str = "
CREATE TABLE plugin_sources (
    plugin TEXT NOT NULL,
    digest TEXT NOT NULL,
    statements TEXT NOT NULL,
    PRIMARY KEY (plugin, digest)
) STRICT, WITHOUT ROWID;
";

#[cfg(test)]
mod tests;
