//! The reasons why a file cannot be loaded as a plugin.

use super::compiler::{CodeTooLarge, CompileTimeout};
use super::generic::SkippedExport;
use super::plugin_store::PluginStoreError;
use crate::binary::imports::InterfaceProblem;
use crate::binary::scan::NotAComponent;
use crate::binary::structure::StructureProblem;
use crate::execution::failure::CallFailure;
use crate::grants::manifest::ManifestError;
use crate::identity::{Kind, PluginIdentity};
use agent_core::message::Digest;
use std::path::PathBuf;
use std::sync::Arc;

/// The reason why a component cannot be loaded. The caller shows the message after the file name: "`file`: …".
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}{advice}", advice = advice(.0))]
    Read(#[from] std::io::Error),
    /// The component is larger than the host allows.
    #[error("it has {size} bytes; a component may have at most {most} (`component_mib` under [host.limits])")]
    TooLarge {
        /// Size of the component in bytes.
        size: u64,
        /// Maximum allowed size of a component in bytes.
        most: u64,
    },
    /// The bytes are not a WebAssembly component.
    #[error(transparent)]
    NotAComponent(#[from] NotAComponent),
    /// The structure of the component exceeds the limits on nesting, types, imports or exports.
    #[error(transparent)]
    Structure(#[from] StructureProblem),
    /// The component imports or exports an interface that this host does not have.
    #[error(transparent)]
    Interface(#[from] InterfaceProblem),
    /// The manifest in the component is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The component exports no function that the host can call.
    #[error(
        "it exports none of the four plugin kinds (tool, context-builder, output-validator, media-policy of \
         agent-host:plugin@0.1.x) and no function that can be offered as a tool{}",
        reasons(skipped)
    )]
    NothingOffered {
        /// The exported functions, each with the reason why it is not a tool.
        skipped: Vec<SkippedExport>,
    },
    /// The compiler refused the component, or the compiler process ended without a result.
    #[error("it cannot be compiled: {reason}")]
    Compile {
        /// The error message of the compiler or of the compiler process.
        reason: String,
    },
    /// Compiling took longer than allowed.
    #[error(transparent)]
    CompileTimeout(#[from] CompileTimeout),
    /// The compiled code is larger than allowed.
    #[error(transparent)]
    CodeTooLarge(#[from] CodeTooLarge),
    /// The component crashed the compiler process earlier, so the host does not compile it again.
    #[error(
        "it is in quarantine: {reason}; the host compiles it again when the file, this program or [host.limits] changes, or \
         after `agent-host plugin quarantine --release {digest}`"
    )]
    Quarantined {
        /// Digest of the component that is in quarantine.
        digest: Digest,
        /// Explains how compiling the component failed.
        reason: String,
    },
    /// The type of an import differs from the type of the host's implementation.
    #[error("its imports do not match this host: {reason}; rebuild it against agent-host:plugin@0.1.x and WASI 0.2")]
    Link {
        /// The name of the import, and the difference between the type of the import and the type of the
        /// host's implementation.
        reason: String,
    },
    /// The type of an export differs from its type in the contract.
    #[error("its export {kind} does not match the contract: {reason}; rebuild it against agent-host:plugin@0.1.x")]
    Export {
        /// The plugin kind whose export has the wrong type.
        kind: Kind,
        /// The difference between the type of the export and the type in the contract.
        reason: String,
    },
    /// The component failed when the host started it or asked for its tool definitions.
    #[error("it cannot be started: {0}")]
    Start(#[source] CallFailure),
    /// The component returned invalid tool definitions.
    #[error("the tool definitions of {plugin} are not valid: {reason}")]
    Definitions {
        /// The plugin that returned the tool definitions.
        plugin: Arc<PluginIdentity>,
        /// The name of the tool, and the problem with its definition.
        reason: String,
    },
    /// Another plugin in the plugin directory has the same name.
    #[error("its name `{name}` is already used by {}; rename one of them in its plugin.toml", other.display())]
    DuplicateName {
        /// The name that both plugins have.
        name: String,
        /// The file of the other plugin.
        other: PathBuf,
    },
    /// The verifier does not allow the component to be used.
    #[error("{0}")]
    Refused(String),
    /// The component cannot be read from or written to the plugin store.
    #[error(transparent)]
    Store(#[from] PluginStoreError),
    /// A task of the host failed while it loaded the component.
    #[error("the host stopped loading it: {0}")]
    Stopped(String),
}

impl LoadError {
    /// Whether this host refuses the component at every attempt. False if a later attempt may succeed.
    pub fn is_permanent(&self) -> bool {
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
            // The operating system may have ended the compiler process because the machine ran out of memory.
            LoadError::Compile { .. }
            | LoadError::CompileTimeout(_)
            | LoadError::Quarantined { .. }
            | LoadError::Read(_)
            | LoadError::Refused(_)
            | LoadError::Store(_)
            | LoadError::Stopped(_) => false,
        }
    }
}

fn reasons(skipped: &[SkippedExport]) -> String {
    let first = skipped.iter().take(4).map(|function| format!("; {function}"));
    first.collect::<String>()
        + "; build it with the SDK, from the contract in wit/, or with exports that take and return data"
}

/// The last part of the message for a file that cannot be read: advice for the user.
fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "; `agent-host plugin build` builds a component from a plugin project",
        std::io::ErrorKind::PermissionDenied => "; allow the user that runs the host to read it",
        _ => "",
    }
}
