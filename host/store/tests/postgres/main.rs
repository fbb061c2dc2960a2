//! Tests of the store in PostgreSQL, with a real server that the tests start (F1, F2, D6).
//!
//! If PostgreSQL is not installed, the tests print a note and do nothing. With `AGENT_HOST_REQUIRE_PEERS=1`, they fail
//! instead. `tests/install-peers` installs PostgreSQL, and the S3 server of some tests.

mod announcements;
mod clients;
mod commits;
mod conformance;
mod copy;
mod failover;
mod leases;
mod memories;
mod objects;
mod plans;
mod proxy;
mod s3;
mod s3_proxy;
mod server;
mod settings;
mod stopped;

use agent_core::change::{Body, Change, NewMessage};
use agent_core::message::{Part, Role};
use agent_store::{
    Commit, MessageRange, OpenMode, OpenedSession, PostgresStore, SessionLog, SessionMeta, SessionState, Status,
};

/// Opens a session of the agent `a`.
async fn open(store: &PostgresStore, session: &str) -> OpenedSession {
    let meta = SessionMeta { agent: "a".to_owned(), ..SessionMeta::default() };
    store.open(session, OpenMode::Either, meta).await.expect("the session opens")
}

/// Returns a commit that appends one message.
fn append(id: u64, text: &str) -> Commit {
    let body = Body::Parts(vec![Part::Text(text.to_owned())]);
    let change =
        Change { messages: vec![NewMessage { id, turn: 1, role: Role::User, body, tokens: 1 }], ..Change::default() };
    let status = Status { state: SessionState::Running, turn: 1, ..Status::default() };
    Commit { snapshot: format!("{{\"messages\":{id}}}").into_bytes(), change, status, ..Commit::default() }
}

/// Returns the texts of all messages of a session.
async fn texts(store: &PostgresStore, session: &str) -> Vec<String> {
    let messages = store.messages(session, MessageRange::After { id: 0, limit: 10_000 }).await.expect("the messages");
    let text = |part: Part| match part {
        Part::Text(text) => text,
        other => panic!("unexpected part {other:?}"),
    };
    messages.into_iter().flat_map(|message| message.parts).map(text).collect()
}
