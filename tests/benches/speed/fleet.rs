//! "Fleet": PostgreSQL as the store. Commits are compared with SQLite and with one conditional `UPDATE`, a durable turn with
//! the same turn in LangGraph and Restate, and one process with several processes.

use crate::component::scratch;
use crate::peer_turns;
use crate::postgres_server::Server;
use crate::process::ServeProcess;
use crate::samples::Samples;
use crate::table::Table;
use agent_core::message::TurnInput;
use agent_plugins::{Generation, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Host, OpenSession, Session, TurnResult};
use agent_store::{
    Commit, Monitoring, OpenMode, Options, PostgresAddress, PostgresOptions, PostgresStore, SessionIndex, SessionMeta,
    SessionState, SqliteStore, Status, StepRecord, Store, Synchronous,
};
use futures::future::{join_all, try_join_all};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;
use wasmtime::error::Context;

const COMMITS: usize = 500;
/// Sizes of the parts of a measured commit, in bytes. They are typical for a step of a short session.
const SNAPSHOT_BYTES: usize = 2_000;
const RECORD_BYTES: usize = 700;
const RECORDS: usize = 2;
/// Number of durable turns of each system.
const TURNS: usize = 200;
/// Numbers of processes, and numbers of sessions that work at the same time, with the number of rounds.
const PROCESSES: [usize; 3] = [1, 2, 3];
const SESSIONS: [(usize, usize); 2] = [(10, 20), (1_000, 1)];
/// Number of steps of each turn. All but the last one call a tool.
const STEPS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(600);
/// Time after which a client asks a busy process again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Runs all comparisons. Without PostgreSQL, the table says so.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let Some(database) = Server::start(&[]) else {
        table.title(
            "fleet: not measured, because PostgreSQL is not installed (tests/install-peers installs it)".to_owned(),
        );
        return Ok(());
    };
    measure_commits(&database, table).await?;
    measure_turns(&database, component, table).await?;
    measure_processes(component, table).await
}

async fn postgres(database: &Server) -> wasmtime::Result<PostgresStore> {
    let address = PostgresAddress::parse(&database.address("postgres"))?;
    Ok(PostgresStore::open(address, PostgresOptions::default()).await?)
}

fn commit(number: usize) -> Commit {
    let record =
        |kind: &str| StepRecord { turn: 1, step: 1, kind: kind.to_owned(), body: json!("r".repeat(RECORD_BYTES)) };
    let snapshot = format!("{number:>SNAPSHOT_BYTES$}").into_bytes();
    let status = Status { state: SessionState::Running, turn: 1, ..Status::default() };
    let records = (0..RECORDS).map(|_| record("prompt")).collect();
    Commit { snapshot, records, status, ..Commit::default() }
}

/// A session to which commits are written.
struct Writer<'s> {
    store: &'s dyn Store,
    opened: agent_store::OpenedSession,
}

impl<'s> Writer<'s> {
    async fn new(store: &'s dyn Store) -> wasmtime::Result<Self> {
        let meta = SessionMeta { agent: "bench".to_owned(), ..SessionMeta::default() };
        Ok(Self { store, opened: store.open("bench/1", OpenMode::CreateNew, meta).await? })
    }

    async fn commit(&mut self, number: usize) -> wasmtime::Result<Duration> {
        let commit = commit(number);
        let started = Instant::now();
        self.opened.revision = self.store.commit(&self.opened.lease, self.opened.revision, commit).await?;
        Ok(started.elapsed())
    }
}

