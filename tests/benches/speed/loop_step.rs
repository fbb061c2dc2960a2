//! "One loop step": The time of a step without tools. The scripted model answers immediately, and SQLite writes without
//! `fsync` to an in-memory file system.

use crate::agent::{in_memory, scripted};
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, micros, reached};
use agent_core::message::TurnInput;
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Checkpoint, CheckpointObserver, Host, OpenSession, Session, TurnResult};
use agent_store::{Options, SqliteStore, Synchronous};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

const ROUNDS: usize = 3_000;
/// The number of rounds in which each commit waits for the disk.
const DURABLE_ROUNDS: usize = 100;
const TARGET: Duration = Duration::from_micros(150);

/// The times at which a turn's step started and ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Step {
    started: Option<Instant>,
    ended: Option<Instant>,
    /// The number of commits of the step, including the commit that ends the step.
    commits: u32,
}

impl Step {
    /// The duration of the last step and the number of its commits.
    pub(crate) fn duration_and_commits(step: &Mutex<Self>) -> Option<(Duration, u32)> {
        let Step { started, ended, commits } = *step.lock().unwrap_or_else(PoisonError::into_inner);
        Some((ended?.duration_since(started?), commits))
    }
}

/// The measurements of turns that ran with the same store.
#[derive(Default)]
struct TurnTimes {
    steps: Samples,
    turns: Samples,
    commits: u64,
    step_commits: u32,
}

/// Measures the duration of a step and of its turn. For comparison, the benchmark also measures a step whose commits
/// wait for the disk.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let (directory, location) = in_memory()?;
    let TurnTimes { steps, turns, commits, step_commits } = turns(directory.path(), Synchronous::Off, ROUNDS).await?;
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let durable = self::turns(disk.path(), Synchronous::Full, DURABLE_ROUNDS).await?;

    table.title(format!(
        "one loop step: scripted model, no tool, synchronous=OFF {location}, {} samples",
        steps.count()
    ));
    let verdict = format!("{step_commits} commits; target {}: {}", micros(TARGET), reached(steps.median() <= TARGET));
    table.line("the step: prompt, reply, verdict", steps, verdict);
    let each = turns.median().as_secs_f64() * 1e6 / commits as f64;
    table.line("its whole turn", turns, format!("{commits} commits, {each:.1} µs for each"));
    let note = format!("{} samples, no target", durable.steps.count());
    table.line("the step, synchronous=FULL on disk", durable.steps, note);
    Ok(())
}

/// Runs turns of one step, each in a new session.
async fn turns(directory: &Path, synchronous: Synchronous, rounds: usize) -> wasmtime::Result<TurnTimes> {
    let options = Options { synchronous, ..Options::default() };
    let store = Arc::new(SqliteStore::open(directory.join("bench.db"), options)?);
    let step: Arc<Mutex<Step>> = Arc::default();
    let (sandbox, checkpoint) = (Sandbox::new(SandboxOptions::default())?, Some(observer(step.clone())));
    let host = Host { checkpoint, ..Host::new(store.clone(), sandbox) };
    let agent = scripted(directory, 1)?;

    let mut measured = TurnTimes::default();
    let warm_up = rounds / 10;
    for round in 0..warm_up + rounds {
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await?;
        let before = store.stats().commits;
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let started = Instant::now();
        let result = session.run(input, CancellationToken::new()).await?;
        let turn = started.elapsed();
        measured.commits = store.stats().commits - before;
        session.close().await?;
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        let Some((time, counted)) = Step::duration_and_commits(&step) else { bail!("the turn had no step") };
        measured.step_commits = counted;
        if round >= warm_up {
            measured.steps.push(time);
            measured.turns.push(turn);
        }
    }
    Ok(measured)
}

/// Creates an observer that measures a step, which is one model call with everything that follows from it. The step
/// starts when the context is stored, and ends when the verdict on the model's reply is stored.
pub(crate) fn observer(step: Arc<Mutex<Step>>) -> CheckpointObserver {
    Arc::new(move |checkpoint| {
        let mut step = step.lock().unwrap_or_else(PoisonError::into_inner);
        match checkpoint {
            Checkpoint::AfterCommit("context") => *step = Step { started: Some(Instant::now()), ..Step::default() },
            Checkpoint::AfterCommit(input) => {
                step.commits += 1;
                if input == "verdict" {
                    step.ended = Some(Instant::now());
                }
            }
            _ => {}
        }
    })
}
