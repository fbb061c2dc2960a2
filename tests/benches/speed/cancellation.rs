//! "Cancellation" (L29): from the request to the turn's end, stored, while the model streams, while a guest computes and
//! while a guest waits in a host call.

use crate::agent::in_memory;
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::message::TurnInput;
use agent_memory::{Options, SqliteStore};
use agent_plugins::{Generation, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Downscaler, Host, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use wasmtime::bail;

const ROUNDS: usize = 30;
/// Until what is cancelled is sure to be at work.
const UNDER_WAY: Duration = Duration::from_millis(60);
/// Of the slowest.
const TARGET: Duration = Duration::from_millis(100);

/// Measures each, durable on disk.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let (directory, _) = in_memory()?;
    std::fs::create_dir_all(scratch())?;
    let disk = tempfile::tempdir_in(scratch())?;
    let store = Arc::new(SqliteStore::open(disk.path().join("bench.db"), Options::default())?);
    let cache_directory = Some(scratch().join("cache"));
    let sandbox = Sandbox::new(SandboxOptions { cache_directory, ..SandboxOptions::default() })?;
    let plugin = sandbox.load_file(component).await?;
    let host = Host { store, sandbox, downscaler: Downscaler::default(), checkpoint: None, first_uses: None };
    let calling = |name: &str, arguments: Value| json!({"calls": [{"name": name, "arguments": arguments}]});
    let whiles = [
        ("the model streams", json!({"text": "Wait.", "delay_ms": 60_000})),
        ("a guest computes", calling("probe.spin", json!({}))),
        ("a guest sleeps in a host call", calling("probe.sleep", json!({"ms": 60_000}))),
    ];
    table.title(format!(
        "cancellation, from the request to the stored end, synchronous=FULL on disk, {ROUNDS} samples each"
    ));
    for (number, (what, reply)) in whiles.into_iter().enumerate() {
        let file = directory.path().join(format!("{number}.json"));
        std::fs::write(&file, json!({"replies": [reply]}).to_string())?;
        let provider = agent_models::provider(&format!("scripted:{}", file.display()), directory.path())?;
        let agent = Arc::new(Agent::new(AgentConfig::new("bench"), provider, Generation::new([plugin.clone()]))?);
        let mut samples = Samples::default();
        for _ in 0..ROUNDS {
            samples.push(cancelled(&host, &agent).await?);
        }
        let verdict = format!("slowest; target 100 ms: {}", reached(samples.slowest() <= TARGET));
        let verdict = format!("{:.1} ms the {verdict}", samples.slowest().as_secs_f64() * 1e3);
        table.line(&format!("while {what}"), samples, verdict);
    }
    Ok(())
}

async fn cancelled(host: &Host, agent: &Arc<Agent>) -> wasmtime::Result<Duration> {
    let mut session = Session::open(host, agent.clone(), OpenSession::New).await?;
    let cancel = CancellationToken::new();
    let canceller = tokio::spawn({
        let cancel = cancel.clone();
        async move {
            tokio::time::sleep(UNDER_WAY).await;
            let asked = Instant::now();
            cancel.cancel();
            asked
        }
    });
    let result = session.run(Some(TurnInput::Text("Wait.".to_owned())), cancel).await?;
    let ended = Instant::now();
    let TurnResult::Cancelled = result else { bail!("the turn ended with {result:?}") };
    let asked = canceller.await?;
    session.close().await?;
    Ok(ended.duration_since(asked))
}
