//! Checks how close the plugin is to limits, and its cost in every prompt.

use super::{Finding, Level, PluginFacts};
use agent_plugins::{CallLimits, HostLimits};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// From this size on, the first load takes seconds.
const LARGE: u64 = 16 * MIB;
/// From this compile time on, the check gives a hint.
const LONG: Duration = Duration::from_secs(10);
/// Size of tool definitions in bytes from which the check gives a hint. A token is about four bytes, and every prompt
/// contains them.
const MANY_DEFINITIONS: usize = 8 * 1024;
const VERY_MANY_DEFINITIONS: usize = 32 * 1024;
/// Maximum number of functions that are reported one by one.
const MAX_REPORTED: usize = 8;

pub(super) fn check(facts: &PluginFacts, findings: &mut Vec<Finding>) {
    let (host, call) = (HostLimits::default(), CallLimits::default());
    let mut find = |level, rule, message: String| findings.push(Finding::new(level, rule, "", message));
    let most = host.component;
    if facts.size * 5 > most * 4 {
        find(
            Level::Warning,
            "size",
            format!("the component has {} MiB; the limit is {} MiB", facts.size / MIB, most / MIB),
        );
    } else if facts.size >= LARGE {
        find(
            Level::Hint,
            "size",
            format!("the component has {} MiB: the first load on each machine takes seconds", facts.size / MIB),
        );
    }
    // The limit applies to processor time, but the check measures elapsed time, which is longer on a busy machine; so
    // this is only a hint.
    if let Some(time) = facts.compiled_in.filter(|time| *time >= LONG) {
        let (time, most) = (time.as_secs(), host.compile_time.as_secs());
        find(
            Level::Hint,
            "compile-time",
            format!(
                "compilation took {time} s on this machine under its current load; the limit is {most} s of processor time"
            ),
        );
    }
    if let Some(Ok(cost)) = &facts.canary
        && cost.memory_bytes > call.memory as u64 / 2
    {
        let (used, most) = (cost.memory_bytes / MIB, call.memory as u64 / MIB);
        find(
            Level::Warning,
            "memory",
            format!(
                "the canary used {used} MiB of memory; a call may use {most} MiB unless the agent sets another limit"
            ),
        );
    }
    let bytes: usize = facts.tools.iter().map(definition_bytes).sum();
    if bytes > MANY_DEFINITIONS {
        let level = if bytes > VERY_MANY_DEFINITIONS { Level::Warning } else { Level::Hint };
        let tools = facts.tools.len();
        find(
            level,
            "definitions",
            format!(
                "the definitions of the plugin's {tools} tools take about {} tokens of every prompt: shorten them, or remove what a \
             model rarely needs",
                bytes / 4
            ),
        );
    }
    for left_out in facts.left_out.iter().take(MAX_REPORTED).filter(|left_out| !left_out.reason.contains("toolchain")) {
        findings.push(Finding::new(Level::Hint, "not-offered", left_out.function.clone(), left_out.reason.clone()));
    }
}

/// Size of the part of a tool that is in every prompt, in bytes.
fn definition_bytes(tool: &agent_core::tool::ToolDefinition) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
}
