-- The first version of the schema. Times are in microseconds since 1970 in UTC, and come from the database's clock. Texts
-- are compared byte by byte. The character U+0000, which PostgreSQL cannot store, is escaped.
--
-- The tables from `sessions` to `trace_exports` have primary keys that begin with the session, and no commit needs a row of
-- another session's partition except for the charges of delegating turns. Blobs are stored once for all sessions, so their
-- keys begin with the digest.

-- The open stores. A store whose row has expired is no longer alive.
CREATE TABLE owners (
    id text COLLATE "C" PRIMARY KEY,
    process bigint NOT NULL,
    machine text NOT NULL,
    host text NOT NULL,
    expires bigint NOT NULL
);

-- A commit rewrites one row of `sessions` and one row of `snapshots`; neither row grows with the history. Pages have free
-- space, so that most updates need no change of an index.
CREATE TABLE sessions (
    session text COLLATE "C" PRIMARY KEY,
    agent text COLLATE "C" NOT NULL,
    user_name text COLLATE "C",
    delegated_by text COLLATE "C",
    created bigint NOT NULL,
    updated bigint NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    -- Id of the last commit.
    last_commit text COLLATE "C",
    epoch bigint NOT NULL DEFAULT 0,
    owner text COLLATE "C",
    last_message bigint NOT NULL DEFAULT 0,
    last_event bigint NOT NULL DEFAULT 0,
    turns bigint NOT NULL DEFAULT 0,
    state text COLLATE "C" NOT NULL DEFAULT 'new',
    title text,
    -- Orders sessions by the time at which their last turn was started or stopped.
    place bigint NOT NULL,
    -- Time from which the session can continue without an answer, in milliseconds since 1970.
    continues_at bigint
) WITH (fillfactor = 60);
CREATE SEQUENCE session_places;
CREATE INDEX sessions_by_place ON sessions (place);
CREATE INDEX sessions_by_agent ON sessions (agent, place);
CREATE INDEX sessions_by_parent ON sessions (delegated_by) WHERE delegated_by IS NOT NULL;
CREATE INDEX sessions_to_continue ON sessions (continues_at) WHERE continues_at IS NOT NULL;
CREATE INDEX sessions_open ON sessions (session) WHERE state IN ('running', 'suspended');

-- The last commit of each earlier lease, so that the holder of a lost lease can find out whether its last commit is stored.
CREATE TABLE ended_leases (
    session text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    last_commit text COLLATE "C",
    revision bigint NOT NULL,
    PRIMARY KEY (session, epoch)
);

CREATE TABLE snapshots (
    session text COLLATE "C" PRIMARY KEY,
    run bytea NOT NULL
) WITH (fillfactor = 60);

CREATE TABLE view_pieces (
    session text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    items bytea NOT NULL,
    PRIMARY KEY (session, number)
);

-- A message whose content is the result of a call only stores the id of the call.
CREATE TABLE messages (
    session text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    turn bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    call text COLLATE "C",
    parts text,
    PRIMARY KEY (session, id),
    CHECK ((call IS NULL) <> (parts IS NULL))
);

-- The distinct words of each message, and how often each of them occurs. Can be rebuilt from the messages.
CREATE TABLE message_words (
    session text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    length bigint NOT NULL,
    words text[] COLLATE "C" NOT NULL,
    counts integer[] NOT NULL,
    PRIMARY KEY (session, id)
);
CREATE INDEX message_words_by_word ON message_words USING gin (words);

CREATE TABLE hidden (
    session text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    seen_count bigint NOT NULL,
    why text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, id)
);

CREATE TABLE calls (
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    turn bigint NOT NULL,
    step bigint NOT NULL,
    name text NOT NULL,
    state text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    source text,
    arguments text NOT NULL,
    edited text,
    result text,
    PRIMARY KEY (session, id),
    CHECK ((state = 'finished') = (result IS NOT NULL))
);
CREATE INDEX calls_by_turn ON calls (session, turn);
CREATE INDEX calls_unfinished ON calls (session) WHERE state <> 'finished';

CREATE TABLE events (
    session text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    turn bigint NOT NULL,
    time bigint NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (session, sequence)
);

