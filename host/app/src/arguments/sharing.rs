//! Command-line arguments of `key` and of the subcommands of `plugin` that share plugins.

use agent_registry::{Downgrade, Overwrite, PlainHttp, Reference, Source};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use url::Url;

/// Options for connections to registries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectionArguments {
    /// Allow connections without TLS to other machines; connections to this machine never use TLS
    #[arg(long)]
    plain_http: bool,
    /// Token server that may receive the login for the registry, although someone other than the registry's owner runs
    /// the server; can be repeated
    #[arg(long = "token-server", value_name = "URL", value_parser = token_server)]
    token_servers: Vec<Url>,
}

impl ConnectionArguments {
    /// Returns how the command may connect to registries.
    pub(crate) fn access(&self) -> RegistryAccess {
        let plain_http = if self.plain_http { PlainHttp::Allowed } else { PlainHttp::LoopbackOnly };
        RegistryAccess { plain_http, token_servers: self.token_servers.clone() }
    }
}

/// How a process may connect to registries.
#[derive(Clone, Debug)]
pub(crate) struct RegistryAccess {
    pub(crate) plain_http: PlainHttp,
    /// Servers that may receive the login for a registry, although someone other than the registry's owner runs them.
    pub(crate) token_servers: Vec<Url>,
}

/// Options that select the plugin folder and its trust settings.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FolderArguments {
    /// Folder that contains the plugins and plugins.lock (default: the folder `plugins`, or else the one of the user-wide
    /// configuration)
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// Agent configuration with the plugin folder and `[sharing]`: a file (agent.toml), or an agent's name in
    /// this folder
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
    pub(crate) agent: Option<PathBuf>,
    /// Options of the connection to the registry.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// Arguments of `plugin push`.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// Destination HOST/PATH[:TAG] (default tag: the plugin's version)
    #[arg(value_name = "REF", value_parser = reference)]
    pub(crate) reference: Reference,
    /// Component file of the plugin (*.wasm)
    pub(crate) file: PathBuf,
    /// Sign with this key, created by `key new`
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// Add the plugin to this index (HOST/PATH), which `plugin search` reads
    #[arg(long, value_name = "REF", value_parser = reference)]
    pub(crate) index: Option<Reference>,
    /// Replace an existing version that has different content
    #[arg(long)]
    overwrite: bool,
    /// Options of the connection to the registry.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

impl PushArguments {
    /// Returns whether an existing version may be replaced.
    pub(crate) fn overwrite(&self) -> Overwrite {
        if self.overwrite { Overwrite::Allowed } else { Overwrite::Never }
    }
}

/// Arguments of `plugin sign`.
#[derive(Debug, Args)]
pub(crate) struct SignArguments {
    /// Plugin to sign: HOST/PATH:TAG, HOST/PATH with a digest, or a component file (*.wasm)
    #[arg(value_name = "REF|PATH", value_parser = source)]
    pub(crate) reference: Source,
    /// Signing key, created by `key new`
    #[arg(long, value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// Options of the connection to the registry.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// Arguments of `plugin add`.
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// Source of the plugin: HOST/PATH[:TAG], a URL (https://…), a file or a folder (default: fetch all plugins of
    /// plugins.lock whose files are missing)
    #[arg(value_name = "REF|PATH|URL", value_parser = source)]
    pub(crate) source: Option<Source>,
    /// Replace a file that was modified, that has no entry in the lock file, or whose entry names another source
    #[arg(long)]
    pub(crate) replace: bool,
    /// Accept a plugin that is older than the version in plugins.lock, has other content for the same version, or is no
    /// longer signed
    #[arg(long)]
    allow_downgrade: bool,
    /// Folder that the plugin is added to.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

impl AddArguments {
    /// Returns whether a plugin may be replaced by a version that is not newer.
    pub(crate) fn downgrade(&self) -> Downgrade {
        if self.allow_downgrade { Downgrade::Allowed } else { Downgrade::Refused }
    }
}

/// Arguments of `plugin update`.
#[derive(Debug, Args)]
pub(crate) struct UpdateArguments {
    /// Names of the plugins to update (default: all)
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Change nothing, and show newer versions and what they change; the exit code is 1 if there are newer versions
    #[arg(long)]
    pub(crate) check: bool,
    /// With --check, print one JSON line per plugin
    #[arg(long, requires = "check")]
    pub(crate) json: bool,
    /// Accept plugins that are older than the versions in plugins.lock, have other content for the same version, or are
    /// no longer signed
    #[arg(long)]
    allow_downgrade: bool,
    /// Folder that contains the plugins.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

impl UpdateArguments {
    /// Returns whether a plugin may be replaced by a version that is not newer.
    pub(crate) fn downgrade(&self) -> Downgrade {
        if self.allow_downgrade { Downgrade::Allowed } else { Downgrade::Refused }
    }
}

/// Arguments of `plugin remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// Name of the plugin
    #[arg(id = "locked", value_name = "NAME")]
    pub(crate) name: String,
    /// Only remove the plugin's entry from plugins.lock, and keep its file
    #[arg(long)]
    pub(crate) keep_file: bool,
    /// Folder that contains the plugin.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

/// Arguments of `plugin search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    /// Search words (default: list all plugins of the index)
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Index to search: HOST/PATH (default: the index of the standard plugins that were installed with this program)
    #[arg(long, value_name = "REF", value_parser = reference)]
    pub(crate) index: Option<Reference>,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Print one JSON line per plugin
    #[arg(long)]
    pub(crate) json: bool,
    /// Options of the connection to the registry.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// Arguments of `plugin index`.
#[derive(Debug, Args)]
pub(crate) struct IndexArguments {
    /// Folder with components (*.wasm)
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Write the index to this file instead of plugins.index.json in the folder; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Commands on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key pair for signing plugins: the private key FILE, and the public key next to it with the
    /// extension .pub
    New {
        /// File for the private key
        #[arg(value_name = "FILE", default_value = "agent-host.key")]
        file: PathBuf,
        /// Don't protect the key with a password (default: ask for one, or read AGENT_HOST_KEY_PASSWORD)
        #[arg(long)]
        no_password: bool,
    },
}

pub(crate) fn token_server(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "write a URL with its scheme, such as https://auth.example".to_owned())
}

fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|error| error.to_string())
}

fn source(text: &str) -> Result<Source, String> {
    let file_hint = if text.contains("://") { "" } else { "; and no file or folder has this name" };
    Source::parse(text).map_err(|error| format!("{error}{file_hint}"))
}
