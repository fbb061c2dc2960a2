//! Arguments of the commands `serve` and `token`.

use super::sharing::{RegistryAccess, token_server};
use super::user_name;
use agent_config::grants::Grant;
use agent_registry::PlainHttp;
use agent_serve::{Endpoint, Right, TlsFiles};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use url::Url;

/// Options that select the agents of a process that keeps running.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunningAgents {
    /// Agent to run: a file (agent.toml), or the name of an agent in this folder; repeat for more agents
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
    pub(crate) agent: Vec<PathBuf>,
    /// Folder that contains the plugins (*.wasm), if there is no agent's file
    #[arg(long, value_name = "DIR", conflicts_with = "agent")]
    pub(crate) plugins: Option<PathBuf>,
    /// PROVIDER/MODEL, `offline` or `scripted:FILE`, instead of the models in the agents' files
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Grant something to a plugin, as for a session
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse, conflicts_with = "agent")]
    pub(crate) grant: Vec<Grant>,
}

/// Options for plugins that this machine does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct FetchArguments {
    /// Fetch the plugins that plugins.lock names, at the start and whenever it changes, and the versions with which turns began
    /// on other machines
    #[arg(long)]
    fetch_plugins: bool,
    /// Host of a registry to which --fetch-plugins may connect without TLS, such as registry.local; can be repeated. Connections
    /// to this machine never use TLS
    #[arg(long, value_name = "HOST", value_parser = host_name, requires = "fetch_plugins")]
    registry_plain_http: Vec<String>,
    /// Token server that may receive the login for the registry of --fetch-plugins, although someone other than the registry's
    /// owner runs the server; can be repeated
    #[arg(long, value_name = "URL", value_parser = token_server, requires = "fetch_plugins")]
    registry_token_server: Vec<Url>,
}

impl FetchArguments {
    /// Returns how the process may connect to registries. `None` if no plugins are fetched.
    pub(crate) fn access(&self) -> Option<RegistryAccess> {
        let FetchArguments { fetch_plugins, registry_plain_http, registry_token_server } = self;
        fetch_plugins.then(|| RegistryAccess {
            plain_http: PlainHttp::Hosts(registry_plain_http.clone()),
            token_servers: registry_token_server.clone(),
        })
    }
}

fn host_name(text: &str) -> Result<String, String> {
    let url = Url::parse(&format!("http://{text}")).ok();
    let is_name = url.is_some_and(|url| url.path() == "/" && url.username().is_empty() && !text.ends_with('/'));
    let advice = "write the name of a host, such as registry.local";
    if is_name { Ok(text.to_owned()) } else { Err(advice.to_owned()) }
}

/// The option that selects NATS servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct NatsArguments {
    /// NATS servers with JetStream that announce work to other processes: nats://HOST:4222, or several hosts after commas. The
    /// password or token is in NATS_PASSWORD, or the whole address with it is in AGENT_HOST_NATS
    // The value is parsed later, because an error of clap would print it, and it may contain a password.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) nats: Option<String>,
    /// File with which the process signs in at NATS: a credentials file, or the seed of a user's NKey. It is read again for each
    /// connection
    #[arg(long, value_name = "FILE", env = "AGENT_HOST_NATS_CREDENTIALS", hide_env_values = true)]
    pub(crate) nats_credentials: Option<PathBuf>,
    /// Certificate of this process in PEM format, for NATS servers that ask clients for one. It is read again for each connection
    #[arg(long, value_name = "FILE", env = "AGENT_HOST_NATS_CERTIFICATE", hide_env_values = true)]
    pub(crate) nats_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", env = "AGENT_HOST_NATS_KEY", hide_env_values = true)]
    pub(crate) nats_key: Option<PathBuf>,
}

