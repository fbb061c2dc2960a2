//! "Cancellation" (L29): The time from the request to cancel a turn until the store contains the end of the turn. The
//! benchmark measures each kind of operation that a turn can wait for.

use crate::agent::in_memory;
use crate::component::scratch;
use crate::fixture::mcp_server;
use crate::long_work::{BlockedTurns, CancelledTurn, stop_servers};
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_plugins::{Generation, Sandbox, SandboxOptions};
use agent_runtime::{Host, TurnResult};
use agent_store::{Options, SqliteStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::bail;

const ROUNDS: usize = 30;
/// The target for the slowest measured cancellation.
const TARGET: Duration = Duration::from_millis(100);

/// Measures the cancellation of each kind of operation, with a durable store on disk. `components` are the plugins that
/// the turns need.
pub(crate) async fn measure(components: &[PathBuf], table: &mut Table) -> wasmtime::Result<()> {
    let (directory, _) = in_memory()?;
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let store = Arc::new(SqliteStore::open(disk.path().join("bench.db"), Options::default())?);
    let cache_directory = Some(scratch().join("cache"));
    let sandbox = Sandbox::new(SandboxOptions { cache_directory, ..SandboxOptions::default() })?;
    let mut plugins = Vec::with_capacity(components.len());
    for component in components {
        plugins.push(sandbox.load_file(component).await?);
    }
    let host = Host::new(store, sandbox);
    let blocked_turns =
        BlockedTurns { folder: directory.path(), generation: Generation::new(plugins), mcp_server: mcp_server() };
    table.title(format!(
        "cancellation, from the request to the stored end, synchronous=FULL on disk, {ROUNDS} samples each"
    ));
    let blocked = blocked_turns.all().await;
    for turn in &blocked {
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            let CancelledTurn { session, result, duration } = turn.cancel_while_blocked(&host).await;
            let TurnResult::Cancelled = result else {
                bail!("while {}: the turn ended with {result:?}", turn.operation)
            };
            session.close().await?;
            samples.push(duration);
        }
        let verdict = format!("slowest; target 100 ms: {}", reached(samples.slowest() <= TARGET));
        let verdict = format!("{:.1} ms the {verdict}", samples.slowest().as_secs_f64() * 1e3);
        table.line(&format!("while {}", turn.operation), samples, verdict);
    }
    stop_servers(&blocked).await;
    Ok(())
}
