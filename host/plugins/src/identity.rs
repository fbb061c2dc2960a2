//! The identity of a plugin: its name and the digest of its component, as shown in errors, events and log lines.

use agent_core::message::Digest;
use std::fmt;

/// A plugin's name and the digest of its component. The identity is displayed as `name@0123456789ab`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginIdentity {
    /// Name of the plugin from its manifest. If the component has no manifest, the plugin has the name of the
    /// component's file without the extension.
    pub name: String,
    /// SHA-256 of the component's bytes.
    pub digest: Digest,
}

impl fmt::Display for PluginIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.digest.short())
    }
}

/// A kind of plugin (P1), including the optional per-step export of a context builder (L2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Provides tools that the model can call.
    Tool,
    /// Builds the prompt at the start of a turn.
    ContextBuilder,
    /// Adds sections to the prompt of each step of a turn.
    StepContext,
    /// Accepts or rejects the model's outputs.
    OutputValidator,
    /// Decides how media items are sent to the model provider.
    MediaPolicy,
}

impl Kind {
    /// All plugin kinds.
    pub const ALL: [Kind; 5] =
        [Kind::Tool, Kind::ContextBuilder, Kind::StepContext, Kind::OutputValidator, Kind::MediaPolicy];

    /// Name of the kind's interface in the WIT contract.
    pub fn interface(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::ContextBuilder => "context-builder",
            Kind::StepContext => "step-context",
            Kind::OutputValidator => "output-validator",
            Kind::MediaPolicy => "media-policy",
        }
    }

    /// The authority of calls to plugins of this kind (P5). Even if one component exports several kinds, the authority
    /// of a call depends only on the kind that is called.
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

/// Whether a call may access resources outside of its instance (P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// The call may use clocks, random numbers, logging and the capabilities that are granted.
    Granted,
    /// The call cannot access anything, so it is a pure function. The functions of WASI return constant inputs: time
    /// does not advance, and random numbers repeat.
    Inert,
}
