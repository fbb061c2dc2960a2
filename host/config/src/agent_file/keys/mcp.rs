//! Keys of the tables `[mcp.NAME]`, which configure MCP servers. A server is either a child process or a server at an
//! address, so the same table is described in two sections.

use super::limits::MCP_KEYS;
use super::{Default, Key, NONE, Section, TextFormat, Value};

pub(in crate::agent_file) const MCP: &str = "mcp";

/// Names that a server must not have. In calls that a model writes as text, these names represent other sources of
/// tools (L20).
pub(in crate::agent_file) const MCP_TAKEN: [&str; 3] = ["local", "service", "mcp"];

pub(super) const MCP_PROCESS: Section = Section {
    path: &[MCP, "NAME"],
    example: "mcp.notes",
    title: "MCP servers as child processes",
    about: "Servers of the Model Context Protocol. The agent can use the tools of a server under the names \
            `NAME.tool`. The program runs with your user's rights, outside the sandbox for plugins: it can do \
            everything that you can. The program is started when a turn begins. The key `tools` and the keys after it \
            also apply to servers with a `url`. NAME must not be `local`, `service` or `mcp`, which are reserved for \
            other sources of tools. A secret that a server sends back is shown as `(secret)`, even in one of the \
            usual encodings: see [secrets](secrets.md). Secrets are values of eight or more characters that the \
            server got through `pass_env` or `header_env`, and values of `env` or `headers` whose names look like \
            names of secrets.",
    keys: &PROCESS_KEYS,
};

/// The keys of a server that is a child process. The last keys in this list are the limits on the server's list
/// of tools.
const PROCESS_KEYS: [Key; BASE_PROCESS_KEYS.len() + MCP_KEYS.len()] = {
    let mut keys = [MCP_KEYS[0]; BASE_PROCESS_KEYS.len() + MCP_KEYS.len()];
    let mut index = 0;
    while index < keys.len() {
        keys[index] = if index < BASE_PROCESS_KEYS.len() {
            BASE_PROCESS_KEYS[index]
        } else {
            MCP_KEYS[index - BASE_PROCESS_KEYS.len()]
        };
        index += 1;
    }
    keys
};

const BASE_PROCESS_KEYS: [Key; 9] = [
    Key {
        name: "command",
        value: Value::Text(TextFormat::Filled),
        default: Default::Words("none; a server needs this key or `url`"),
        meaning: "The program, which speaks MCP on its standard input and output. A program name is looked up in \
                  `PATH`; a path is relative to the folder of this file.",
        example: r#""notes-server""#,
    },
    Key {
        name: "args",
        value: Value::Texts(TextFormat::Filled),
        default: NONE,
        meaning: "Arguments of the program.",
        example: r#"["--read-only"]"#,
    },
    Key {
        name: "env",
        value: Value::Pairs(TextFormat::Variable, TextFormat::Filled),
        default: NONE,
        meaning: "Environment variables of the process. Put secrets into `pass_env` instead.",
        example: r#"{ NOTES_FOLDER = "notes" }"#,
    },
    Key {
        name: "pass_env",
        value: Value::Texts(TextFormat::Variable),
        default: NONE,
        meaning: "Variables of the host's environment that are passed to the process. All variables in this list must \
                  be set. Of the other variables, the process gets only `PATH`, `HOME`, `USER`, `LOGNAME`, `LANG` and \
                  `TMPDIR`.",
        example: r#"["NOTES_TOKEN"]"#,
    },
    Key {
        name: "directory",
        value: Value::Text(TextFormat::Filled),
        default: Default::Words("the current folder"),
        meaning: "Working directory of the process.",
        example: r#"".""#,
    },
    Key {
        name: "tools",
        value: Value::Texts(TextFormat::Filled),
        default: Default::Words("all"),
        meaning: "Names of the server's tools that the agent may use, without the prefix `NAME.`.",
        example: r#"["search_notes"]"#,
    },
    Key {
        name: "keep",
        value: Value::Choice(&["turn", "always"]),
        default: Default::Is("\"turn\""),
        meaning: "How long the server runs: for one turn, or from its first turn until the host stops.",
        example: "\"always\"",
    },
    Key {
        name: "timeout_ms",
        value: Value::Number(1, 120_000),
        default: Default::Is("30000"),
        meaning: "Maximum time of one call, in milliseconds.",
        example: "5000",
    },
    Key {
        name: "start_timeout_ms",
        value: Value::Number(1, 600_000),
        default: Default::Is("30000"),
        meaning: "Maximum time to start or connect to the server and to list its tools, in milliseconds.",
        example: "90000",
    },
];

pub(super) const MCP_ADDRESS: Section = Section {
    path: &[MCP, "NAME"],
    example: "mcp.issues",
    title: "MCP servers over HTTP",
    about: "MCP servers that are reached over streamable HTTP.",
    keys: &[
        Key {
            name: "url",
            value: Value::Text(TextFormat::ServerUrl),
            default: Default::Words("none; a server needs this key or `command`"),
            meaning: "Address of the server.",
            example: r#""https://mcp.example.com/mcp""#,
        },
        Key {
            name: "headers",
            value: Value::Pairs(TextFormat::PlainHeader, TextFormat::HeaderValue),
            default: NONE,
            meaning: "Headers that are sent with every request, by name. Put secrets into `header_env` instead.",
            example: r#"{ "X-Title" = "agent-host" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(TextFormat::Header, TextFormat::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by the name of the header.",
            example: r#"{ "Authorization" = "ISSUES_AUTHORIZATION" }"#,
        },
    ],
};

/// Pairs of a key and the key that it requires. The keys for a child process require `command`, and the keys for an
/// address require `url`.
pub(in crate::agent_file) const MCP_NEEDS: [(&str, &str); 6] = [
    ("args", "command"),
    ("env", "command"),
    ("pass_env", "command"),
    ("directory", "command"),
    ("headers", "url"),
    ("header_env", "url"),
];
