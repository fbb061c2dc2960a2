//! What it costs, and how near it is to limits.

use super::{Examined, Finding, Level};
use agent_plugins::{CallLimits, HostLimits};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// From this size on its first load takes a while.
const LARGE: u64 = 16 * MIB;
/// The same for the time to compile.
const LONG: Duration = Duration::from_secs(10);
/// Bytes of definitions, of which a model reads about four as a token, in every prompt.
const MANY_DEFINITIONS: usize = 8 * 1024;
const VERY_MANY_DEFINITIONS: usize = 32 * 1024;
/// Functions that are no tools, told one by one.
const TOLD: usize = 8;

pub(super) fn check(examined: &Examined, findings: &mut Vec<Finding>) {
    let (host, call) = (HostLimits::default(), CallLimits::default());
    let mut find = |level, rule, message: String| findings.push(Finding::new(level, rule, "", message));
    let most = host.component;
    if examined.size * 5 > most * 4 {
        find(
            Level::Warning,
            "size",
            format!("it has {} MiB; a component may have at most {}", examined.size / MIB, most / MIB),
        );
    } else if examined.size >= LARGE {
        find(
            Level::Hint,
            "size",
            format!("it has {} MiB: its first load takes seconds on each machine", examined.size / MIB),
        );
    }
    // The limit is on processor time, of which a busy machine gives little: what was measured says no more than a hint.
    if let Some(time) = examined.compiled_in.filter(|time| *time >= LONG) {
        let (time, most) = (time.as_secs(), host.compile_time.as_secs());
        find(
            Level::Hint,
            "compile-time",
            format!(
                "compiling it took {time} s on this machine, as busy as it was; {most} s of processor time are allowed"
            ),
        );
    }
    if let Some(Ok(cost)) = &examined.canary
        && cost.memory_bytes > call.memory as u64 / 2
    {
        let (used, most) = (cost.memory_bytes / MIB, call.memory as u64 / MIB);
        find(
            Level::Warning,
            "memory",
            format!("its canary took {used} MiB of memory; a call has {most} unless an agent says otherwise"),
        );
    }
    let bytes: usize = examined.tools.iter().map(definition_bytes).sum();
    if bytes > MANY_DEFINITIONS {
        let level = if bytes > VERY_MANY_DEFINITIONS { Level::Warning } else { Level::Hint };
        let tools = examined.tools.len();
        find(
            level,
            "definitions",
            format!(
                "the definitions of its {tools} tools take about {} tokens of every prompt: shorten them, or leave out what a model \
             seldom needs",
                bytes / 4
            ),
        );
    }
    for left_out in examined.left_out.iter().take(TOLD).filter(|left_out| !left_out.reason.contains("toolchain")) {
        findings.push(Finding::new(Level::Hint, "not-offered", left_out.function.clone(), left_out.reason.clone()));
    }
}

/// What of a tool stands in prompts.
fn definition_bytes(tool: &agent_core::tool::ToolDefinition) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
}
