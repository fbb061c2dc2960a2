//! Who a plugin is: its name and the digest of its bytes, as they stand in every error, event and log line.

use agent_core::message::Digest;
use std::fmt;

/// A plugin's name with the digest of its component. Shown as `name@0123456789ab`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginIdentity {
    /// From the manifest, else the file's stem.
    pub name: String,
    /// SHA-256 of the component's bytes.
    pub digest: Digest,
}

impl fmt::Display for PluginIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.digest.short())
    }
}

/// One of the kinds of plugin (P1), and the optional per-step export beside the context builder (L2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Holds tools.
    Tool,
    /// Makes the prompt with which a turn begins.
    ContextBuilder,
    /// Adds to the prompt of single steps.
    StepContext,
    /// Accepts or rejects outputs.
    OutputValidator,
    /// Decides what the provider sees of media.
    MediaPolicy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Tool, Kind::ContextBuilder, Kind::StepContext, Kind::OutputValidator, Kind::MediaPolicy];

    /// The name of its interface in the contract.
    pub fn interface(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::ContextBuilder => "context-builder",
            Kind::StepContext => "step-context",
            Kind::OutputValidator => "output-validator",
            Kind::MediaPolicy => "media-policy",
        }
    }

    /// What calls of this kind may reach (P5): it belongs to the kind, also where one component exports several.
    pub fn authority(self) -> Authority {
        match self {
            Kind::Tool | Kind::ContextBuilder | Kind::StepContext => Authority::Granted,
            Kind::OutputValidator | Kind::MediaPolicy => Authority::Inert,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.interface())
    }
}

/// What a call may reach outside its instance (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Clocks, random numbers and logging, and what is granted.
    Granted,
    /// Nothing: a pure function. Its WASI answers, but from nowhere: time stands still, random numbers repeat.
    Inert,
}
