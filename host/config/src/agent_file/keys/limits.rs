//! Keys of the tables that set limits. The keys are generated from the lists of limits in the crates that enforce
//! the limits.

use super::{Default, Key, Section, TextFormat, Value};
use agent_core::limits::{DefaultLimit, LimitRow};
use agent_mcp::MCP_LIMITS;
use agent_plugins::limits::{CALL_LIMITS, HOST_LIMITS};

/// Placeholder for the elements of an array, which are replaced before the array is used.
const EMPTY: Key =
    Key { name: "", value: Value::Text(TextFormat::Line), default: Default::Words(""), meaning: "", example: "" };

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

/// Converts a list of limits to keys.
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
    title: "Limits for plugin calls",
    about: "Limits for each call of each plugin of the agent. A call that reaches a limit is stopped, and the error names \
            the limit and the plugin with its digest.",
    keys: &CALL_KEYS,
};

pub(super) const PLUGIN_LIMITS: Section = Section {
    path: &["plugins", "NAME", "limits"],
    example: "plugins.files.limits",
    title: "Limits for calls of one plugin",
    about: "Limits for the calls of a single plugin. A limit that is set here overrides the same limit in \
            `[limits]`.",
    keys: &CALL_KEYS,
};

pub(super) const HOST_TABLE: Section = Section {
    path: &["host", "limits"],
    example: "host.limits",
    title: "Limits for the host",
    about: "Limits for all plugins in the process together, regardless of the agent that calls them. The host reads \
            these limits once, at startup, from the file that it is started with. Later changes to these limits have \
            no effect. Such limits in the files of delegates have no effect, and the host prints a warning about them.",
    keys: &HOST_KEYS,
};
