//! Every key of agent.toml: its type, default, meaning and an example. The reader, the commented file of `config init`, the
//! JSON Schema and the tables of the documentation are made from this list alone (I2).

mod agent;
mod approval;
mod limits;
mod mcp;
mod services;
mod sharing;
mod tables;

use super::form::Form;
use agent::{AGENT, MODELS, TURN, UNITS};
use approval::APPROVAL;
use limits::{AGENT_LIMITS, HOST_TABLE, PLUGIN_LIMITS};
pub(super) use mcp::{MCP, MCP_NEEDS, MCP_TAKEN};
use mcp::{MCP_ADDRESS, MCP_PROCESS};
use services::{OUTBOX, SERVICE};
use sharing::SHARING;
use tables::{DELEGATES, GRANTS, HOST_GRANTS, PROVIDER, PROVIDER_MODEL, RETRY, SECRETS};

/// A table of the file with some of its keys.
pub(super) struct Section {
    /// Where the table stands; words in capitals are names that the author chooses. Empty: the top of the file.
    pub(super) path: &'static [&'static str],
    /// The same with names of an author, as a table's header.
    pub(super) example: &'static str,
    /// Of its part in documents.
    pub(super) title: &'static str,
    /// What it is for.
    pub(super) about: &'static str,
    /// In order of reading.
    pub(super) keys: &'static [Key],
}

/// One key.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// As it is written.
    pub(super) name: &'static str,
    /// What may stand behind it.
    pub(super) value: Value,
    /// What holds without it.
    pub(super) default: Default,
    /// What it does.
    pub(super) meaning: &'static str,
    /// A value, as TOML.
    pub(super) example: &'static str,
}

/// What may stand behind a key.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// One text.
    Text(Form),
    /// A whole number, both bounds included.
    Number(u32, u32),
    /// A limit: a whole number, both bounds included.
    Limit(u64, u64),
    /// Any number from 0 to this one.
    Amount(u32),
    /// `true` or `false`.
    Flag,
    /// `true` or `false`, or a whole number from 1 to this one.
    Switch(u64),
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts(Form),
    /// A table of the author's own keys with texts.
    Pairs(Form, Form),
    /// A JSON Schema as a table, or the path of a file with one.
    Schema,
    /// JSON Schemas by the author's own keys, or the path of a file with one for all.
    Schemas,
    /// A whole number that may be negative, both bounds included.
    Signed(i32, i32),
}

/// What holds without a key.
#[derive(Clone, Copy)]
pub(super) enum Default {
    /// This value, as TOML.
    Is(&'static str),
    /// This number.
    Number(u64),
    /// What these words say.
    Words(&'static str),
}

const NONE: Default = Default::Words("none");

/// All of them, in order of reading; those of the top come first, as TOML wants it.
pub(super) const SECTIONS: &[Section] = &[
    AGENT,
    MODELS,
    TURN,
    UNITS,
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
    SHARING,
];