/// Measures the commit of a step in both stores, and the conditional update of one row with as many bytes.
async fn measure_commits(database: &Server, table: &mut Table) -> wasmtime::Result<()> {
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let options = Options { synchronous: Synchronous::Full, ..Options::default() };
    let sqlite = SqliteStore::open(disk.path().join("bench.db"), options)?;
    let postgres = postgres(database).await?;
    let (client, connection) = tokio_postgres::connect(&database.address("postgres"), NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TABLE bare (id bigint PRIMARY KEY, revision bigint NOT NULL, body bytea NOT NULL)")
        .await?;
    client.batch_execute("INSERT INTO bare VALUES (1, 0, '')").await?;
    let update =
        client.prepare("UPDATE bare SET revision = revision + 1, body = $1 WHERE id = 1 AND revision = $2").await?;
    let (mut in_sqlite, mut in_postgres) = (Writer::new(&sqlite).await?, Writer::new(&postgres).await?);
    let mut samples: [Samples; 3] = Default::default();
    for number in 0..COMMITS / 10 + COMMITS {
        let body = vec![b'r'; SNAPSHOT_BYTES + RECORDS * RECORD_BYTES];
        let revision = i64::try_from(number)?;
        let started = Instant::now();
        let changed = client.execute(&update, &[&body, &revision]).await?;
        let bare = started.elapsed();
        if changed != 1 {
            bail!("the update changed {changed} rows");
        }
        let times = [bare, in_postgres.commit(number).await?, in_sqlite.commit(number).await?];
        if number >= COMMITS / 10 {
            samples.iter_mut().zip(times).for_each(|(samples, time)| samples.push(time));
        }
    }
    let [bare, commits, embedded] = samples;
    let bytes = SNAPSHOT_BYTES + RECORDS * RECORD_BYTES;
    table.title(format!("fleet: one commit with {bytes} bytes, durable, local server, {COMMITS} samples each"));
    let base = bare.median();
    table.line("PostgreSQL: a bare conditional UPDATE", bare, String::new());
    let ratio =
        |samples: &Samples| format!("{:.2} × the bare UPDATE", samples.median().as_secs_f64() / base.as_secs_f64());
    let (of_commits, of_embedded) = (ratio(&commits), ratio(&embedded));
    table.line("PostgreSQL: the commit of a step", commits, of_commits);
    table.line("SQLite, synchronous=FULL: the commit of a step", embedded, of_embedded);
    Ok(())
}

/// The replies of a turn that calls a tool in all steps but the last one.
fn replies(steps: usize) -> serde_json::Value {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    let call = json!({"calls": [{"name": "probe.echo", "arguments": {"text": "hello"}}], "usage": usage});
    let mut replies = vec![call; steps - 1];
    replies.push(json!({"text": "It has 42 lines.", "usage": usage}));
    json!({"replies": replies})
}

/// Measures a turn of two model calls and one tool call in between, with every step durable in PostgreSQL.
async fn measure_turns(database: &Server, component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("script.json"), replies(2).to_string())?;
    let cache_directory = Some(scratch().join("cache"));
    let sandbox = Sandbox::new(SandboxOptions { cache_directory, ..SandboxOptions::default() })?;
    let generation = Generation::new([sandbox.load_file(component).await?]);
    let provider = agent_models::provider("scripted:script.json", folder.path())?;
    let agent = Arc::new(Agent::new(AgentConfig::new("bench"), provider, generation)?);
    let host = Host::new(Arc::new(postgres(database).await?), sandbox);
    let mut own = Samples::default();
    for round in 0..TURNS / 10 + TURNS {
        let started = Instant::now();
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await?;
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let result = session.run(input, CancellationToken::new()).await?;
        session.close().await?;
        let turn = started.elapsed();
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        if round >= TURNS / 10 {
            own.push(turn);
        }
    }
    table.title(format!(
        "fleet: a durable turn of two model calls and one tool call, new session, {TURNS} samples each"
    ));
    let base = own.median();
    table.line("agent-host, with the tool in the sandbox", own, String::new());
    for peer in [peer_turns::langgraph(database, TURNS), peer_turns::restate(TURNS)] {
        let peer = peer?;
        let ratio = peer.samples.median().as_secs_f64() / base.as_secs_f64();
        let verdict =
            if peer.samples.count() == 0 { peer.note } else { format!("{ratio:.2} × agent-host; {}", peer.note) };
        table.line(peer.name, peer.samples, verdict);
    }
    Ok(())
}

