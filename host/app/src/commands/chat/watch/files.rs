//! The agents' files are watched while a person types: what is changed in them counts from the next turn, and what is
//! taken back at once (P6, P10, L17).

use super::Told;
use crate::configuration::{MOST_BYTES, read_bounded};
use crate::environment;
use crate::protection;
use crate::settings::Settings;
use crate::setup::agents::MadeAgent;
use crate::setup::{self, Taken};
use agent_plugins::Sandbox;
use agent_runtime::swap;
use agent_store::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// Between two looks, and how long a file must have been left alone before it counts.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// How long before one with errors is said to have some: it may be half of something.
const PATIENCE: Duration = Duration::from_secs(2);
/// Keys that only the next start takes up.
const FOR_NEXT_START: [&str; 4] = ["name", "plugin_directory", "agents", "mcp"];
/// Keys that the models are made of.
const OF_MODELS: [&str; 10] = [
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

/// Looks until it is cancelled.
pub(super) async fn watch(
    agents: Vec<MadeAgent>,
    (store, sandbox): (Arc<dyn Store>, Sandbox),
    told: Sender<Told>,
    cancel: CancellationToken,
) {
    let mut files: Vec<Watched> = agents.into_iter().filter_map(Watched::new).collect();
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(BETWEEN_LOOKS) => {}
        }
        for file in &mut files {
            let Some(news) = file.look(Instant::now(), &sandbox) else { continue };
            if matches!(news, Told::Configured { .. })
                && let Err(error) = swap::write_down_grants(&*store, &file.made.live).await
            {
                tracing::warn!(%error, "the audit log could not take what is granted now");
            }
            if told.try_send(news).is_err() {
                tracing::debug!("nobody takes what there is to say of the configuration");
            }
        }
    }
}

/// One file.
struct Watched {
    made: MadeAgent,
    path: PathBuf,
    /// The text that counts; none before it was read here.
    text: Option<String>,
    /// What the file looked like at the last look, and since when it has.
    seen: (Stamp, Instant),
    /// What was taken, or said to be wrong.
    settled: Option<Stamp>,
}

/// By what a changed file is known without reading it; none where it is not there.
type Stamp = Option<(SystemTime, u64)>;

impl Watched {
    fn new(made: MadeAgent) -> Option<Self> {
        let path = made.settings.path.clone()?;
        Some(Self { made, path, text: None, seen: (None, Instant::now()), settled: None })
    }

    /// What is to be said, if there is anything.
    fn look(&mut self, now: Instant, sandbox: &Sandbox) -> Option<Told> {
        let stamp = stamp(&self.path);
        if stamp != self.seen.0 {
            self.seen = (stamp, now);
            return None;
        }
        let quiet = now.duration_since(self.seen.1);
        if self.settled == Some(stamp) || quiet < BETWEEN_LOOKS {
            return None;
        }
        match self.take(sandbox) {
            Ok(news) => {
                self.settled = Some(stamp);
                news
            }
            Err(reason) if quiet >= PATIENCE => {
                self.settled = Some(stamp);
                Some(Told::Misconfigured { reason })
            }
            Err(_) => None,
        }
    }

    /// Takes the file as it is now, whole or not at all.
    fn take(&mut self, sandbox: &Sandbox) -> Result<Option<Told>, String> {
        let text = read_bounded(&self.path, MOST_BYTES).ok();
        if text.is_some() && text == self.text {
            return Ok(None);
        }
        let settings =
            Settings::read(&self.made.arguments, &environment::variable).map_err(|failure| failure.message)?;
        sandbox.protect(protection::of_agent(&settings));
        let changed = |keys: &[&'static str]| changed(self.text.as_deref(), text.as_deref(), keys);
        let (later, models) = (changed(&FOR_NEXT_START), !changed(&OF_MODELS).is_empty());
        let others = if models { setup::Asked::Anew } else { setup::Asked::AsBefore };
        let taken = setup::reconfigure(&self.made.live, &settings, others).map_err(|failure| failure.message)?;
        let before = std::mem::replace(&mut self.made.settings, settings);
        (self.made.settings.name, self.made.settings.plugins) = (before.name, before.plugins);
        self.text = text;
        let settings = Box::new(self.made.settings.clone());
        let path = self.path.clone();
        Ok((taken == Taken::Changed || !later.is_empty()).then_some(Told::Configured { path, settings, later }))
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Which of these keys say something else than before, wherever they stand now.
fn changed(before: Option<&str>, now: Option<&str>, keys: &[&'static str]) -> Vec<&'static str> {
    let read = |text: Option<&str>| text.and_then(|text| text.parse::<toml::Table>().ok());
    let (Some(before), Some(now)) = (read(before), read(now)) else { return Vec::new() };
    keys.iter().copied().filter(|key| before.get(*key) != now.get(*key)).collect()
}
