//! "Long history": The time of a turn in a session with few older messages and in a session with many. Both sessions
//! have the same messages in the view.

use crate::agent::{in_memory, scripted};
use crate::loop_step::{Step, observer};
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::change::{Body, Change, HiddenMessage, HideReason, NewMessage};
use agent_core::message::{Part, Role, TurnInput};
use agent_core::run::{Run, ViewEntry};
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Agent, Host, OpenSession, Session, TurnResult};
use agent_store::{
    Commit, OpenMode, Options, SessionIndex, SessionLog, SessionMeta, SessionState, SqliteStore, Status, Synchronous,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

/// The number of messages in the view.
const VIEW_MESSAGES: u64 = 200;
/// For each of the two sessions, the number of older messages. The older messages are stored but are no longer in
/// the view.
const OLDER_MESSAGES: [u64; 2] = [100, 100_000];
const WARM_UP: usize = 20;
const ROUNDS: usize = 300;
/// The maximum ratio of the median time with the long history to the median time with the short history.
const MAX_RATIO: f64 = 1.2;
const SUBJECT: &str = "bench/0199f3a2-7c1e-7000-8000-3f1b2c4d5e6f";
/// The number of messages in each commit that creates the history.
const MESSAGES_PER_COMMIT: u64 = 1_000;

/// A host whose store contains the history.
struct HistoryHost {
    host: Host,
    step: Arc<Mutex<Step>>,
    turns: Samples,
    steps: Samples,
    snapshot: Vec<u8>,
}

/// Measures the time to open the session and run one turn, and the time of the turn's step. The rounds alternate
/// between the two histories.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let (directory, location) = in_memory()?;
    let agent = scripted(directory.path(), WARM_UP + ROUNDS)?;
    let mut hosts = Vec::new();
    for older in OLDER_MESSAGES {
        hosts.push(HistoryHost::new(&directory.path().join(format!("{older}.db")), older).await?);
    }
    for round in 0..WARM_UP + ROUNDS {
        for number in 0..hosts.len() {
            hosts[(number + round) % OLDER_MESSAGES.len()].measure(&agent, round >= WARM_UP).await?;
        }
    }
    let [few, many] = &hosts[..] else { bail!("there are not two histories") };
    table.title(format!(
        "long history: {VIEW_MESSAGES} messages in the view after {} and {} older ones, {location}, {} samples each",
        OLDER_MESSAGES[0],
        OLDER_MESSAGES[1],
        few.turns.count()
    ));
    let snapshots =
        format!("snapshot of {} and {} bytes, {}", few.snapshot.len(), many.snapshot.len(), few.compare(many));
    for (what, samples, note) in
        [("opening and one turn", [&few.turns, &many.turns], ""), ("its step", [&few.steps, &many.steps], &snapshots)]
    {
        let ratio = samples[1].median().as_secs_f64() / samples[0].median().as_secs_f64();
        let verdict = format!("{ratio:.2} ×; target {MAX_RATIO} ×: {}; {note}", reached(ratio <= MAX_RATIO));
        table.line(&format!("{what}, after {}", OLDER_MESSAGES[0]), samples[0].clone(), String::new());
        table.line(
            &format!("{what}, after {}", OLDER_MESSAGES[1]),
            samples[1].clone(),
            verdict.trim_end_matches("; ").to_owned(),
        );
    }
    Ok(())
}

impl HistoryHost {
    async fn new(file: &Path, older: u64) -> wasmtime::Result<Self> {
        let options = Options { synchronous: Synchronous::Off, ..Options::default() };
        let store = Arc::new(SqliteStore::open(file, options)?);
        let step: Arc<Mutex<Step>> = Arc::default();
        let sandbox = Sandbox::new(SandboxOptions::default())?;
        fill(&store, older).await?;
        // Search once, which updates the search index, so that the index is not updated while the turns are measured.
        store.search_messages("lines", 1).await?;
        let checkpoint = Some(observer(step.clone()));
        let host = Host { checkpoint, ..Host::new(store, sandbox) };
        Ok(Self { host, step, turns: Samples::default(), steps: Samples::default(), snapshot: Vec::new() })
    }

