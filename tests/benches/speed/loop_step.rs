//! "One loop step": an instant scripted model, no tool, SQLite without `fsync` on a file system in memory.

use crate::agent::{in_memory, scripted};
use crate::samples::Samples;
use crate::table::{Table, micros, reached};
use agent_core::message::TurnInput;
use agent_memory::{Options, SqliteStore, Synchronous};
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Checkpoint, CheckpointObserver, Downscaler, Host, OpenSession, Session, TurnResult};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

const WARM_UP: usize = 300;
const ROUNDS: usize = 3_000;
const TARGET: Duration = Duration::from_micros(150);

/// When the step began and ended in its turn.
#[derive(Clone, Copy, Default)]
pub(crate) struct Step {
    began: Option<Instant>,
    ended: Option<Instant>,
    /// Between the two, the last one included.
    commits: u32,
}

impl Step {
    /// How long the last one took, and its commits.
    pub(crate) fn taken(step: &Mutex<Self>) -> Option<(Duration, u32)> {
        let Step { began, ended, commits } = *step.lock().unwrap_or_else(PoisonError::into_inner);
        Some((ended?.duration_since(began?), commits))
    }
}

/// Measures whole turns of one step each, every turn in a new session, and the step within them.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let (directory, place) = in_memory()?;
    let options = Options { synchronous: Synchronous::Off, ..Options::default() };
    let store = Arc::new(SqliteStore::open(directory.path().join("bench.db"), options)?);
    let step: Arc<Mutex<Step>> = Arc::default();
    let (sandbox, checkpoint) = (Sandbox::new(SandboxOptions::default())?, Some(observer(step.clone())));
    let host = Host { store: store.clone(), sandbox, downscaler: Downscaler::default(), checkpoint };
    let agent = scripted(directory.path(), 1)?;

    let (mut steps, mut turns) = (Samples::default(), Samples::default());
    let (mut commits, mut step_commits) = (0, 0);
    for round in 0..WARM_UP + ROUNDS {
        let mut session = Session::open(&host, agent.clone(), OpenSession::New).await?;
        let before = store.stats().commits;
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let started = Instant::now();
        let result = session.run(input, CancellationToken::new()).await?;
        let turn = started.elapsed();
        commits = store.stats().commits - before;
        session.close().await?;
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        let Some((time, counted)) = Step::taken(&step) else { bail!("the turn had no step") };
        step_commits = counted;
        if round >= WARM_UP {
            steps.push(time);
            turns.push(turn);
        }
    }
    table.title(format!("one loop step: scripted model, no tool, synchronous=OFF {place}, {} samples", steps.count()));
    let verdict = format!("{step_commits} commits; target {}: {}", micros(TARGET), reached(steps.median() <= TARGET));
    table.line("the step: prompt, reply, verdict", steps, verdict);
    let each = turns.median().as_secs_f64() * 1e6 / commits as f64;
    table.line("the whole turn around it", turns, format!("{commits} commits, {each:.1} µs for each"));
    Ok(())
}

/// A step is one model call with what follows from it (spec, words): it begins when what was before it is stored, and ends
/// when the verdict on its reply is.
pub(crate) fn observer(step: Arc<Mutex<Step>>) -> CheckpointObserver {
    Arc::new(move |checkpoint| {
        let mut step = step.lock().unwrap_or_else(PoisonError::into_inner);
        match checkpoint {
            Checkpoint::AfterCommit("context") => *step = Step { began: Some(Instant::now()), ..Step::default() },
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