/// Options of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    /// The agents.
    #[command(flatten)]
    pub(crate) agents: RunningAgents,
    /// File with the digests of the tokens that several machines accept, instead of the tokens in the data folder;
    /// `agent-host token create NAME --tokens FILE` creates it
    #[arg(long, value_name = "FILE", env = "AGENT_HOST_TOKENS", hide_env_values = true)]
    pub(crate) tokens: Option<PathBuf>,
    /// Show at this address whether the worker runs (/health) and accepts work (/ready), and its metrics (/metrics, with a
    /// token that has the right `observe`)
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) health: Option<SocketAddr>,
    /// NATS servers.
    #[command(flatten)]
    pub(crate) nats: NatsArguments,
    /// Plugins that this machine does not have.
    #[command(flatten)]
    pub(crate) fetch: FetchArguments,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The agents.
    #[command(flatten)]
    pub(crate) agents: RunningAgents,
    /// Address of the server; without TLS, an address on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8484", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Certificate for TLS, in PEM format; a changed file is used after a few seconds
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM format
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with the digests of the tokens that several machines accept, instead of the tokens in the data folder;
    /// `agent-host token create NAME --tokens FILE` creates it
    #[arg(long, value_name = "FILE", env = "AGENT_HOST_TOKENS", hide_env_values = true)]
    pub(crate) tokens: Option<PathBuf>,
    /// Listen on this Unix socket, which only you can use, instead of an address
    #[arg(long, value_name = "PATH", conflicts_with_all = ["listen", "tls_certificate"])]
    pub(crate) socket: Option<PathBuf>,
    /// Further name under which clients reach the server, for example through a proxy
    #[arg(long, value_name = "NAME")]
    pub(crate) host_name: Vec<String>,
    /// Origin of a web page that may use the server, such as https://console.example.com
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) origin: Vec<String>,
    /// NATS servers.
    #[command(flatten)]
    pub(crate) nats: NatsArguments,
    /// Plugins that this machine does not have.
    #[command(flatten)]
    pub(crate) fetch: FetchArguments,
}

/// Options of `token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
    /// File with the digests of the tokens that several machines accept, instead of the tokens in the data folder
    #[arg(long, value_name = "FILE", global = true, env = "AGENT_HOST_TOKENS", hide_env_values = true)]
    pub(crate) tokens: Option<PathBuf>,
}

/// Commands on the tokens of the server.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it; it is shown only once
    Create {
        /// Name of the token
        name: String,
        /// What the token allows; repeat for several rights
        #[arg(long = "right", value_name = "RIGHT", value_enum, required = true)]
        rights: Vec<RightName>,
        /// Agent that the token may use (default: all agents); repeat for several agents
        #[arg(long, value_name = "NAME")]
        agent: Vec<String>,
        /// User for whom the token works: it sees only sessions of this user
        // The argument's id must differ from the id of a turn's `--user`.
        #[arg(long = "user", id = "token_user", value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
    },
    /// List the tokens, without the tokens themselves
    List,
    /// Revoke a token; running servers refuse it within a second
    Revoke {
        /// Name of the token
        name: String,
    },
}

/// Names of rights on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RightName {
    /// Read agents, sessions, messages and events
    Read,
    /// Begin sessions and turns, answer questions and requests to services, cancel turns
    Talk,
    /// Decide about approvals and about calls whose outcome is unknown
    Approve,
    /// Delete sessions and memories, roll plugins back
    Administer,
    /// Read the metrics of the server
    Observe,
}

impl From<RightName> for Right {
    fn from(name: RightName) -> Self {
        match name {
            RightName::Read => Self::Read,
            RightName::Talk => Self::Talk,
            RightName::Approve => Self::Approve,
            RightName::Administer => Self::Administer,
            RightName::Observe => Self::Observe,
        }
    }
}

impl ServeArguments {
    /// Returns where the server accepts connections. An address of another machine's network needs TLS.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, String> {
        if let Some(socket) = &self.socket {
            return Ok(Endpoint::Unix(socket.clone()));
        }
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
                Ok(Endpoint::Tls(self.listen, files))
            }
            _ if self.listen.ip().is_loopback() => Ok(Endpoint::Tcp(self.listen)),
            _ => Err("without TLS, the server listens only on this machine, such as 127.0.0.1:8484; for other machines, \
                      add --tls-certificate FILE and --tls-key FILE, or let a proxy with TLS forward requests to the server"
                .to_owned()),
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:8484".to_owned())
}