/// Measures how many steps per second one, two and three processes make together.
async fn measure_processes(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let cores = std::thread::available_parallelism()?;
    table.title(format!(
        "fleet: turns of {STEPS} steps with tool calls, PostgreSQL and all processes on the same {cores} cores; time per step"
    ));
    for (sessions, rounds) in SESSIONS {
        let mut base = None;
        for processes in PROCESSES {
            let samples = run_processes(component, processes, (sessions, rounds)).await?;
            let per_second = 1.0 / samples.median().as_secs_f64();
            let base = *base.get_or_insert(per_second);
            let verdict = format!("{per_second:.0} steps/s, {:.2} × one process", per_second / base);
            let plural = if processes == 1 { "" } else { "es" };
            table.line(&format!("{processes} process{plural}, {sessions} sessions"), samples, verdict);
        }
    }
    Ok(())
}

/// Begins sessions at all processes in turn, and returns the time per step of each round.
async fn run_processes(
    component: &Path,
    processes: usize,
    (sessions, rounds): (usize, usize),
) -> wasmtime::Result<Samples> {
    let database = Server::start(&[]).context("PostgreSQL is installed")?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("plugins"))?;
    std::fs::copy(component, folder.path().join("plugins/probe.wasm"))?;
    std::fs::write(folder.path().join("bench.json"), replies(STEPS).to_string())?;
    let agent = "name = \"bench\"\nmodel = \"scripted:bench.json\"\nplugin_directory = \"plugins\"\n";
    std::fs::write(folder.path().join("bench.toml"), agent)?;
    let address = database.address("postgres");
    let servers: Vec<ServeProcess> = (0..processes)
        .map(|number| {
            let command = ["serve", "--listen", "127.0.0.1:0"];
            let variables = [("AGENT_HOST_STORE", address.as_str())];
            let data = format!("data-{number}");
            ServeProcess::start_command((folder.path(), &data), &command, &["--agent", "bench.toml"], &variables)
        })
        .collect();
    let clients: Vec<_> = servers.iter().map(ServeProcess::client).collect();
    let store = postgres(&database).await?;
    let mut samples = Samples::default();
    for round in 0..rounds + 1 {
        // The first round starts the processes' caches.
        let count = if round == 0 { processes * 2 } else { sessions };
        let started = Instant::now();
        let begin = |number: usize| {
            let client = &clients[number % processes];
            async move {
                let body = json!({"agent": "bench", "prompt": "How many lines has notes.txt?"});
                loop {
                    let answer = client.post("/api/sessions", body.clone()).await;
                    // A process that has many open sessions asks clients to come back.
                    if answer.status == 503 {
                        tokio::time::sleep(BUSY_PAUSE).await;
                        continue;
                    }
                    return answer.json(201)["session"].as_str().map(str::to_owned);
                }
            }
        };
        let begun: BTreeSet<_> = join_all((0..count).map(begin)).await.into_iter().flatten().collect();
        wait_until_idle(&store, &begun).await?;
        if round > 0 {
            samples.push(started.elapsed() / u32::try_from(count * STEPS)?);
        }
    }
    Ok(samples)
}

/// Waits until the turns of all sessions have ended.
async fn wait_until_idle(store: &PostgresStore, sessions: &BTreeSet<String>) -> wasmtime::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let counts = store.session_counts().await?;
        let open =
            counts.iter().filter(|count| count.state != SessionState::Idle).map(|count| count.sessions).sum::<u64>();
        if open == 0 {
            break;
        }
        if Instant::now() > until {
            bail!("{open} sessions have not ended");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let filter = |session: &String| agent_store::SessionFilter { subject: Some(session.clone()), ..Default::default() };
    let found = try_join_all(sessions.iter().take(20).map(|session| store.sessions(filter(session), 1))).await?;
    if found.iter().flatten().any(|session| session.state != SessionState::Idle) {
        bail!("a turn has not ended");
    }
    Ok(())
}
