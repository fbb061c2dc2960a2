//! Measures what the design promises of a tool call, of a loop step and of a model's stream; the first with host and raw
//! wasmtime in one process, sample by sample in turn, so that noise hits both alike. Prints one table; asserts nothing
//! about time.

#![allow(clippy::print_stdout, reason = "the table is what this program is for")]

#[allow(dead_code, unreachable_pub, reason = "only the number of slots is needed")]
#[path = "../../../host/plugins/src/admission.rs"]
mod admission;
// The raw side's engine is made by the host's own code, so that its configuration stays identical.
#[allow(dead_code, unreachable_pub, reason = "the raw side has no cache, and nothing to interrupt")]
#[path = "../../../host/plugins/src/engine.rs"]
mod engine;
#[allow(dead_code, unreachable_pub, reason = "the raw side has only the engine's")]
#[path = "../../../host/plugins/src/limits.rs"]
mod limits;

mod component;
mod decoding;
mod loop_step;
mod raw;
mod samples;
mod table;
mod tool_call;

use table::Table;

fn main() -> wasmtime::Result<()> {
    // Built before the runtime starts, since cargo waits for nobody.
    let component = component::probe()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // As other benchmarks have it: `cargo bench -- loop` measures only what is named so.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let mut table = Table::default();
    if "tool call".contains(&wanted) {
        runtime.block_on(tool_call::measure(&component, &mut table))?;
    }
    if "loop step".contains(&wanted) {
        runtime.block_on(loop_step::measure(&mut table))?;
    }
    if "stream decoding".contains(&wanted) {
        decoding::measure(&mut table)?;
    }
    print!("{table}");
    Ok(())
}