    /// Measures one turn and undoes it, so that the next turn starts with the same view.
    async fn measure(&mut self, agent: &Arc<Agent>, is_measured: bool) -> wasmtime::Result<()> {
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let start = Instant::now();
        let mut session = Session::open(&self.host, agent.clone(), OpenSession::Existing(SUBJECT.to_owned())).await?;
        let result = session.run(input, CancellationToken::new()).await?;
        let elapsed = start.elapsed();
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        let Some((step, _)) = Step::duration_and_commits(&self.step) else { bail!("the turn had no step") };
        if is_measured {
            self.turns.push(elapsed);
            self.steps.push(step);
        }
        self.snapshot = session.state().snapshot();
        session.undo().await?;
        Ok(session.close().await?)
    }

    /// Compares the turn snapshots of this host and the other host. The snapshots may differ only in their message ids,
    /// which have more digits with a long history.
    fn compare(&self, other: &Self) -> &'static str {
        let without_digits =
            |bytes: &[u8]| bytes.iter().filter(|byte| !byte.is_ascii_digit()).copied().collect::<Vec<_>>();
        let trace = |host: &Self| {
            let mut run: serde_json::Value = serde_json::from_slice(&host.snapshot).unwrap_or_default();
            // The trace id is random, so it is left out of the comparison. The length of the trace id is always
            // the same.
            run["turn"]["trace"] = serde_json::Value::Null;
            without_digits(run.to_string().as_bytes())
        };
        if trace(self) == trace(other) { "equal except for digits" } else { "DIFFERENT" }
    }
}

/// Creates a session with `older` messages that are no longer in the view, followed by the messages of the view.
async fn fill(store: &SqliteStore, older: u64) -> wasmtime::Result<()> {
    let meta = SessionMeta { agent: "bench".to_owned(), user: None, delegated_by: None };
    let opened = store.open(SUBJECT, OpenMode::CreateNew, meta).await?;
    let last = older + VIEW_MESSAGES;
    let mut run = Run::new(SUBJECT, "bench");
    run.next_message = last + 1;
    run.turns = u32::try_from(last / 2)?;
    run.view = (older + 1..=last).map(entry).collect();
    let mut revision = opened.revision;
    for first in (1..=last).step_by(MESSAGES_PER_COMMIT as usize) {
        let ids = first..(first + MESSAGES_PER_COMMIT).min(last + 1);
        let hidden = ids
            .clone()
            .filter(|id| *id <= older)
            .map(|id| HiddenMessage { id, seen_count: 1, why: HideReason::Evicted })
            .collect();
        let change = Change { messages: ids.map(message).collect(), hidden, ..Change::default() };
        let status = Status { state: SessionState::Idle, turn: run.turns, title: None, ..Status::default() };
        let commit = Commit { snapshot: run.snapshot(), change, status, ..Commit::default() };
        revision = store.commit(&opened.lease, revision, commit).await?;
    }
    Ok(store.release(opened.lease).await?)
}

fn message(id: u64) -> NewMessage {
    let ViewEntry { turn, tokens, .. } = entry(id);
    let text = format!("Message {id} says how many lines the file has, and that nothing else is worth saying of it.");
    NewMessage { id, turn, role: role(id), body: Body::Parts(vec![Part::Text(text)]), tokens }
}

fn entry(id: u64) -> ViewEntry {
    let first = u32::from(role(id) == Role::Assistant);
    ViewEntry {
        id,
        turn: u32::try_from(id.div_ceil(2)).unwrap_or(u32::MAX),
        first,
        since: 0,
        tokens: 25,
        role: Some(role(id)),
    }
}

fn role(id: u64) -> Role {
    if id % 2 == 1 { Role::User } else { Role::Assistant }
}
