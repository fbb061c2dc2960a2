//! The options of commands that share plugins.

use agent_registry::{Downgrade, Overwrite, PlainHttp, Reference, Source};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use url::Url;

/// How registries are asked.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectionArguments {
    /// Talk to other machines without TLS, too; this one is never asked with it
    #[arg(long)]
    plain_http: bool,
    /// A token server of another owner that the registry's login may be sent to when the registry names it; can be repeated
    #[arg(long = "token-server", value_name = "URL", value_parser = token_server)]
    pub(crate) token_servers: Vec<Url>,
}

impl ConnectionArguments {
    /// Whether TLS may be missing.
    pub(crate) fn plain(&self) -> PlainHttp {
        if self.plain_http { PlainHttp::Allowed } else { PlainHttp::LoopbackOnly }
    }
}

/// In which folder, and by whose word.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FolderArguments {
    /// The folder with the plugins and their plugins.lock
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// An agent's configuration, for its folder and its [sharing]: a file (agent.toml), or the name of an agent in this folder
    #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(super::agent))]
    pub(crate) agent: Option<PathBuf>,
    /// How.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// What `plugin push` takes.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// Where to: HOST/PATH[:TAG]; without a tag under the plugin's version
    #[arg(value_name = "REF", value_parser = reference)]
    pub(crate) reference: Reference,
    /// A component (*.wasm)
    pub(crate) file: PathBuf,
    /// Sign it with this key, which `key new` has made
    #[arg(long, value_name = "KEY")]
    pub(crate) sign: Option<PathBuf>,
    /// Add it to this index, which `plugin search` reads: HOST/PATH
    #[arg(long, value_name = "REF", value_parser = reference)]
    pub(crate) index: Option<Reference>,
    /// Replace a version that is there with another content
    #[arg(long)]
    overwrite: bool,
    /// How.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

impl PushArguments {
    /// Whether it may.
    pub(crate) fn overwrite(&self) -> Overwrite {
        if self.overwrite { Overwrite::Asked } else { Overwrite::Never }
    }
}

/// What `plugin sign` takes.
#[derive(Debug, Args)]
pub(crate) struct SignArguments {
    /// What to sign: HOST/PATH:TAG, or with its digest; or a component that was built here, a file (*.wasm)
    #[arg(value_name = "REF|PATH", value_parser = source)]
    pub(crate) reference: Source,
    /// The key, which `key new` has made
    #[arg(long, value_name = "KEY")]
    pub(crate) key: PathBuf,
    /// How.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// What `plugin add` takes.
#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    /// From where: HOST/PATH[:TAG], an address (https://…), a file or a folder; without one, all that is locked and not there
    #[arg(value_name = "REF|PATH|URL", value_parser = source)]
    pub(crate) source: Option<Source>,
    /// Put it in the place of a file that nobody has locked, that was changed, or that is locked to another place
    #[arg(long)]
    pub(crate) replace: bool,
    /// Take a plugin of the same place that is older than the locked one, is the same version with other content, or is no longer
    /// signed
    #[arg(long)]
    allow_downgrade: bool,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

impl AddArguments {
    /// Whether a person has asked for what is not newer.
    pub(crate) fn downgrade(&self) -> Downgrade {
        if self.allow_downgrade { Downgrade::Allowed } else { Downgrade::Refused }
    }
}

/// What `plugin update` takes.
#[derive(Debug, Args)]
pub(crate) struct UpdateArguments {
    /// These plugins only
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Change nothing, say what is newer, and end with 1 where something is
    #[arg(long)]
    pub(crate) check: bool,
    /// Take plugins that are older than the locked ones, are the same versions with other content, or are no longer signed
    #[arg(long)]
    allow_downgrade: bool,
    /// Where they are.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

impl UpdateArguments {
    /// Whether a person has asked for what is not newer.
    pub(crate) fn downgrade(&self) -> Downgrade {
        if self.allow_downgrade { Downgrade::Allowed } else { Downgrade::Refused }
    }
}

/// What `plugin remove` takes.
#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// The plugin's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Take it out of the lock alone: its file stays, and is yours
    #[arg(long)]
    pub(crate) keep_file: bool,
    /// Where it is.
    #[command(flatten)]
    pub(crate) folder: FolderArguments,
}

/// What `plugin search` takes.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    /// The words; without any, all plugins of the index
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// The index: HOST/PATH
    #[arg(long, value_name = "REF", value_parser = reference)]
    pub(crate) index: Reference,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Print one JSON line per plugin
    #[arg(long)]
    pub(crate) json: bool,
    /// How.
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
}

/// Commands on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key pair that signs plugins: FILE for you alone, and its public half beside it, FILE with the ending .pub
    New {
        /// Where to
        #[arg(value_name = "FILE", default_value = "agent-host.key")]
        file: PathBuf,
        /// Let whoever can read the file sign; else a password is asked for, or read from AGENT_HOST_KEY_PASSWORD
        #[arg(long)]
        no_password: bool,
    },
}

fn token_server(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "write it with its scheme, such as https://auth.example".to_owned())
}

fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|error| error.to_string())
}

fn source(text: &str) -> Result<Source, String> {
    let no_file = if text.contains("://") { "" } else { "; and no file or folder here has this name" };
    Source::parse(text).map_err(|error| format!("{error}{no_file}"))
}
