//! "Hot swap": The durations of calls with and without swaps of the plugin's version. The calls start at fixed
//! intervals, so that the load on the host is half of its maximum. Both versions of the plugin are already compiled.

use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::ToolOutcome;
use agent_plugins::{
    Generation, Manifest, Ports, Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest, with_manifest,
};
use agent_runtime::{Agent, AgentConfig, LiveAgent};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::error::Context;
use wasmtime::{bail, format_err};

const WARM_UP: usize = 500;
/// The number of blocks of calls with swaps. The blocks with swaps alternate with the same number of blocks
/// without swaps.
const BLOCKS: usize = 10;
const CALLS: usize = 1_000;
/// The number of swaps in each block with swaps. The total number of swaps in all blocks is 1,000.
const SWAPS: u32 = 100;
/// The maximum ratio of two 99th percentiles of call durations: with swaps and without swaps.
const MAX_RATIO: f64 = 2.0;
const TOOL: &str = "probe.echo";

/// Measures the duration of each call, from the time at which the call should have started.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let options = SandboxOptions { cache_directory: Some(scratch().join("cache")), ..SandboxOptions::default() };
    let sandbox = Sandbox::new(options)?;
    let bytes = std::fs::read(component)?;
    let mut generations = Vec::new();
    for version in ["1.0.0", "2.0.0"] {
        let manifest = Manifest { name: "probe".into(), version: version.into(), ..Manifest::default() };
        generations.push(Generation::new([sandbox.load_bytes("probe", with_manifest(&bytes, &manifest)?).await?]));
    }
    let provider = agent_models::provider("offline", Path::new("."))?;
    let live = LiveAgent::new(Arc::new(Agent::new(AgentConfig::new("bench"), provider, generations[0].clone())?));
    let mut unloaded = Samples::default();
    for _ in 0..WARM_UP {
        let start = Instant::now();
        call(&sandbox, &live).await?;
        unloaded.push(start.elapsed());
    }
    let swap_alone = measure_swaps_without_calls(&live, &generations)?;
    let interval = unloaded.median() * 2;
    let (mut without_swaps, mut with_swaps) = (Samples::default(), Samples::default());
    for _ in 0..BLOCKS {
        measure_block(&sandbox, &live, interval, &mut without_swaps).await?;
        let (live_agent, generations) = (live.clone(), generations.clone());
        let swap_interval = interval * CALLS as u32 / SWAPS;
        let swaps = tokio::spawn(async move {
            for swap in 1..=SWAPS as usize {
                let generation = generations[swap % 2].clone();
                live_agent.change(|agent| agent.with_generation(generation))?;
                tokio::time::sleep(swap_interval).await;
            }
            Ok::<_, agent_runtime::AgentError>(())
        });
        measure_block(&sandbox, &live, interval, &mut with_swaps).await?;
        swaps.await??;
    }
    table.title(format!(
        "hot swap: {TOOL} at half load, {} calls each, {} swaps, none failed",
        without_swaps.count(),
        BLOCKS * SWAPS as usize
    ));
    let ratio = with_swaps.p99().as_secs_f64() / without_swaps.p99().as_secs_f64();
    table.line(
        "one swap without other work",
        swap_alone,
        "creating the new agent and releasing the old one".to_owned(),
    );
    table.line("without swaps", without_swaps, String::new());
    let verdict = format!("p99 {ratio:.2} ×; target {MAX_RATIO} ×: {}", reached(ratio <= MAX_RATIO));
    table.line("with swaps", with_swaps, verdict);
    Ok(())
}

/// Measures the duration of a swap while no calls run.
fn measure_swaps_without_calls(live: &LiveAgent, generations: &[Generation]) -> wasmtime::Result<Samples> {
    let mut samples = Samples::default();
    for swap in 0..SWAPS as usize {
        let generation = generations[swap % 2].clone();
        let start = Instant::now();
        live.change(|agent| agent.with_generation(generation))?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

async fn measure_block(
    sandbox: &Sandbox,
    live: &LiveAgent,
    interval: Duration,
    samples: &mut Samples,
) -> wasmtime::Result<()> {
    let start = Instant::now();
    for number in 0..CALLS as u32 {
        let due = start + interval * number;
        // The loop polls the clock, because timers are not precise enough for intervals this short.
        while Instant::now() < due {
            tokio::task::yield_now().await;
        }
        call(sandbox, live).await?;
        samples.push(due.elapsed());
    }
    Ok(())
}

/// Calls the plugin in the agent's current generation, as a turn does.
async fn call(sandbox: &Sandbox, live: &LiveAgent) -> wasmtime::Result<()> {
    let agent = live.current();
    let setup = agent.setups().get("probe").context("the plugin is loaded")?;
    let trace = TraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        tracestate: None,
    };
    let (name, session) = ("bench".to_owned(), "bench/1".to_owned());
    let scope = Scope { agent: name, session, delegated_by: None, user: None, turn: 1, trace };
    let context =
        ToolCallContext { id: CallId("1.1.1".to_owned()), attempt: 1, time_limit: Duration::from_secs(30), scope };
    let request = ToolCallRequest { name: TOOL, args: r#"{"text": "hello"}"#.to_owned(), context };
    match sandbox.call_tool(setup, request, &Ports::default()).await.result? {
        Ok(ToolOutcome::Done(_)) => Ok(()),
        Ok(ToolOutcome::Pending(_)) => bail!("the tool asked for a service"),
        Err(error) => Err(format_err!("{error:?}")),
    }
}
