//! Checks how close a plugin is to the host's limits, and how large its tool definitions are. Every prompt contains the
//! tool definitions.

use super::{Finding, Level, PluginFacts};
use agent_plugins::{CallLimits, HostLimits};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// The check reports a hint if a component has at least this size, in bytes, because the first load of such a
/// component takes seconds.
const LARGE_COMPONENT: u64 = 16 * MIB;
/// The check reports a hint if the compilation of a component takes at least this long.
const LONG_COMPILATION: Duration = Duration::from_secs(10);
/// The check reports a hint if the tool definitions of a plugin have more than this total size, in bytes. Every
/// prompt contains the tool definitions, and a token has about four bytes.
const HINT_DEFINITION_BYTES: usize = 8 * 1024;
/// The check reports a warning if the tool definitions of a plugin have more than this total size, in bytes.
const WARNING_DEFINITION_BYTES: usize = 32 * 1024;
/// Maximum number of functions that are reported because they cannot be offered as tools.
const MAX_REPORTED: usize = 8;

pub(super) fn check(facts: &PluginFacts, findings: &mut Vec<Finding>) {
    let (host, call) = (HostLimits::default(), CallLimits::default());
    let mut find = |level, rule, message: String| findings.push(Finding::new(level, rule, "", message));
    let limit = host.component;
    if facts.size * 5 > limit * 4 {
        find(
            Level::Warning,
            "size",
            format!("the component has {} MiB; the limit is {} MiB", facts.size / MIB, limit / MIB),
        );
    } else if facts.size >= LARGE_COMPONENT {
        find(
            Level::Hint,
            "size",
            format!("the component has {} MiB: the first load on each machine takes seconds", facts.size / MIB),
        );
    }
    // A long compilation causes only a hint, because the limit applies to processor time, and the check measures
    // elapsed time, which is longer on a busy machine.
    if let Some(time) = facts.compiled_in.filter(|time| *time >= LONG_COMPILATION) {
        let (time, limit) = (time.as_secs(), host.compile_time.as_secs());
        find(
            Level::Hint,
            "compile-time",
            format!(
                "compilation took {time} s on this machine under its current load; the limit is {limit} s of processor time"
            ),
        );
    }
    if let Some(Ok(cost)) = &facts.canary
        && cost.memory_bytes > call.memory as u64 / 2
    {
        let (used, limit) = (cost.memory_bytes / MIB, call.memory as u64 / MIB);
        find(
            Level::Warning,
            "memory",
            format!(
                "the canary used {used} MiB of memory; a call may use {limit} MiB unless the agent sets another limit"
            ),
        );
    }
    let bytes: usize = facts.tools.iter().map(definition_bytes).sum();
    if bytes > HINT_DEFINITION_BYTES {
        let level = if bytes > WARNING_DEFINITION_BYTES { Level::Warning } else { Level::Hint };
        let tools = facts.tools.len();
        find(
            level,
            "definitions",
            format!(
                "the definitions of the plugin's {tools} tools take about {} tokens of every prompt: shorten them, or remove tools that a \
             model rarely needs",
                bytes / 4
            ),
        );
    }
    for left_out in facts.left_out.iter().take(MAX_REPORTED).filter(|left_out| !left_out.reason.contains("toolchain")) {
        findings.push(Finding::new(Level::Hint, "not-offered", left_out.function.clone(), left_out.reason.clone()));
    }
}

/// Returns the size, in bytes, of the part of a tool's definition that is in every prompt.
fn definition_bytes(tool: &agent_core::tool::ToolDefinition) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()
}
