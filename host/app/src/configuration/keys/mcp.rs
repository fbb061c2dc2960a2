//! The keys of MCP servers. A server is a child process or an address, so there are two lists for one kind of table.

use super::limits::MCP_KEYS;
use super::{Default, Form, Key, NONE, Section, Value};

pub(in crate::configuration) const MCP: &str = "mcp";

/// Words that stand for other sources of tools where a model writes its calls (L20).
pub(in crate::configuration) const MCP_TAKEN: [&str; 3] = ["local", "service", "mcp"];

pub(super) const MCP_PROCESS: Section = Section {
    path: &[MCP, "NAME"],
    example: "mcp.notes",
    title: "MCP servers as child processes",
    about: "Servers of the Model Context Protocol, whose tools the agent has as `NAME.tool`. The program runs as you, outside \
            of the sandbox that plugins have: it can do whatever you can. It is started when a turn begins. What stands from \
            `tools` on is also for servers with a `url`. No server is named `local`, `service` or `mcp`: calls in a reply's \
            text name other sources so. What `pass_env` and `header_env` pass, and values of `env` and `headers` that are \
            named like secrets, are shown as `(secret)` where the server sends them back and they have eight characters or more, \
            also in the usual encodings: see [secrets](secrets.md).",
    keys: &PROCESS_KEYS,
};

/// With the limits of its catalogue behind them.
const PROCESS_KEYS: [Key; OWN_KEYS.len() + MCP_KEYS.len()] = {
    let mut keys = [MCP_KEYS[0]; OWN_KEYS.len() + MCP_KEYS.len()];
    let mut index = 0;
    while index < keys.len() {
        keys[index] = if index < OWN_KEYS.len() { OWN_KEYS[index] } else { MCP_KEYS[index - OWN_KEYS.len()] };
        index += 1;
    }
    keys
};

const OWN_KEYS: [Key; 9] = [
    Key {
        name: "command",
        value: Value::Text(Form::Filled),
        default: Default::Words("none: a server has this or `url`"),
        meaning: "The program, which speaks MCP on its standard input and output. A name is looked for on the `PATH`, a \
                  path is relative to the folder of this file.",
        example: r#""notes-server""#,
    },
    Key {
        name: "args",
        value: Value::Texts(Form::Filled),
        default: NONE,
        meaning: "Its arguments.",
        example: r#"["--read-only"]"#,
    },
    Key {
        name: "env",
        value: Value::Pairs(Form::Variable, Form::Filled),
        default: NONE,
        meaning: "Variables of its environment. No secrets: those go into `pass_env`.",
        example: r#"{ NOTES_FOLDER = "notes" }"#,
    },
    Key {
        name: "pass_env",
        value: Value::Texts(Form::Variable),
        default: NONE,
        meaning: "Variables of the host's environment, which must be set, that it gets too. Beside them it gets only \
                  `PATH`, `HOME`, `USER`, `LOGNAME`, `LANG` and `TMPDIR`.",
        example: r#"["NOTES_TOKEN"]"#,
    },
    Key {
        name: "directory",
        value: Value::Text(Form::Filled),
        default: Default::Words("the current folder"),
        meaning: "The folder in which it runs.",
        example: r#"".""#,
    },
    Key {
        name: "tools",
        value: Value::Texts(Form::Filled),
        default: Default::Words("all"),
        meaning: "Those of its tools that the agent has, as the server names them.",
        example: r#"["search_notes"]"#,
    },
    Key {
        name: "keep",
        value: Value::Choice(&["turn", "always"]),
        default: Default::Is("\"turn\""),
        meaning: "How long it runs: for a turn, or from its first turn to the end of the host.",
        example: "\"always\"",
    },
    Key {
        name: "timeout_ms",
        value: Value::Number(1, 120_000),
        default: Default::Is("30000"),
        meaning: "Milliseconds of one call.",
        example: "5000",
    },
    Key {
        name: "start_timeout_ms",
        value: Value::Number(1, 600_000),
        default: Default::Is("30000"),
        meaning: "Milliseconds to start or connect and to list its tools.",
        example: "90000",
    },
];

pub(super) const MCP_ADDRESS: Section = Section {
    path: &[MCP, "NAME"],
    example: "mcp.issues",
    title: "MCP servers over HTTP",
    about: "Servers that are reached over streamable HTTP.",
    keys: &[
        Key {
            name: "url",
            value: Value::Text(Form::ServerUrl),
            default: Default::Words("none: a server has this or `command`"),
            meaning: "Its address.",
            example: r#""https://mcp.example.com/mcp""#,
        },
        Key {
            name: "headers",
            value: Value::Pairs(Form::PlainHeader, Form::HeaderValue),
            default: NONE,
            meaning: "Headers of every request, by name. No secrets: those go into `header_env`.",
            example: r#"{ "X-Title" = "agent-host" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(Form::Header, Form::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by name.",
            example: r#"{ "Authorization" = "ISSUES_AUTHORIZATION" }"#,
        },
    ],
};

/// Keys that need another one: those of a process, and those of an address.
pub(in crate::configuration) const MCP_NEEDS: [(&str, &str); 6] = [
    ("args", "command"),
    ("env", "command"),
    ("pass_env", "command"),
    ("directory", "command"),
    ("headers", "url"),
    ("header_env", "url"),
];
