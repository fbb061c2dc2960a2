//! Configuration of an MCP server: its transport, how long it stays connected, which of its tools the host offers, and
//! its limits.

use agent_core::limits::DefaultLimit::Is;
use agent_core::limits::LimitRow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Configuration of one MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Name of the server, which consists of 1 to 64 ASCII letters, digits, `_` or `-`. The host offers the server's
    /// tools as `name.tool` (L7).
    pub name: String,
    /// Transport over which the host reaches the server.
    pub transport: Transport,
    /// How long the server stays connected after its first use.
    pub keep: KeepConnected,
    /// Selection of the server's tools that the host offers.
    pub tools: ToolSelection,
    /// Limits on the time that this server may take and on the size of the data that it may send.
    pub limits: McpLimits,
    /// Secrets that must not be shown or stored, even if the server sends them back. In addition, the host always
    /// treats the value of an environment variable or header as a secret if its name looks like the name of a secret,
    /// such as `API_KEY`.
    pub secrets: Secrets,
}

impl ServerConfig {
    /// Creates the configuration of a server that stays connected only during turns, with all tools and the
    /// default limits.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            keep: KeepConnected::default(),
            tools: ToolSelection::default(),
            limits: McpLimits::default(),
            secrets: Secrets::default(),
        }
    }
}

/// A collection of secret values. Its `Debug` output contains only the number of values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Creates a collection of secret values.
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

/// Transport over which the host reaches a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// The host starts the server as a child process and communicates over the standard input and output of
    /// this process.
    Stdio(ChildCommand),
    /// The host connects to the server at a URL and uses the protocol's streamable HTTP transport.
    Http(HttpAddress),
}

/// The command, environment and directory with which a server is started as a child process.
#[derive(Clone, Default, PartialEq)]
pub struct ChildCommand {
    /// Program to start. A name without a slash is looked up in the `PATH` of `env`.
    pub command: String,
    /// Command-line arguments of the program.
    pub args: Vec<String>,
    /// Complete environment of the process. The process inherits no variables from the host.
    pub env: BTreeMap<String, String>,
    /// Working directory of the process. If `None`, the process starts in the host's working directory.
    pub directory: Option<PathBuf>,
}

impl ChildCommand {
    /// Returns the path of the file to which the argument `name` of the command refers. A relative `name` is resolved
    /// against the working directory of the process.
    pub fn resolve_path(&self, name: &str) -> PathBuf {
        self.directory.as_deref().unwrap_or(Path::new(".")).join(name)
    }

    /// Resolves the command to a file, following symbolic links. Returns `None` if the command is not found.
    pub fn resolve_program(&self) -> Option<PathBuf> {
        if self.command.contains(std::path::is_separator) {
            return self.resolve_path(&self.command).canonicalize().ok();
        }
        let directories = std::env::split_paths(self.env.get("PATH")?).collect::<Vec<_>>();
        directories
            .iter()
            .find_map(|directory| self.resolve_path("").join(directory).join(&self.command).canonicalize().ok())
    }
}

/// URL of an HTTP server, and the headers that the host sends to this server.
#[derive(Clone, Default, PartialEq)]
pub struct HttpAddress {
    /// URL of the server, which begins with `http://` or `https://`.
    pub url: String,
    /// Names and values of headers that are sent with every request.
    pub headers: BTreeMap<String, String>,
}

impl HttpAddress {
    /// Returns the URL in the form that messages show, without credentials, query and fragment.
    pub(crate) fn display_url(&self) -> String {
        let Ok(mut url) = Url::parse(&self.url) else { return "an invalid URL".to_owned() };
        // `set_username` and `set_password` fail only if the URL has no host, and a URL without a host contains neither
        // a user name nor a password.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }
}

/// The time for which a server stays connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepConnected {
    /// The server is connected only during a turn. The connection is closed when the turn ends, fails or is suspended.
    /// The next turn that needs the server opens a new connection.
    #[default]
    Turn,
    /// The server stays connected from its first use until the host exits.
    Always,
}

/// Selects which tools of a server the host offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolSelection {
    /// The host offers all tools of the server.
    #[default]
    All,
    /// The host offers only the tools with these names, which are spelled as the server spells them, without the
    /// server's name as prefix.
    Only(Vec<String>),
}

