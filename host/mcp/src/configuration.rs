//! What is configured of an MCP server: how it is reached, how long it is kept, which of its tools are taken, its limits.

use agent_core::limits::DefaultLimit::Is;
use agent_core::limits::LimitRow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// 1 to 64 letters, digits, `_` or `-`. Its tools are named `name.tool` (L7).
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// How long it stays connected.
    pub keep: Keep,
    /// Which of its tools are taken.
    pub tools: ToolSelection,
    /// Its limits.
    pub limits: McpLimits,
    /// What of its variables and headers nobody else is to see; whatever is named like a secret is one in any case.
    pub secrets: Secrets,
}

impl ServerConfig {
    /// A server with all defaults.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            keep: Keep::default(),
            tools: ToolSelection::default(),
            limits: McpLimits::default(),
            secrets: Secrets::default(),
        }
    }
}

/// Values that are shown nowhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Of these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        Self(values.into_iter().collect())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secrets({})", self.0.len())
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A child process that speaks on its standard input and output.
    Stdio(ChildCommand),
    /// Streamable HTTP.
    Http(HttpAddress),
}

/// How a child process is started.
#[derive(Clone, Default, PartialEq)]
pub struct ChildCommand {
    /// The program. Without a slash it is looked for in the `PATH` of `env`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment: nothing of the host's own is inherited.
    pub env: BTreeMap<String, String>,
    /// Where it runs. Default: where the host runs.
    pub directory: Option<PathBuf>,
}

impl ChildCommand {
    /// Where a file lies that an argument names.
    pub fn place_of(&self, name: &str) -> PathBuf {
        self.directory.as_deref().unwrap_or(Path::new(".")).join(name)
    }

    /// The file that the command leads to, without links; none where there is none.
    pub fn program(&self) -> Option<PathBuf> {
        if self.command.contains(std::path::is_separator) {
            return self.place_of(&self.command).canonicalize().ok();
        }
        let folders = std::env::split_paths(self.env.get("PATH")?).collect::<Vec<_>>();
        folders.iter().find_map(|folder| self.place_of("").join(folder).join(&self.command).canonicalize().ok())
    }
}

/// Where a server listens.
#[derive(Clone, Default, PartialEq)]
pub struct HttpAddress {
    /// `http://` or `https://`.
    pub url: String,
    /// Of every request, by name.
    pub headers: BTreeMap<String, String>,
}

/// How long a server stays connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// While a turn runs: closed when it ends, fails or is suspended, and opened again.
    #[default]
    Turn,
    /// From its first use to the end of the host.
    Always,
}

/// Which tools of a server are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolSelection {
    /// All.
    #[default]
    All,
    /// Those of these names, as the server names them.
    Only(Vec<String>),
}

/// What a server may cost. The defaults are those of the host's table of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpLimits {
    /// Tools. Default 1,024; those after them are left out.
    pub tools: usize,
    /// Pages of the list of tools. Default 50.
    pub pages: usize,
    /// Bytes of all tools together. Default 16 MiB.
    pub catalogue_bytes: usize,
    /// Bytes of a description; longer ones are cut. Default 2 KiB.
    pub description_bytes: usize,
    /// Levels of a schema; tools with deeper ones are left out. Default 32.
    pub schema_depth: usize,
    /// Bytes of one message. Default 16 MiB, at most that.
    pub message_bytes: usize,
    /// Bytes of a result's text; more is cut. Default 1 MiB.
    pub text_bytes: usize,
    /// Bytes of a result's media together. Default 10 MiB.
    pub media_bytes: usize,
    /// To start, shake hands and list all tools. Default 30 s.
    pub connect_time: Duration,
    /// Of one call. Default 30 s, at most 120 s.
    pub call_time: Duration,
    /// For a child to end by itself once its input is closed. Default 1 s.
    pub close_time: Duration,
}

impl McpLimits {
    /// Longest call that can be allowed.
    pub const LONGEST_CALL: Duration = Duration::from_secs(120);
    /// Largest message that can be allowed.
    pub const LARGEST_MESSAGE: usize = 16 << 20;
}

/// Limits of a server's catalogue that can be configured, in order of reading.
pub const MCP_LIMITS: [LimitRow<McpLimits>; 5] = [
    LimitRow {
        key: "catalogue_tools",
        default: Is(1_024),
        least: 1,
        most: 10_000,
        meaning: "Tools of the server that are taken; further ones are left out.",
        example: "100",
        get: |limits| Some(limits.tools as u64),
        set: |limits, value| limits.tools = value as usize,
    },
    LimitRow {
        key: "catalogue_pages",
        default: Is(50),
        least: 1,
        most: 1_000,
        meaning: "Pages of its list of tools that are asked for.",
        example: "10",
        get: |limits| Some(limits.pages as u64),
        set: |limits, value| limits.pages = value as usize,
    },
    LimitRow {
        key: "catalogue_kib",
        default: Is(16_384),
        least: 1,
        most: 65_536,
        meaning: "KiB of all its tools together.",
        example: "1024",
        get: |limits| Some(limits.catalogue_bytes as u64 / 1024),
        set: |limits, value| limits.catalogue_bytes = value as usize * 1024,
    },
    LimitRow {
        key: "description_kib",
        default: Is(2),
        least: 1,
        most: 64,
        meaning: "KiB of a tool's description, which is cut there.",
        example: "4",
        get: |limits| Some(limits.description_bytes as u64 / 1024),
        set: |limits, value| limits.description_bytes = value as usize * 1024,
    },
    LimitRow {
        key: "schema_depth",
        default: Is(32),
        least: 1,
        most: 64,
        meaning: "Levels of a tool's schema; tools with deeper ones are left out.",
        example: "16",
        get: |limits| Some(limits.schema_depth as u64),
        set: |limits, value| limits.schema_depth = value as usize,
    },
];

impl Default for McpLimits {
    fn default() -> Self {
        let mut limits = Self {
            tools: 0,
            pages: 0,
            catalogue_bytes: 0,
            description_bytes: 0,
            schema_depth: 0,
            message_bytes: Self::LARGEST_MESSAGE,
            text_bytes: 1 << 20,
            media_bytes: 10 << 20,
            connect_time: Duration::from_secs(30),
            call_time: Duration::from_secs(30),
            close_time: Duration::from_secs(1),
        };
        MCP_LIMITS.iter().for_each(|row| row.reset(&mut limits));
        limits
    }
}

/// Values may be secrets, so only names are shown.
impl fmt::Debug for ChildCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, args, env, directory } = self;
        let names: Vec<&String> = env.keys().collect();
        let mut shown = formatter.debug_struct("ChildCommand");
        shown.field("command", command).field("args", args).field("env", &names).field("directory", directory).finish()
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.headers.keys().collect();
        let url = crate::http::shown(&self.url);
        formatter.debug_struct("HttpAddress").field("url", &url).field("headers", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 16: no secret of a configuration is ever printed.
    #[test]
    fn i5_secrets_are_not_shown() {
        let secret = || BTreeMap::from([("TOKEN".to_owned(), "hush".to_owned())]);
        let child = ChildCommand { command: "server".to_owned(), env: secret(), ..ChildCommand::default() };
        let url = "https://me:hush@example.com/mcp?key=hush".to_owned();
        let shown = format!("{child:?} {:?}", HttpAddress { url, headers: secret() });
        assert!(shown.contains("TOKEN") && shown.contains("example.com/mcp") && !shown.contains("hush"), "{shown}");
    }
}
