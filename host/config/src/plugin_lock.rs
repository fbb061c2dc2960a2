//! What the lock file of an agent's plugin folder says about a plugin, and who has signed the plugin. The network is not used.

use crate::settings::Settings;
use agent_registry::{LOCK_FILE, PluginFolder, PluginState, Signer};

/// The state of a plugin in the lock file of its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLockState {
    /// Whether the lock file lists the plugin.
    pub locked: bool,
    /// Version in the lock file. `None` if the plugin is not listed or has no version.
    pub version: Option<String>,
    /// Where the plugin came from, as the user wrote it. `None` if the plugin is not listed.
    pub reference: Option<String>,
    /// Whether the file may be used.
    pub is_valid: bool,
    /// The state as a sentence without a full stop.
    pub description: String,
}

/// Checks a plugin in the agent's plugin folder against the lock file and the trusted keys. Returns `None` if the agent has no
/// plugin folder.
pub fn plugin_lock_state(settings: &Settings, plugin: &str) -> Option<PluginLockState> {
    let folder = PluginFolder::new(settings.plugins.as_deref()?);
    let trust = &settings.file.sharing;
    let unlocked = |is_valid, description: String| PluginLockState {
        locked: false,
        version: None,
        reference: None,
        is_valid,
        description,
    };
    let lock = match folder.lock_file() {
        Ok(lock) => lock,
        Err(error) => return Some(unlocked(false, error.to_string())),
    };
    let Some(locked) = lock.plugin(plugin) else {
        let file = folder.path().join(format!("{plugin}.wasm"));
        return Some(match folder.check_unlocked(&file, trust) {
            Ok(()) => unlocked(true, format!("not in {LOCK_FILE}: it was built or copied here")),
            Err(reason) => unlocked(false, format!("not in {LOCK_FILE}: {reason}")),
        });
    };
    let (is_valid, description) = match folder.state(locked, trust) {
        PluginState::Valid(Signer::Trusted { key, .. }) => (true, format!("signed by {key}")),
        PluginState::Valid(Signer::Untrusted { reason }) if reason.is_empty() => {
            (true, "signatures are not checked".to_owned())
        }
        PluginState::Valid(Signer::Untrusted { reason }) => (true, reason),
        PluginState::Missing => (false, "its file is missing".to_owned()),
        PluginState::Modified(found) => {
            let (found, expected) = (found.short(), locked.component.short());
            (false, format!("its file differs: its digest is {found}, and {LOCK_FILE} has {expected}"))
        }
        PluginState::Untrusted(error) | PluginState::Unreadable(error) => (false, error.to_string()),
    };
    Some(PluginLockState {
        locked: true,
        version: Some(locked.version.clone()).filter(|version| !version.is_empty()),
        reference: Some(locked.reference.clone()),
        is_valid,
        description,
    })
}
