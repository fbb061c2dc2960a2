//! "Many sessions": Many sessions that run turns at the same time, with durable commits. For comparison, the same
//! sessions run without `fsync`.

use crate::agent::scripted;
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::message::TurnInput;
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Host, OpenSession, Session, TurnResult};
use agent_store::{Options, SqliteStore, Stats, Synchronous};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

const SESSIONS: usize = 100;
/// The number of turns in each session. Each turn has one step.
const TURNS: usize = 20;
const WARM_UP: usize = 1;
const ROUNDS: usize = 5;
/// The target: at most this number of calls of `fsync` per commit.
const MAX_FSYNCS: f64 = 0.1;
/// The target: at least this share of the steps per second that are reached without `fsync`.
const MIN_SHARE: f64 = 0.7;

/// The results of one round.
struct Round {
    elapsed: Duration,
    commits: u64,
    transactions: u64,
}

/// Measures the sessions alternately with and without `fsync`, on the disk that contains the build.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    std::fs::create_dir_all(scratch())?;
    let directory = tempfile::tempdir_in(scratch())?;
    let (mut off, mut full) = (Samples::default(), Samples::default());
    let (mut commits, mut transactions) = (0, 0);
    for round in 0..WARM_UP + ROUNDS {
        for synchronous in [Synchronous::Off, Synchronous::Full] {
            let file = directory.path().join(format!("{round}-{synchronous:?}.db"));
            let results = run(directory.path(), &file, synchronous).await?;
            if round < WARM_UP {
                continue;
            }
            let step_time = results.elapsed / (SESSIONS * TURNS) as u32;
            match synchronous {
                Synchronous::Off => off.push(step_time),
                Synchronous::Full => {
                    full.push(step_time);
                    commits += results.commits;
                    transactions += results.transactions;
                }
            }
        }
    }
    show(off, full, transactions as f64 / commits as f64, table);
    Ok(())
}

fn show(off: Samples, full: Samples, fsyncs: f64, table: &mut Table) {
    table.title(format!(
        "many sessions: {SESSIONS} at the same time, {TURNS} turns of one step each, on disk, {} samples; time per step",
        full.count()
    ));
    let per_second = |samples: &Samples| 1.0 / samples.median().as_secs_f64();
    let (without, with) = (per_second(&off), per_second(&full));
    let share = with / without;
    let verdict = format!(
        "{with:.0} steps/s, {:.0} % of OFF; target {:.0} %: {}; {fsyncs:.3} fsync per commit; target {MAX_FSYNCS}: {}",
        share * 100.0,
        MIN_SHARE * 100.0,
        reached(share >= MIN_SHARE),
        reached(fsyncs <= MAX_FSYNCS)
    );
    table.line("synchronous=OFF", off, format!("{without:.0} steps/s"));
    table.line("synchronous=FULL", full, verdict);
}

async fn run(directory: &Path, file: &Path, synchronous: Synchronous) -> wasmtime::Result<Round> {
    let store = Arc::new(SqliteStore::open(file, Options { synchronous, ..Options::default() })?);
    let sandbox = Sandbox::new(SandboxOptions::default())?;
    let host = Host::new(store.clone(), sandbox);
    let agent = scripted(directory, TURNS)?;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(Session::open(&host, agent.clone(), OpenSession::New).await?);
    }
    let before = store.stats();
    let start = Instant::now();
    let mut running = JoinSet::new();
    sessions.into_iter().for_each(|session| drop(running.spawn(turns(session))));
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let elapsed = start.elapsed();
    let Stats { commits, transactions, .. } = store.stats();
    Ok(Round { elapsed, commits: commits - before.commits, transactions: transactions - before.transactions })
}

async fn turns(mut session: Session) -> wasmtime::Result<()> {
    for _ in 0..TURNS {
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let result = session.run(input, CancellationToken::new()).await?;
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
    }
    Ok(())
}
