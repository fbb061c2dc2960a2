//! "Growing session": one session of 2,000 turns, each of which has all previous turns in its prompt: time, memory, and
//! bytes on disk.

use crate::agent::scripted;
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::Table;
use agent_core::message::TurnInput;
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Downscaler, Host, OpenSession, Session, TurnResult};
use agent_store::{Options, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

/// Turns of the session.
const TURNS: usize = 2_000;
/// Turns that are measured together.
const WINDOW: usize = 100;
/// The windows that are printed, by their last turn.
const SHOWN: [usize; 5] = [100, 500, 1_000, 1_500, 2_000];

/// Measures the turns in windows. There is no target, because the time of a turn is proportional to its prompt.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let file = disk.path().join("bench.db");
    let host = Host {
        store: Arc::new(SqliteStore::open(&file, Options::default())?),
        sandbox: Sandbox::new(SandboxOptions::default())?,
        downscaler: Downscaler::default(),
        checkpoint: None,
        first_uses: None,
        http: None,
        leaving: Default::default(),
    };
    let agent = scripted(disk.path(), TURNS)?;
    let mut session = Session::open(&host, agent, OpenSession::New).await?;
    table.title(format!("growing session: {TURNS} turns of one question and answer, synchronous=FULL on disk"));
    let (mut samples, mut shown, mut stored) = (Samples::default(), 0, bytes(&file));
    for turn in 1..=TURNS {
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let started = Instant::now();
        let result = session.run(input, CancellationToken::new()).await?;
        samples.push(started.elapsed());
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        if turn % WINDOW == 0 {
            let window = std::mem::take(&mut samples);
            if SHOWN.contains(&turn) {
                let now = bytes(&file);
                let each = now.saturating_sub(stored) / (turn - shown) as u64;
                let (view, memory) = (session.state().view.len(), resident());
                let note = format!(
                    "{each} bytes in the database for each turn since the line above, {:.1} MB in all; {view} messages in view; {memory} MB of memory",
                    now as f64 / 1e6
                );
                table.line(&format!("turns {} to {turn}", turn + 1 - WINDOW), window, note);
                (shown, stored) = (turn, now);
            }
        }
    }
    Ok(session.close().await?)
}

/// The size of the database without its log, which has a few MB and does not grow.
fn bytes(database: &Path) -> u64 {
    std::fs::metadata(database).map_or(0, |file| file.len())
}

/// MB of resident memory of this process; 0 if the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() * 1024 / 1_000_000
}
