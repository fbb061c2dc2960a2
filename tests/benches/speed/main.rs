//! Measures the speed targets of the design. Things that are compared run in one process and alternate sample by
//! sample, so that noise affects both equally. Prints one table and asserts nothing about time.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]

// The raw side's engine is made by the host's own code, so that its configuration stays identical.
#[allow(dead_code, unreachable_pub, reason = "the raw side has no cache, and nothing to interrupt")]
#[path = "../../../host/plugins/src/execution/engine.rs"]
mod engine;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the raw side has only the engine's, and no tests")]
#[path = "../../../host/plugins/src/limits/host.rs"]
mod limits;

mod agent;
mod cancellation;
mod compiled_code;
mod component;
mod decoding;
#[allow(dead_code, reason = "the servers' diaries are for tests")]
#[path = "../../mcp_server/fixture.rs"]
mod fixture;
mod growing_session;
mod hot_swap;
mod long_history;
#[allow(dead_code, reason = "what must be true of a cancelled session is for tests")]
#[path = "../../long_work/work.rs"]
mod long_work;
mod loop_step;
mod many_sessions;
mod media_policy;
mod raw;
mod samples;
mod start;
mod table;
mod tool_call;

use component::built;
use table::Table;

fn main() -> wasmtime::Result<()> {
    // The same number as in the program itself.
    let threads = agent_plugins::worker_threads();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    // As in other benchmarks, `cargo bench -- loop` measures only what has that name.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_wanted = |row: &str| row.contains(&wanted);
    let mut table = Table::default();
    // Components are built outside the runtime, because the call of cargo blocks.
    if is_wanted("tool call") {
        runtime.block_on(tool_call::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_wanted("hot swap") {
        runtime.block_on(hot_swap::measure(&built("tests/fixtures/probe")?, &mut table))?;
    }
    if is_wanted("loop step") {
        runtime.block_on(loop_step::measure(&mut table))?;
    }
    if is_wanted("many sessions") {
        runtime.block_on(many_sessions::measure(&mut table))?;
    }
    if is_wanted("long history") {
        runtime.block_on(long_history::measure(&mut table))?;
    }
    if is_wanted("growing session") {
        runtime.block_on(growing_session::measure(&mut table))?;
    }
    if is_wanted("start") {
        start::measure(&built("tests/fixtures/two-kinds")?, &mut table)?;
    }
    if is_wanted("compiled code") {
        let components =
            ["plugins/mask-openai", "plugins/calc"].map(built).into_iter().collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(compiled_code::measure(&components, &mut table))?;
    }
    if is_wanted("media policy") {
        runtime.block_on(media_policy::measure(&built("plugins/mask-openai")?, &mut table))?;
    }
    if is_wanted("cancellation") {
        let components = ["tests/fixtures/probe", "tests/fixtures/bad-validator", "tests/fixtures/stateful-builder"];
        let components = components.map(built).into_iter().collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(cancellation::measure(&components, &mut table))?;
    }
    if is_wanted("stream decoding") {
        decoding::measure(&mut table)?;
    }
    print!("{table}");
    Ok(())
}
