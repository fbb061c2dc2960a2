//! Why a file is no plugin.

use crate::compiler::{CodeTooLarge, CompileTime};
use crate::failure::CallFailure;
use crate::identity::{Kind, PluginIdentity};
use crate::imports::InterfaceProblem;
use crate::manifest::ManifestError;
use crate::plain::LeftOut;
use crate::scan::NotAComponent;
use crate::store::PluginStoreError;
use crate::structure::StructureProblem;
use agent_core::message::Digest;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that cannot be a plugin. The messages complete "`file`: …".
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Reading failed.
    #[error("it cannot be read: {0}{advice}", advice = advice(.0))]
    Read(#[from] std::io::Error),
    /// It is too large.
    #[error("it has {size} bytes; a component may have at most {most} (`component_mib` under [host.limits])")]
    TooLarge {
        /// Its bytes, as far as they are known.
        size: u64,
        /// The host's limit.
        most: u64,
    },
    /// It is something else.
    #[error(transparent)]
    NotAComponent(#[from] NotAComponent),
    /// Its structure is more than this host parses.
    #[error(transparent)]
    Structure(#[from] StructureProblem),
    /// It needs or exports an interface that this host does not have.
    #[error(transparent)]
    Interface(#[from] InterfaceProblem),
    /// Its manifest is broken.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// It is a component, but there is nothing in it to call.
    #[error(
        "it exports none of the four plugin kinds (tool, context-builder, output-validator, media-policy of \
         agent-host:plugin@0.1.x) and no function that can be a tool{}",
        reasons(left_out)
    )]
    NothingOffered {
        /// What it exports, and why that is no tool.
        left_out: Vec<LeftOut>,
    },
    /// Compiling failed.
    #[error("it cannot be compiled: {reason}")]
    Compile {
        /// What the compiler said.
        reason: String,
    },
    /// Compiling took too long.
    #[error(transparent)]
    CompileTime(#[from] CompileTime),
    /// Its compiled code is too large.
    #[error(transparent)]
    CodeTooLarge(#[from] CodeTooLarge),
    /// It has ended the process that examines components, and is not tried again.
    #[error(
        "it is in quarantine: {reason}; it is tried again when its file, this program or [host.limits] changes, or after \
         `agent-host plugin quarantine --release {digest}`"
    )]
    Quarantined {
        /// The component.
        digest: Digest,
        /// What it did.
        reason: String,
    },
    /// An import has another type than this host gives it.
    #[error("its imports do not fit: {reason}; rebuild it against agent-host:plugin@0.1.x and WASI 0.2")]
    Link {
        /// What does not fit.
        reason: String,
    },
    /// An export has another type than the contract.
    #[error("its export {kind} does not fit the contract: {reason}; rebuild it against agent-host:plugin@0.1.x")]
    Export {
        /// Which export.
        kind: Kind,
        /// What does not fit.
        reason: String,
    },
    /// It could not be started, or its definitions failed.
    #[error("it cannot be started: {0}")]
    Start(#[source] CallFailure),
    /// What it says about its tools is not allowed.
    #[error("the tool definitions of {plugin} are not usable: {reason}")]
    Definitions {
        /// Whose.
        plugin: Arc<PluginIdentity>,
        /// Which tool, and why.
        reason: String,
    },
    /// Another plugin has its name.
    #[error("its name `{name}` is taken by {}; rename one of them in its plugin.toml", other.display())]
    DuplicateName {
        /// The name.
        name: String,
        /// The file that has it.
        other: PathBuf,
    },
    /// It may not serve where it is.
    #[error("{0}")]
    Refused(String),
    /// It cannot be kept.
    #[error(transparent)]
    Store(#[from] PluginStoreError),
    /// The host gave up.
    #[error("the host stopped loading it: {0}")]
    Stopped(String),
}

impl LoadError {
    /// Whether the same bytes will be refused by this host whenever they are tried; else it may go better another time.
    pub fn is_lasting(&self) -> bool {
        match self {
            LoadError::TooLarge { .. }
            | LoadError::NotAComponent(_)
            | LoadError::Structure(_)
            | LoadError::CodeTooLarge(_)
            | LoadError::Interface(_)
            | LoadError::Manifest(_)
            | LoadError::NothingOffered { .. }
            | LoadError::Link { .. }
            | LoadError::Export { .. }
            | LoadError::Definitions { .. }
            | LoadError::DuplicateName { .. } => true,
            LoadError::Start(failure) => {
                matches!(failure, CallFailure::Trap { .. } | CallFailure::InvalidResult { .. })
            }
            // A compiler may have been stopped by a machine that is full.
            LoadError::Compile { .. }
            | LoadError::CompileTime(_)
            | LoadError::Quarantined { .. }
            | LoadError::Read(_)
            | LoadError::Refused(_)
            | LoadError::Store(_)
            | LoadError::Stopped(_) => false,
        }
    }
}

fn reasons(left_out: &[LeftOut]) -> String {
    let some = left_out.iter().take(4).map(|function| format!("; {function}"));
    some.collect::<String>()
        + "; build it with the SDK, from the contract in wit/, or with exports that take and give data"
}

/// What to do about a file that cannot be read.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; `agent-host plugin build` makes components of plugin projects",
        std::io::ErrorKind::PermissionDenied => "; let the user read it who runs the host",
        _ => "",
    }
}
