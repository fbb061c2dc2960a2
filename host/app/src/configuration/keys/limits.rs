//! The keys of limits, made of the lists that the rooms have of them.

use super::{Default, Form, Key, Section, Value};
use agent_core::limits::{DefaultLimit, LimitRow};
use agent_mcp::MCP_LIMITS;
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};

/// What holds before it is filled.
const EMPTY: Key =
    Key { name: "", value: Value::Text(Form::Line), default: Default::Words(""), meaning: "", example: "" };

const fn key<L>(row: &LimitRow<L>) -> Key {
    let value = match row.default {
        DefaultLimit::Off => Value::Switch(row.most),
        DefaultLimit::Is(_) | DefaultLimit::Words(_) => Value::Limit(row.least, row.most),
    };
    let default = match row.default {
        DefaultLimit::Is(value) => Default::Number(value),
        DefaultLimit::Words(words) => Default::Words(words),
        DefaultLimit::Off => Default::Is("false"),
    };
    Key { name: row.key, value, default, meaning: row.meaning, example: row.example }
}

/// The keys of a list.
const fn keys<L, const N: usize>(rows: &[LimitRow<L>; N]) -> [Key; N] {
    let mut keys = [EMPTY; N];
    let mut index = 0;
    while index < N {
        keys[index] = key(&rows[index]);
        index += 1;
    }
    keys
}

const CALL_KEYS: [Key; CALL_LIMITS.len()] = keys(&CALL_LIMITS);
const HOST_KEYS: [Key; HOST_LIMITS.len()] = keys(&HOST_LIMITS);
pub(super) const MCP_KEYS: [Key; MCP_LIMITS.len()] = keys(&MCP_LIMITS);

pub(super) const AGENT_LIMITS: Section = Section {
    path: &["limits"],
    example: "limits",
    title: "Limits of plugins' calls",
    about: "Of each single call of each of the agent's plugins. Who meets one is stopped, and the error names the limit and the \
            plugin with its digest.",
    keys: &CALL_KEYS,
};

pub(super) const PLUGIN_LIMITS: Section = Section {
    path: &["plugins", "NAME", "limits"],
    example: "plugins.files.limits",
    title: "Limits of one plugin's calls",
    about: "The same for one plugin: what stands here goes before `[limits]`.",
    keys: &CALL_KEYS,
};

pub(super) const HOST_TABLE: Section = Section {
    path: &["host", "limits"],
    example: "host.limits",
    title: "Limits of the host",
    about: "Of all plugins in the process together, whoever calls them. They are read when the host starts, from the file that it is \
            started with: those of agents that it delegates to (it says where there are any), and changes while it runs, do not \
            count.",
    keys: &HOST_KEYS,
};
