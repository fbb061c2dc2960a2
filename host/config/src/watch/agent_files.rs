//! Watches the agents' configuration files. If a change to a file revokes grants, the change takes effect immediately.
//! All other changes apply from the next turn on (P6, P10, L17).

use super::WatchEvent;
use crate::agent_file::{MAX_BYTES, read_bounded};
use crate::assembly::{self, AssembledAgent, ModelRebuild, Reconfigured};
use crate::protection;
use agent_plugins::Sandbox;
use agent_runtime::swap;
use agent_store::{AuditAction, Store};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// Interval between two checks of a file, and the time for which a file must be unchanged before it is read.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a file with errors must be unchanged before the errors are reported. The errors are not reported
/// earlier, because the file may be only partly written.
const ERROR_DELAY: Duration = Duration::from_secs(2);
/// Keys whose changes apply only after the host is restarted.
pub(crate) const RESTART_KEYS: [&str; 6] = ["name", "plugin_directory", "agents", "mcp", "telemetry", "events"];
/// Keys whose changes require that the models are rebuilt.
const MODEL_KEYS: [&str; 10] = [
    "model",
    "fallback_models",
    "fallback_text",
    "model_cooldown_ms",
    "retry",
    "providers",
    "summary_model",
    "embedding_model",
    "planner",
    "executor",
];

/// Watches the configuration files of all agents until `cancel` is cancelled.
pub(super) async fn watch(
    agents: Vec<AssembledAgent>,
    (store, sandbox): (Arc<dyn Store>, Sandbox),
    events: Sender<WatchEvent>,
    cancel: CancellationToken,
) {
    let mut files: Vec<WatchedFile> = agents.into_iter().filter_map(WatchedFile::new).collect();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        for file in &mut files {
            let Some(event) = file.check(Instant::now(), &sandbox) else { continue };
            if matches!(event, WatchEvent::Configured { .. })
                && let Err(error) = swap::record_grants(&*store, &file.agent.live).await
            {
                tracing::warn!(%error, "the changed grants could not be recorded in the audit log");
            }
            if let WatchEvent::Misconfigured { reason } = &event
                && let Err(error) = store.audit(vec![file.refusal(reason)]).await
            {
                tracing::warn!(%error, "a refused change of the configuration could not be recorded in the audit log");
            }
            if events.try_send(event).is_err() {
                tracing::debug!("an event about the configuration was dropped because nobody receives it");
            }
        }
    }
}

/// The configuration file of one agent.
struct WatchedFile {
    agent: AssembledAgent,
    path: PathBuf,
    /// Text of the file that the agent uses: at first the text from which the agent was assembled, and later the text that was
    /// last applied. None if the agent was assembled without a file.
    text: Option<String>,
    /// The file's stamp at the last check, and the time when this stamp was first seen.
    last_stamp: (Stamp, Instant),
    /// The stamp that the file had when the file was last applied or last reported as invalid.
    handled: Option<Stamp>,
}

/// Modification time and size in bytes, to detect changes without reading the file. None if the file does not exist.
type Stamp = Option<(SystemTime, u64)>;

impl WatchedFile {
    fn new(agent: AssembledAgent) -> Option<Self> {
        let path = agent.settings.path.clone()?;
        let text = agent.settings.text().map(str::to_owned);
        Some(Self { agent, path, text, last_stamp: (None, Instant::now()), handled: None })
    }

    /// Returns the entry of the audit log about a changed file that is not used (O3).
    fn refusal(&self, reason: &str) -> AuditAction {
        let directory = self.path.parent().unwrap_or(Path::new(".")).display().to_string();
        AuditAction::Refused { directory, subject: self.path.display().to_string(), reason: reason.to_owned() }
    }

    /// Applies the file to the agent if the file has changed. Returns an event if the change must be reported.
    fn check(&mut self, now: Instant, sandbox: &Sandbox) -> Option<WatchEvent> {
        let stamp = stamp(&self.path);
        if stamp != self.last_stamp.0 {
            self.last_stamp = (stamp, now);
            return None;
        }
        let unchanged_for = now.duration_since(self.last_stamp.1);
        if self.handled == Some(stamp) || unchanged_for < CHECK_INTERVAL {
            return None;
        }
        match self.apply(sandbox) {
            Ok(event) => {
                self.handled = Some(stamp);
                event
            }
            Err(reason) if unchanged_for >= ERROR_DELAY => {
                self.handled = Some(stamp);
                Some(WatchEvent::Misconfigured { reason })
            }
            Err(_) => None,
        }
    }