/// Limits on the time that a server may take and on the size of the data that the server may send. [`MCP_LIMITS`]
/// contains the defaults of the configurable limits on the tool list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpLimits {
    /// Maximum number of tools that are read from the server. Further tools are left out. The default is 1,024.
    pub tools: usize,
    /// Maximum number of pages that are read from the tool list. The default is 50.
    pub pages: usize,
    /// Maximum total size of the definitions of all tools, in bytes. The default is 16 MiB.
    pub catalogue_bytes: usize,
    /// Maximum size of a tool description, in bytes. Longer descriptions are truncated. The default is 2 KiB.
    pub description_bytes: usize,
    /// Maximum nesting depth of a tool's schema. Tools with deeper schemas are left out. The default is 32.
    pub schema_depth: usize,
    /// Maximum size of one message that the server sends, in bytes. Default and upper bound: 16 MiB.
    pub message_bytes: usize,
    /// Maximum total size of the text in the result of a call, in bytes. Longer text is truncated. The default is
    /// 1 MiB.
    pub text_bytes: usize,
    /// Maximum total size of all media in the result of a call, in bytes. The default is 10 MiB.
    pub media_bytes: usize,
    /// Maximum time to start the server, complete the handshake and list its tools. The default is 30 s.
    pub connect_time: Duration,
    /// Maximum time for one call of a tool. The default is 30 s. The upper bound is 120 s.
    pub call_time: Duration,
    /// Maximum time for a child process to exit after its standard input is closed. The default is 1 s.
    pub close_time: Duration,
}

impl McpLimits {
    /// Upper bound for `call_time`.
    pub const MAX_CALL_TIME: Duration = Duration::from_secs(120);
    /// Upper bound for `message_bytes`.
    pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

    /// Returns the maximum size of one message, in bytes: the smaller of `message_bytes`
    /// and [`Self::MAX_MESSAGE_BYTES`].
    pub(crate) fn max_message_bytes(&self) -> usize {
        self.message_bytes.min(Self::MAX_MESSAGE_BYTES)
    }
}

/// Configurable limits on a server's tool list, in the order in which the documentation lists them.
pub const MCP_LIMITS: [LimitRow<McpLimits>; 5] = [
    LimitRow {
        key: "catalogue_tools",
        default: Is(1_024),
        least: 1,
        most: 10_000,
        meaning: "Maximum number of tools read from the server. Further tools are left out.",
        example: "100",
        get: |limits| Some(limits.tools as u64),
        set: |limits, value| limits.tools = value as usize,
    },
    LimitRow {
        key: "catalogue_pages",
        default: Is(50),
        least: 1,
        most: 1_000,
        meaning: "Maximum number of pages read from the server's tool list.",
        example: "10",
        get: |limits| Some(limits.pages as u64),
        set: |limits, value| limits.pages = value as usize,
    },
    LimitRow {
        key: "catalogue_kib",
        default: Is(16_384),
        least: 1,
        most: 65_536,
        meaning: "Maximum size of all tools of the server together, in KiB.",
        example: "1024",
        get: |limits| Some(limits.catalogue_bytes as u64 / 1024),
        set: |limits, value| limits.catalogue_bytes = value as usize * 1024,
    },
    LimitRow {
        key: "description_kib",
        default: Is(2),
        least: 1,
        most: 64,
        meaning: "Maximum size of a tool description, in KiB. Longer descriptions are truncated.",
        example: "4",
        get: |limits| Some(limits.description_bytes as u64 / 1024),
        set: |limits, value| limits.description_bytes = value as usize * 1024,
    },
    LimitRow {
        key: "schema_depth",
        default: Is(32),
        least: 1,
        most: 64,
        meaning: "Maximum nesting depth of a tool's schema. Tools with deeper schemas are left out.",
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
            message_bytes: Self::MAX_MESSAGE_BYTES,
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

/// Prints the names of the environment variables without their values, because the values may be secrets.
impl fmt::Debug for ChildCommand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, args, env, directory } = self;
        let names: Vec<&String> = env.keys().collect();
        formatter
            .debug_struct("ChildCommand")
            .field("command", command)
            .field("args", args)
            .field("env", &names)
            .field("directory", directory)
            .finish()
    }
}

impl fmt::Debug for HttpAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.headers.keys().collect();
        let url = self.display_url();
        formatter.debug_struct("HttpAddress").field("url", &url).field("headers", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 16: the `Debug` output of a configuration contains no secrets.
    #[test]
    fn i5_debug_output_contains_no_secrets() {
        let env = || BTreeMap::from([("TOKEN".to_owned(), "secret-value".to_owned())]);
        let child = ChildCommand { command: "server".to_owned(), env: env(), ..ChildCommand::default() };
        let url = "https://me:secret-value@example.com/mcp?key=secret-value".to_owned();
        let printed = format!("{child:?} {:?}", HttpAddress { url, headers: env() });
        assert!(
            printed.contains("TOKEN") && printed.contains("example.com/mcp") && !printed.contains("secret-value"),
            "{printed}"
        );
    }
}
