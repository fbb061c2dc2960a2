//! Measures the speed targets of the design. Operations that are compared run in one process and alternate after each
//! sample, so that noise affects all of them equally. The program prints a table and does not fail if a target
//! is missed.

#![allow(clippy::print_stdout, reason = "the program prints a table")]

// The host's own code creates the engine for raw wasmtime, so that both engines have the same configuration.
#[allow(dead_code, unreachable_pub, reason = "raw wasmtime uses no cache and no interruption")]
#[path = "../../../host/plugins/src/execution/engine.rs"]
mod engine;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "raw wasmtime uses only the engine's limits, and this program has no tests"
)]
#[path = "../../../host/plugins/src/limits/host.rs"]
mod limits;

mod agent;
mod cancellation;
mod chat_completions;
#[allow(dead_code, reason = "only the tests send other requests")]
#[path = "../../end_to_end/serve/client.rs"]
mod client;
mod compiled_code;
mod component;
mod console;
mod decoding;
#[allow(dead_code, reason = "only the tests read the servers' logs")]
#[path = "../../mcp_server/fixture.rs"]
mod fixture;
mod fleet;
mod growing_session;
mod hot_swap;
mod long_history;
#[allow(dead_code, reason = "only the tests check cancelled sessions")]
#[path = "../../long_work/work.rs"]
mod long_work;
mod loop_step;
mod many_sessions;
mod media_policy;
mod peer_turns;
#[allow(dead_code, reason = "only the tests use standby servers and kill servers")]
#[path = "../../../host/store/tests/postgres/server.rs"]
mod postgres_server;
#[allow(dead_code, reason = "only the tests stop servers")]
#[path = "../../end_to_end/serve/process.rs"]
mod process;
#[path = "../../end_to_end/program.rs"]
mod program;
mod raw;
mod samples;
mod server;
mod start;
#[path = "../../end_to_end/serve/streams.rs"]
mod streams;
mod table;
mod telemetry;
mod tool_call;

use component::built;
use table::Table;

fn main() -> wasmtime::Result<()> {
    // The benchmarks use as many worker threads as the host program.
    let threads = agent_plugins::worker_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    // `cargo bench -- loop` runs only the benchmarks whose names contain `loop`, which is the usual behaviour
    // of benchmarks.
    let name_filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_selected = |row: &str| row.contains(&name_filter);
    let mut table = Table::default();
    // Components are built outside the async runtime, because cargo blocks the thread.
    if is_selected("tool call") {
        runtime.block_on(tool_call::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_selected("hot swap") {
        runtime.block_on(hot_swap::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_selected("loop step") {
        runtime.block_on(loop_step::measure(&mut table))?;
    }
    if is_selected("telemetry") {
        runtime.block_on(telemetry::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_selected("many sessions") {
        runtime.block_on(many_sessions::measure(&mut table))?;
    }
    if is_selected("chat completions") {
        runtime.block_on(chat_completions::measure(&mut table))?;
    }
    if is_selected("long history") {
        runtime.block_on(long_history::measure(&mut table))?;
    }
    if is_selected("growing session") {
        runtime.block_on(growing_session::measure(&mut table))?;
    }
    if is_selected("server streams") {
        runtime.block_on(server::measure_streams(&mut table))?;
    }
    if is_selected("idle sessions") {
        runtime.block_on(server::measure_idle(&mut table))?;
    }
    if is_selected("start") {
        start::measure(&built("tests/fixtures/two-kinds")?, &mut table)?;
    }
    if is_selected("compiled code") {
        let components =
            ["plugins/mask-openai", "plugins/calc"].map(built).into_iter().collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(compiled_code::measure(&components, &mut table))?;
    }
    if is_selected("media policy") {
        runtime.block_on(media_policy::measure(&built("plugins/mask-openai")?, &mut table))?;
    }
    if is_selected("cancellation") {
        let components = ["tests/fixtures/probe", "tests/fixtures/bad-validator", "tests/fixtures/stateful-builder"];
        let components = components.map(built).into_iter().collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(cancellation::measure(&components, &mut table))?;
    }
    if is_selected("fleet") {
        runtime.block_on(fleet::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_selected("console") {
        runtime.block_on(console::measure(&mut table))?;
    }
    if is_selected("stream decoding") {
        decoding::measure(&mut table)?;
    }
    print!("{table}");
    Ok(())
}