    /// Applies the current contents of the file to the agent. If the file cannot be applied, no setting is changed.
    fn apply(&mut self, sandbox: &Sandbox) -> Result<Option<WatchEvent>, String> {
        let text = read_bounded(&self.path, MAX_BYTES).ok();
        if text.is_some() && text == self.text {
            return Ok(None);
        }
        let settings = self.agent.settings.reread().map_err(|error| error.to_string())?;
        // The file may have changed again.
        let text = settings.text().map(str::to_owned);
        sandbox.protect(protection::paths_of_agent(&settings));
        let changed = |keys: &[&'static str]| changed(self.text.as_deref(), text.as_deref(), keys);
        let (later, models) = (changed(&RESTART_KEYS), !changed(&MODEL_KEYS).is_empty());
        let rebuild = if models { ModelRebuild::Rebuild } else { ModelRebuild::Keep };
        let reconfigured =
            assembly::reconfigure(&self.agent.live, &settings, rebuild).map_err(|error| error.to_string())?;
        let previous = std::mem::replace(&mut self.agent.settings, settings);
        (self.agent.settings.name, self.agent.settings.plugins) = (previous.name, previous.plugins);
        self.text = text;
        let settings = Box::new(self.agent.settings.clone());
        let path = self.path.clone();
        Ok((reconfigured == Reconfigured::Changed || !later.is_empty()).then_some(WatchEvent::Configured {
            path,
            settings,
            later,
        }))
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Returns the keys in `keys` whose values differ between two versions of the file.
pub(crate) fn changed(before: Option<&str>, now: Option<&str>, keys: &[&'static str]) -> Vec<&'static str> {
    let read = |text: Option<&str>| text.and_then(|text| text.parse::<toml::Table>().ok());
    let (Some(before), Some(now)) = (read(before), read(now)) else { return Vec::new() };
    keys.iter().copied().filter(|key| before.get(*key) != now.get(*key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AgentOptions, HostEnvironment, Settings};
    use agent_plugins::{Generation, SandboxOptions};
    use agent_runtime::{Agent, AgentConfig, LiveAgent};

    /// L17, P10: a change that is made after the agent was assembled, but before the watcher has read the file for the first
    /// time, is applied, and its restart keys are reported. A file that did not change has no effect.
    #[test]
    fn p10_a_change_before_the_first_check_is_applied() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("agent.toml");
        let write = |text: &str| std::fs::write(&path, text).expect("the file is written");
        write("name = \"clerk\"\nmodel = \"offline/router\"\nmax_interactions = 5\n");
        let options = AgentOptions { agent: Some(path.clone()), ..AgentOptions::default() };
        let settings = Settings::read(&options, &HostEnvironment::default()).expect("the settings are valid");
        let provider = agent_models::provider("offline/router", folder.path()).expect("the provider exists");
        let agent = Agent::new(AgentConfig::new("clerk"), provider, Generation::new([])).expect("an agent");
        let live = LiveAgent::new(Arc::new(agent));
        let sandbox = Sandbox::new(SandboxOptions::default()).expect("a sandbox");
        let check = |file: &mut WatchedFile| {
            let now = Instant::now();
            assert!(file.check(now, &sandbox).is_none(), "the file may still be changing");
            file.check(now + CHECK_INTERVAL, &sandbox)
        };
        let assembled = || AssembledAgent { live: live.clone(), settings: settings.clone() };
        let mut unchanged = WatchedFile::new(assembled()).expect("the agent has a file");
        assert!(check(&mut unchanged).is_none());
        std::fs::write(folder.path().join("replies.json"), r#"{"replies": [{"text": "One."}]}"#).expect("written");
        write("name = \"other\"\nmodel = \"scripted:replies.json\"\nmax_interactions = 7\n");
        let mut changed = WatchedFile::new(assembled()).expect("the agent has a file");
        let event = check(&mut changed).unwrap_or_else(|| panic!("{:?}", changed.apply(&sandbox).err()));
        let WatchEvent::Configured { later, .. } = event else { panic!("{event:?}") };
        assert_eq!(later, ["name"]);
        assert_eq!(live.current().config().bounds.max_interactions, 7);
        assert!(live.current().models().first().info().model.to_string().starts_with("scripted"));
        assert!(check(&mut changed).is_none(), "the change is applied once");
    }
}
