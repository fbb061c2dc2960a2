//! The list of all keys of `agent.toml`, with type, default, meaning and an example. This list is the source of the
//! checks, the commented file that `config init` writes, the JSON Schema and the tables in the documentation (I2).

mod agent;
mod approval;
mod budget;
mod events;
mod limits;
mod mcp;
mod services;
mod sharing;
mod tables;
mod telemetry;

use super::text_format::TextFormat;
use agent::{AGENT, MODELS, TURN, UNITS};
use approval::APPROVAL;
use budget::{BUDGET, BUDGET_AGENT_DAY, BUDGET_SESSION, BUDGET_TURN, BUDGET_USER_DAY};
use events::{EVENT, OUTBOX, OUTBOX_SERVER, SCHEDULE, WEBHOOK};
use limits::{AGENT_LIMITS, HOST_TABLE, PLUGIN_LIMITS};
pub(super) use mcp::{MCP, MCP_NEEDS, MCP_TAKEN};
use mcp::{MCP_ADDRESS, MCP_PROCESS};
use services::SERVICE;
use sharing::SHARING;
use tables::{DELEGATES, GRANTS, HOST_GRANTS, PROVIDER, PROVIDER_MODEL, RETRY, SECRETS};
use telemetry::TELEMETRY;

/// A table of `agent.toml`, with some or all of the keys that the table allows.
pub(super) struct Section {
    /// Path of the table in `agent.toml`. Words in capitals are placeholders for names that the user chooses. If the
    /// path is empty, the keys are at the top of the file.
    pub(super) path: &'static [&'static str],
    /// Header of the table with example names, without brackets.
    pub(super) example: &'static str,
    /// Heading of the section in documents.
    pub(super) title: &'static str,
    /// Description of the table's purpose, in one or more sentences.
    pub(super) about: &'static str,
    /// The keys, in the order of the documentation.
    pub(super) keys: &'static [Key],
}

/// A key that a table of `agent.toml` allows.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// The key, as it is written in the file.
    pub(super) name: &'static str,
    /// The type of the value, with its bounds.
    pub(super) value: Value,
    /// The value that the key has, or the behaviour of the host, if the key is not set.
    pub(super) default: Default,
    /// Description of the key, in one or more sentences.
    pub(super) meaning: &'static str,
    /// An example of a value for the key, as TOML.
    pub(super) example: &'static str,
}

/// The type of a key's value, with its bounds.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// A string that has this format.
    Text(TextFormat),
    /// A whole number with an inclusive minimum and maximum.
    Number(u32, u32),
    /// A whole number of up to 64 bits, with an inclusive minimum and maximum.
    Limit(u64, u64),
    /// A number from 0 to the given maximum, with or without a fraction.
    Amount(u32),
    /// A boolean, which is `true` or `false`.
    Flag,
    /// `true`, `false`, or a whole number from 1 to the given maximum.
    Switch(u64),
    /// A string that must be one of the listed strings.
    Choice(&'static [&'static str]),
    /// A list of strings that each have this format.
    Texts(TextFormat),
    /// A table of strings whose keys the user chooses. The first format applies to the keys, and the second format to
    /// the values.
    Pairs(TextFormat, TextFormat),
    /// A JSON Schema as a table, or the path of a file that contains one.
    Schema,
    /// A table whose keys the user chooses and whose values are JSON Schemas, or the path of a file with one schema for
    /// all keys.
    Schemas,
    /// A whole number that may be negative, with an inclusive minimum and maximum.
    Signed(i32, i32),
}

/// The value that a key has, or the behaviour of the host, if the key is not set.
#[derive(Clone, Copy)]
pub(super) enum Default {
    /// The default is a value, written as TOML.
    Is(&'static str),
    /// The default is this number.
    Number(u64),
    /// A text that describes a default that is not a single value.
    Words(&'static str),
}

const NONE: Default = Default::Words("none");

/// All sections, in the order of the documentation. Keys at the top of the file come first, as TOML requires.
pub(super) const SECTIONS: &[Section] = &[
    AGENT,
    MODELS,
    TURN,
    UNITS,
    BUDGET,
    BUDGET_TURN,
    BUDGET_SESSION,
    BUDGET_AGENT_DAY,
    BUDGET_USER_DAY,
    APPROVAL,
    RETRY,
    PROVIDER,
    PROVIDER_MODEL,
    DELEGATES,
    AGENT_LIMITS,
    HOST_GRANTS,
    HOST_TABLE,
    GRANTS,
    SECRETS,
    PLUGIN_LIMITS,
    MCP_PROCESS,
    MCP_ADDRESS,
    SERVICE,
    OUTBOX,
    OUTBOX_SERVER,
    SCHEDULE,
    WEBHOOK,
    EVENT,
    TELEMETRY,
    SHARING,
];
