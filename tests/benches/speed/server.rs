//! "Server streams" and "idle sessions": many sessions of one server whose events are read over HTTP by readers that
//! disconnect and continue, and the memory of sessions that are watched while nothing happens.

use crate::client::Client;
use crate::samples::Samples;
use crate::streams::read_first_turn;
use crate::table::{Table, reached};
use agent_core::message::TurnInput;
use agent_plugins::{Generation, Sandbox, SandboxOptions};
use agent_runtime::{
    Agent, AgentConfig, EventPosition, Host, LiveAgent, Prompt, Supervisor, SupervisorOptions, TurnUpdate,
};
use agent_serve::{NewToken, Right, Server, ServerOptions, TokenFile};
use agent_store::{Options, SqliteStore};
use futures::future::join_all;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Number of sessions whose events are read at the same time.
const STREAMS: usize = 200;
/// Number of pieces of each reply.
const PIECES: usize = 50;
/// A reader disconnects after this number of events.
const EVENTS_PER_CONNECTION: usize = 20;
const ROUNDS: usize = 3;
/// Number of sessions that are watched while nothing happens.
const IDLE: usize = 1_000;
/// The target for the memory of these sessions, in bytes.
const MAX_IDLE_BYTES: u64 = 50_000_000;

fn reply() -> (serde_json::Value, String) {
    let pieces: Vec<String> = (0..PIECES).map(|piece| format!("piece {piece}, ")).collect();
    (json!({"chunks": pieces, "delay_ms": 10}), pieces.concat())
}

fn supervisor(directory: &Path) -> wasmtime::Result<Supervisor> {
    std::fs::write(directory.join("script.json"), json!({"replies": [reply().0]}).to_string())?;
    let provider = agent_models::provider("scripted:script.json", directory)?;
    let agent = Arc::new(Agent::new(AgentConfig::new("bench"), provider, Generation::new([]))?);
    let store = Arc::new(SqliteStore::open(&directory.join("bench.db"), Options::default())?);
    let host = Host::new(store, Sandbox::new(SandboxOptions::default())?);
    let options =
        SupervisorOptions { idle_timeout: Duration::from_millis(200), open_sessions: 4 * IDLE, ..Default::default() };
    Ok(Supervisor::start(host, BTreeMap::from([("bench".to_owned(), LiveAgent::new(agent))]), options))
}

/// Measures the time until all readers have all events, over HTTP and directly in the process.
pub(crate) async fn measure_streams(table: &mut Table) -> wasmtime::Result<()> {
    let directory = tempfile::tempdir()?;
    let supervisor = supervisor(directory.path())?;
    let tokens = TokenFile::new(directory.path().join("tokens.json"));
    let rights = [Right::Read, Right::Talk].into();
    let token = tokens.create(NewToken { name: "bench".to_owned(), agents: Vec::new(), rights, user: None })?;
    let options = ServerOptions::new("127.0.0.1:0".parse()?, tokens);
    let options =
        ServerOptions { streams: 2 * STREAMS, streams_per_token: 2 * STREAMS, connections: 4 * STREAMS, ..options };
    let server = Server::start(supervisor.clone(), options).await?;
    let address = server.address().ok_or_else(|| wasmtime::Error::msg("the server has an address"))?;
    let client = Client::new(address, Some(token));
    let (_, text) = reply();
    let (mut direct, mut over_http, mut connections) = (Samples::default(), Samples::default(), 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for read in join_all((0..STREAMS).map(|_| read_directly(&supervisor))).await {
            assert_eq!(read?, text);
        }
        direct.push(start.elapsed());
        let start = Instant::now();
        for received in join_all((0..STREAMS).map(|_| read_first_turn(&client, "bench", EVENTS_PER_CONNECTION))).await {
            received.check(&text);
            connections += received.connections;
        }
        over_http.push(start.elapsed());
    }
    let ratio = over_http.median().as_secs_f64() / direct.median().as_secs_f64();
    table.title(format!(
        "server streams: {STREAMS} sessions at the same time, {PIECES} pieces each, 10 ms between pieces, {ROUNDS} samples"
    ));
    table.line("in the process, without reconnects", direct, String::new());
    let verdict = format!(
        "{ratio:.2} × in the process; {:.1} connections per reader, no event lost or doubled",
        connections as f64 / (ROUNDS * STREAMS) as f64
    );
    table.line("over HTTP, with reconnects", over_http, verdict);
    server.shutdown().await;
    supervisor.shutdown().await;
    Ok(())
}

/// Begins a session and returns the text of its reply, from the pieces that were streamed.
async fn read_directly(supervisor: &Supervisor) -> wasmtime::Result<String> {
    let prompt = Prompt::new(TurnInput::Text("Go.".to_owned()));
    let (_, mut events) = supervisor.begin_session("bench", prompt).await?;
    let mut text = String::new();
    while let Some(update) = events.next().await? {
        match update {
            TurnUpdate::Text(piece) => text.push_str(&piece),
            TurnUpdate::Discard => text.clear(),
            TurnUpdate::Thinking(_) | TurnUpdate::Event(_) => {}
        }
    }
    Ok(text)
}

/// Measures the memory of sessions that run, and of sessions that are watched while nothing happens.
pub(crate) async fn measure_idle(table: &mut Table) -> wasmtime::Result<()> {
    let directory = tempfile::tempdir()?;
    let supervisor = supervisor(directory.path())?;
    // The first turns fill caches that later turns share.
    join_all((0..STREAMS).map(|_| read_directly(&supervisor)))
        .await
        .into_iter()
        .collect::<wasmtime::Result<Vec<_>>>()?;
    let before = resident();
    let prompt = || Prompt::new(TurnInput::Text("Go.".to_owned()));
    let begun = join_all((0..STREAMS).map(|_| supervisor.begin_session("bench", prompt()))).await;
    let running = resident().saturating_sub(before) / STREAMS as u64;
    let mut sessions = Vec::new();
    for begun in begun {
        let (session, mut events) = begun?;
        while events.next().await?.is_some() {}
        sessions.push(session);
    }
    for _ in STREAMS..IDLE {
        sessions.push(supervisor.create("bench", prompt()).await?);
    }
    // All sessions end their turns and are closed.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = resident();
    let start = Instant::now();
    let mut watches: Vec<_> =
        sessions.iter().map(|session| supervisor.events(session, EventPosition::default())).collect();
    let read_all = async |events: &mut agent_runtime::SessionEvents| {
        while timeout(Duration::from_millis(1), events.next()).await.is_ok() {}
    };
    for events in &mut watches {
        read_all(events).await;
    }
    let mut samples = Samples::default();
    samples.push(start.elapsed() / IDLE as u32);
    let bytes = resident().saturating_sub(before);
    table.title(format!("idle sessions: {IDLE} sessions that are watched; time to read all events of a session"));
    let verdict = format!(
        "{:.1} MB for all; target {} MB: {}; {:.0} kB for each running session",
        bytes as f64 / 1e6,
        MAX_IDLE_BYTES / 1_000_000,
        reached(bytes <= MAX_IDLE_BYTES),
        running as f64 / 1e3
    );
    table.line("watched", samples, verdict);
    drop(watches);
    supervisor.shutdown().await;
    Ok(())
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() * 1024
}