CREATE TABLE records (
    session text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    turn bigint NOT NULL,
    step bigint NOT NULL,
    kind text NOT NULL,
    time bigint NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE INDEX records_by_turn ON records (session, turn);

-- The number of an item is unique over all sessions, and increases in commit order.
CREATE TABLE outbox (
    session text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    body text NOT NULL,
    created bigint NOT NULL,
    delivered bigint,
    failed_attempts bigint NOT NULL DEFAULT 0,
    problem text,
    PRIMARY KEY (session, id)
);
CREATE UNIQUE INDEX outbox_by_number ON outbox (number);
CREATE INDEX outbox_pending ON outbox (number) WHERE delivered IS NULL;
CREATE TABLE outbox_numbers (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    last bigint NOT NULL
);
INSERT INTO outbox_numbers (last) VALUES (0);

CREATE TABLE turn_usage (
    session text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    execution_units bigint NOT NULL,
    model_calls bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    uncached_prompt bigint,
    cache_read bigint,
    cache_write bigint,
    completion bigint,
    thinking bigint,
    nanodollars bigint,
    is_partial boolean NOT NULL,
    saved_tokens bigint NOT NULL,
    PRIMARY KEY (session, turn)
);

-- Turn 0 stands for the whole session.
CREATE TABLE session_charges (
    session text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    tokens bigint NOT NULL,
    nanodollars bigint NOT NULL,
    milliseconds bigint NOT NULL,
    PRIMARY KEY (session, turn)
);

-- A reference without a media type is a text of a step record.
CREATE TABLE blob_references (
    session text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    mime_type text,
    width bigint,
    height bigint,
    name text,
    PRIMARY KEY (session, digest)
);
CREATE INDEX blob_references_by_digest ON blob_references (digest);

CREATE TABLE trace_exports (
    session text COLLATE "C" PRIMARY KEY,
    event bigint NOT NULL,
    record bigint NOT NULL,
    turn_start bigint NOT NULL,
    owner text COLLATE "C"
);

-- Bytes are stored in parts, so that no row is large and a read of a range reads only the parts of this range.
CREATE TABLE blobs (
    digest bytea PRIMARY KEY,
    size bigint NOT NULL
);
CREATE TABLE blob_parts (
    digest bytea NOT NULL,
    part bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (digest, part)
);

-- A period has 15 minutes; its number is the number of periods since 1970. An empty user stands for work without a user.
-- Each agent and user has several rows for a period, so that sessions rarely wait for each other.
CREATE TABLE period_charges (
    agent text COLLATE "C" NOT NULL,
    user_name text COLLATE "C" NOT NULL,
    period bigint NOT NULL,
    slot bigint NOT NULL,
    tokens bigint NOT NULL,
    nanodollars bigint NOT NULL,
    milliseconds bigint NOT NULL,
    PRIMARY KEY (agent, user_name, period, slot)
);
CREATE INDEX period_charges_by_agent ON period_charges (agent, period);
CREATE INDEX period_charges_by_user ON period_charges (user_name, period);

CREATE TABLE traced_agents (agent text COLLATE "C" PRIMARY KEY);

-- The keys begin with a hash of the agent, the plugin and the bucket, because these names may be too long for an index.
CREATE TABLE key_values (
    bucket_hash bytea NOT NULL,
    key text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    bucket text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (bucket_hash, key)
);
CREATE TABLE key_value_usage (
    plugin_hash bytea PRIMARY KEY,
    entries bigint NOT NULL,
    bytes bigint NOT NULL
);

CREATE TABLE memories (
    id text COLLATE "C" PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    user_name text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    text text NOT NULL,
    written bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    project text,
    length bigint NOT NULL,
    words text[] COLLATE "C" NOT NULL,
    counts integer[] NOT NULL
);
CREATE INDEX memories_by_user ON memories (user_name, written, number);
CREATE INDEX memories_by_session ON memories (session, turn);
CREATE INDEX memories_by_word ON memories USING gin (words);

CREATE TABLE approvals (
    id text COLLATE "C" PRIMARY KEY,
    agent text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    arguments text COLLATE "C",
    given bigint NOT NULL,
    identity text COLLATE "C",
    grants text COLLATE "C"
);
CREATE INDEX approvals_by_agent ON approvals (agent, given);
CREATE TABLE rule_bindings (
    agent text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    identity text COLLATE "C" NOT NULL,
    bound bigint NOT NULL,
    PRIMARY KEY (agent, tool)
);

-- The audit log is one chain for the whole database. `audit_head` contains its last entry.
CREATE TABLE audit (
    number bigint PRIMARY KEY,
    time bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    body text NOT NULL,
    hash text COLLATE "C" NOT NULL
);
CREATE INDEX audit_by_subject ON audit (kind, md5(subject), number);
CREATE TABLE audit_head (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    number bigint NOT NULL,
    hash text COLLATE "C" NOT NULL
);
INSERT INTO audit_head (number, hash) VALUES (0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');

CREATE TABLE plugin_versions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    directory text COLLATE "C" NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    origin text NOT NULL,
    began bigint NOT NULL,
    ended bigint,
    why text COLLATE "C"
);
CREATE INDEX plugin_versions_serving ON plugin_versions (directory) WHERE ended IS NULL;
CREATE INDEX plugin_versions_by_plugin ON plugin_versions (directory, plugin, number);
CREATE TABLE plugin_rollbacks (
    directory text COLLATE "C" NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    rolled_back text COLLATE "C" NOT NULL,
    serving text COLLATE "C" NOT NULL,
    why text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    PRIMARY KEY (directory, plugin)
);
CREATE TABLE plugin_trials (
    directory text COLLATE "C" NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    before text COLLATE "C" NOT NULL,
    calls bigint NOT NULL,
    traps bigint NOT NULL,
    PRIMARY KEY (directory, plugin)
);
CREATE TABLE turn_plugins (
    agent text COLLATE "C" NOT NULL,
    plugin text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    PRIMARY KEY (agent, plugin, digest)
);

CREATE TABLE schedules (
    agent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    definition text NOT NULL,
    due bigint NOT NULL,
    last_run bigint,
    last_session text COLLATE "C",
    PRIMARY KEY (agent, name)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '%', TG_ARGV[0]; END
$$;
CREATE TRIGGER messages_are_never_rewritten BEFORE UPDATE ON messages FOR EACH ROW
    EXECUTE FUNCTION refuse_change('the content of a stored message is never rewritten');
CREATE TRIGGER results_are_never_rewritten BEFORE UPDATE ON calls FOR EACH ROW WHEN (old.state = 'finished')
    EXECUTE FUNCTION refuse_change('the result of a finished call is never rewritten');
CREATE TRIGGER audit_is_never_rewritten BEFORE UPDATE ON audit FOR EACH ROW
    EXECUTE FUNCTION refuse_change('the audit log is never rewritten');
CREATE TRIGGER audit_is_never_shortened BEFORE DELETE ON audit FOR EACH ROW
    EXECUTE FUNCTION refuse_change('entries of the audit log are never removed');
