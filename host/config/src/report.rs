//! The trait through which this crate informs its caller while it builds agents: about warnings, about progress, and
//! about values that must stay secret.

use crate::text::one_line;
use agent_core::message::Digest;
use agent_core::redaction::Redaction;
use agent_plugins::LoadEvent;
use std::path::PathBuf;

/// Receives reports while agents are built. The caller decides whether to show, log or ignore the reports.
pub trait Reporter: Send + Sync {
    /// Reports a part of the configuration that is probably a mistake. The agents are built in spite of the warning.
    fn warn(&self, warning: &Warning);

    /// Reports the progress of loading a plugin.
    fn loading(&self, event: &LoadEvent);

    /// Reports that all plugins of a plugin directory have been loaded.
    fn loaded(&self);

    /// Asks the caller to hide the given values in all text that the caller shows from now on.
    fn keep_secret(&self, secrets: &Redaction);
}

/// A [`Reporter`] that ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn warn(&self, _: &Warning) {}
    fn loading(&self, _: &LoadEvent) {}
    fn loaded(&self) {}
    fn keep_secret(&self, _: &Redaction) {}
}

/// A part of the configuration that is probably a mistake. The message is one sentence without a full stop, and may
/// contain text from plugins and servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// No model is set in the options or in the file, so the built-in `offline` model is used although another model
    /// is available.
    #[error(
        "no model is named, so the built-in model `offline` is used; it is not a language model. \
         {key_variable} is set, so you can use --model {model}"
    )]
    UnnamedModel {
        /// Environment variable that contains the key of the model's provider.
        key_variable: &'static str,
        /// Name of the available model, as `PROVIDER/MODEL`.
        model: String,
    },
    /// The configuration file of a delegate does not set a model.
    #[error(
        "`{}` sets no `model`, so this agent uses the built-in model `offline`; it is not a language model",
        path.display()
    )]
    DelegateWithoutModel {
        /// Path of the delegate's file.
        path: PathBuf,
    },
    /// The file of a delegate sets limits for the host, but only the file that the host is started with can set
    /// such limits.
    #[error(
        "{location}: `[host.limits]` has no effect here; limits for the host are read from the file that the host is started \
         with, so write them there"
    )]
    HostLimitsOfDelegate {
        /// File and line of the table in the delegate's file.
        location: String,
    },
    /// The plugin directory contains no plugin.
    #[error("there are no plugins (*.wasm) in `{}`; --build builds the plugin projects in the folder", folder.display())]
    NoPlugins {
        /// Path of the plugin directory.
        folder: PathBuf,
    },
    /// The version of a plugin in the plugin directory was rolled back, so an earlier version of the plugin is used.
    #[error(
        "{plugin} {} is rolled back, so {} is used instead; `agent-host plugin rollback {plugin} --undo` uses the \
         version in the folder again",
        from.short(),
        to.as_ref().map(Digest::short).unwrap_or_default()
    )]
    RolledBack {
        /// Name of the plugin whose version was rolled back.
        plugin: String,
        /// Digest of the version in the plugin directory, which is not used.
        from: Digest,
        /// Digest of the version that is used. None if no version of the plugin is loaded.
        to: Option<Digest>,
    },
    /// A plugin is not used because one of its tools has a name that is already taken.
    #[error("the plugin `{plugin}` is left out: {reason}")]
    PluginLeftOut {
        /// Name of the plugin that is not used.
        plugin: String,
        /// Description with the name of the tool and the source of the other tool that has this name.
        reason: String,
    },
    /// A plugin version cannot be used, and the previous version stays in use.
    #[error("{subject}: {reason}\n  the previous version stays in use")]
    VersionRefused {
        /// Name of the plugin, or path of the file that contains the plugin's new version.
        subject: String,
        /// The reason why the version cannot be used.
        reason: String,
    },
    /// A new plugin version crashed too often and is rolled back.
    #[error(
        "{} crashed too often, so it is rolled back from {} to {} until its file changes",
        one_line(plugin, 64),
        from.short(),
        to.short()
    )]
    CrashedTooOften {
        /// Name of the plugin that crashed.
        plugin: String,
        /// Digest of the version that crashed.
        from: Digest,
        /// Digest of the version that is used from now on.
        to: Digest,
    },
    /// The trial results of new plugin versions could not be stored, so the trials start again in the next process.
    #[error("the results of plugin trials could not be stored, so the trials start again next time: {reason}")]
    TrialsNotCounted {
        /// The reason why the results could not be stored.
        reason: String,
    },
    /// A grant has no effect or only a partial effect, because the plugin's manifest does not request it.
    #[error("`{plugin}` {problem}")]
    UnusedGrant {
        /// Name of the plugin that has the grant.
        plugin: String,
        /// The message, worded as the end of a sentence that begins with the plugin's name.
        problem: String,
    },
    /// Requests with an unusual HTTP method are granted.
    #[error("`{plugin}` is granted requests with the method {method}, which is unusual; check its spelling")]
    UnusualMethod {
        /// Name of the plugin that has the grant.
        plugin: String,
        /// The unusual HTTP method, as the grant contains it.
        method: String,
    },
    /// An approval rule matches no tool.
    #[error("{location}: there is no tool `{rule}`, so this rule has no effect")]
    UnmatchedApprovalRule {
        /// File, line and key of the rule.
        location: String,
        /// Name of a tool, or a pattern in which `*` matches any characters.
        rule: String,
    },
    /// Files in the plugin directory cannot be loaded, and the host continues without them.
    #[error("{problems}")]
    UnusablePlugins {
        /// Text with one line for each file, which describes the problem of the file. The end of the text explains how
        /// to fix the problems.
        problems: String,
    },
}
