//! "Growing session": measures the time, the memory and the bytes on disk of one session with 2,000 turns. The prompt
//! of each turn contains all previous turns.

use crate::agent::scripted;
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::Table;
use agent_core::message::TurnInput;
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Host, OpenSession, Session, TurnResult};
use agent_store::{Options, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

/// The number of turns in the session.
const TURNS: usize = 2_000;
/// The number of turns that are measured together.
const WINDOW: usize = 100;
/// Each of these turns is the last turn of a window. Only the results of these windows are printed.
const PRINTED_TURNS: [usize; 5] = [100, 500, 1_000, 1_500, 2_000];

/// Measures the turns of the session in windows of `WINDOW` turns. The benchmark has no target, because the time of a
/// turn is proportional to the size of its prompt.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let file = disk.path().join("bench.db");
    let store = Arc::new(SqliteStore::open(&file, Options::default())?);
    let host = Host::new(store, Sandbox::new(SandboxOptions::default())?);
    let agent = scripted(disk.path(), TURNS)?;
    let mut session = Session::open(&host, agent, OpenSession::New).await?;
    table.title(format!("growing session: {TURNS} turns of one question and answer, synchronous=FULL on disk"));
    let (mut samples, mut printed_turn, mut printed_bytes) = (Samples::default(), 0, bytes(&file));
    for turn in 1..=TURNS {
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let start = Instant::now();
        let result = session.run(input, CancellationToken::new()).await?;
        samples.push(start.elapsed());
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        if turn % WINDOW == 0 {
            let window = std::mem::take(&mut samples);
            if PRINTED_TURNS.contains(&turn) {
                let now = bytes(&file);
                let bytes_per_turn = now.saturating_sub(printed_bytes) / (turn - printed_turn) as u64;
                let (view, memory) = (session.state().view.len(), resident());
                let note = format!(
                    "{bytes_per_turn} bytes in the database for each turn since the previous line, {:.1} MB in total; {view} messages in the view; {memory} MB of memory",
                    now as f64 / 1e6
                );
                table.line(&format!("turns {} to {turn}", turn + 1 - WINDOW), window, note);
                (printed_turn, printed_bytes) = (turn, now);
            }
        }
    }
    Ok(session.close().await?)
}

/// Returns the size of the database file in bytes, without its write-ahead log. The write-ahead log has a few MB and
/// does not grow.
fn bytes(database: &Path) -> u64 {
    std::fs::metadata(database).map_or(0, |file| file.len())
}

/// The resident memory of this process in MB, or 0 if the system does not report it.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() * 1024 / 1_000_000
}
