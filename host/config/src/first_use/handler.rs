//! Handles each first use of a plugin, one after another: asks the user about the missing grants, and applies
//! the answer.

use super::offers::{GrantOffers, NotOffered, OfferBounds, OfferedFolder};
use super::question::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, Keeping};
use super::report::FirstUseReport;
use crate::agent_file::{Addition, Draft, EditError};
use crate::environment::HostEnvironment;
use crate::text::one_line;
use agent_plugins::{RefusedNeeds, UnmetNeed, to_ask};
use agent_runtime::{AnsweredGrants, FirstUse, LiveAgent, swap};
use agent_store::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// Maximum length of the description of one missing grant, in characters.
const MAX_CHARACTERS: usize = 300;

/// Asks the user about missing grants when a plugin is used for the first time, and remembers the answers while the
/// host runs.
pub struct FirstUseHandler {
    prompt: Arc<dyn FirstUsePrompt>,
    store: Arc<dyn Store>,
    environment: HostEnvironment,
    /// Configuration files of the agents, by the agent's name. Agents without a file are not in this map.
    files: BTreeMap<String, PathBuf>,
    /// Receives a message for each first use of a plugin. None if the user cannot be asked.
    first_uses: Option<Receiver<FirstUse>>,
    /// For each pair of an agent's name and a plugin's name, the grants that the user has refused to the plugin.
    answers: BTreeMap<(String, String), RefusedNeeds>,
    /// Agents with plugins to which the user has given grants, by the agent's name.
    changed_agents: BTreeMap<String, LiveAgent>,
}

impl FirstUseHandler {
    /// Creates a handler for a host whose user cannot be asked. With this handler, a plugin runs even if
    /// grants are missing, and does not get these grants.
    pub fn closed(prompt: Arc<dyn FirstUsePrompt>, store: Arc<dyn Store>) -> Self {
        let (environment, files) = (HostEnvironment::default(), BTreeMap::new());
        let (answers, changed_agents) = (BTreeMap::new(), BTreeMap::new());
        Self { prompt, store, environment, files, first_uses: None, answers, changed_agents }
    }

    /// Creates a handler that receives first uses from the host. `files` contains the configuration files of the agents
    /// by the agent's name.
    pub fn new(
        prompt: Arc<dyn FirstUsePrompt>,
        store: Arc<dyn Store>,
        environment: HostEnvironment,
        (first_uses, files): (Receiver<FirstUse>, BTreeMap<String, PathBuf>),
    ) -> Self {
        let (answers, changed_agents) = (BTreeMap::new(), BTreeMap::new());
        Self { prompt, store, environment, files, first_uses: Some(first_uses), answers, changed_agents }
    }

    /// Waits until the host reports the next first use of a plugin. Never returns if the user cannot be asked.
    pub async fn next(&mut self) -> FirstUse {
        match &mut self.first_uses {
            Some(first_uses) => match first_uses.recv().await {
                Some(first_use) => first_use,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Asks the user about the missing grants, except those that the user has already refused, and applies the answer.
    /// The turn continues after this method has returned.
    pub async fn serve(&mut self, first_use: FirstUse, stop: &CancellationToken) {
        if first_use.is_pending() {
            self.ask_and_apply(&first_use, stop).await;
            self.prompt.applied();
        }
    }

    async fn ask_and_apply(&mut self, first_use: &FirstUse, stop: &CancellationToken) {
        let agent = first_use.agent.current().config().name.clone();
        let key = (agent, first_use.plugin.name.clone());
        let lacking = to_ask(&first_use.still_lacking(), self.answers.entry(key.clone()).or_default(), &first_use.call);
        // The question ends with the call that waits for it.
        let ended = stop.child_token();
        let watch = async {
            first_use.ended().await;
            ended.cancel();
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = self.ask(first_use, &key.0, &lacking, &ended) => answer,
            () = watch => None,
        };
        let Some(answer) = answer else { return };
        match answer {
            AnswerEffect::Refused => self.answers.entry(key).or_default().refuse(&lacking, &first_use.call),
            AnswerEffect::Granted(answered_grants, unneeded) => {
                self.note_changed(&first_use.agent);
                if let Err(error) = first_use.agent.answer(&key.1, &answered_grants) {
                    self.prompt.report(&FirstUseReport::NothingGranted { reason: error.to_string() });
                }
                // Grants that are still missing could not be given, so the user is not asked about these grants again.
                // Servers that only another call needs are asked about when that call runs.
                let mut remaining = to_ask(&first_use.still_lacking(), &RefusedNeeds::default(), &first_use.call);
                remaining.retain(|unmet| !unneeded.contains(unmet));
                self.answers.entry(key).or_default().refuse(&remaining, &first_use.call);
                if let Err(error) = swap::record_grants(&*self.store, &first_use.agent).await {
                    self.prompt.report(&FirstUseReport::NotAudited { reason: error.to_string() });
                }
            }
        }
    }

    /// Reports what the plugin lacks and no answer can grant, so that the user knows it before the plugin runs. It is
    /// reported only once.
    fn report_lacking(&self, plugin: &str, not_offered: &[NotOffered]) -> Option<AnswerEffect> {
        if not_offered.is_empty() {
            return None;
        }
        let line = |NotOffered { unmet, .. }: &NotOffered| {
            format!("{}; to grant it, write {} {}", unmet.thing, unmet.advice.table, unmet.advice.line)
        };
        let lacking = not_offered.iter().map(|request| one_line(&line(request), MAX_CHARACTERS)).collect();
        self.prompt.report(&FirstUseReport::Lacking { plugin: plugin.to_owned(), lacking });
        Some(AnswerEffect::Refused)
    }

    /// Ends the grants and forgets the refusals that applied only to the session that the user leaves.
    pub async fn leave_session(&mut self) {
        self.answers.clear();
        for agent in std::mem::take(&mut self.changed_agents).into_values() {
            if let Err(error) = agent.end_temporary_grants() {
                self.prompt.report(&FirstUseReport::NotEnded { reason: error.to_string() });
            }
            if let Err(error) = swap::record_grants(&*self.store, &agent).await {
                self.prompt.report(&FirstUseReport::NotAudited { reason: error.to_string() });
            }
        }
    }

    /// Notes that the user has given grants to plugins of this agent.
    pub(super) fn note_changed(&mut self, agent: &LiveAgent) {
        self.changed_agents.insert(agent.current().config().name.clone(), agent.clone());
    }

    /// Forgets what the user has refused to a plugin of this agent, so that the user is asked again.
    pub(super) fn forget_refusals(&mut self, agent: &str, plugin: &str) {
        self.answers.remove(&(agent.to_owned(), plugin.to_owned()));
    }

    /// Returns what the plugin lacks if no answer to the question can grant anything, otherwise `None`.
    pub(super) fn not_offered(&self, first_use: &FirstUse) -> Option<Vec<NotOffered>> {
        let agent = first_use.agent.current().config().name.clone();
        let (offers, ..) = self.offers(first_use, &agent, &first_use.lacking);
        (offers.offered.is_empty() && !offers.has_folder()).then_some(offers.not_offered)
    }

    pub(super) fn environment(&self) -> &HostEnvironment {
        &self.environment
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the configuration file of the agent with this name.
    pub(super) fn file_of(&self, agent: &str) -> Option<&Path> {
        self.files.get(agent).map(PathBuf::as_path)
    }

    /// Decides which grants the question offers.
    fn offers(
        &self,
        first_use: &FirstUse,
        agent: &str,
        lacking: &[UnmetNeed],
    ) -> (GrantOffers, OfferedFolder, OfferBounds) {
        let base = self.file_of(agent).and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let folder = OfferedFolder { base, written: ".".to_owned(), is_typed: false };
        let bounds = OfferBounds {
            granted: first_use.granted_folders(),
            ..OfferBounds::of_call(first_use.arguments.clone(), first_use.revoked(), first_use.protected.clone())
        };
        let variables = self.environment.variables();
        let offers = GrantOffers::new(&first_use.plugin.name, lacking.to_vec(), (&folder, &bounds), variables);
        (offers, folder, bounds)
    }

    /// Asks the user, and writes a permanent answer into the agent's file. Returns None if no grant can be offered, or
    /// if the user did not answer.
    async fn ask(
        &self,
        first_use: &FirstUse,
        agent: &str,
        lacking: &[UnmetNeed],
        stop: &CancellationToken,
    ) -> Option<AnswerEffect> {
        let FirstUse { plugin, tool, .. } = first_use;
        let file = self.file_of(agent);
        let (offers, folder, bounds) = self.offers(first_use, agent, lacking);
        if offers.offered.is_empty() && !offers.has_folder() {
            return self.report_lacking(&plugin.name, &offers.not_offered);
        }
        // The file is read before the user is asked. The answer is written into the file only if the file has not
        // changed since then.
        let draft = file.map(Draft::read);
        let keeping = if draft.is_some() { Keeping::File } else { Keeping::Nowhere };
        let requested = offers.requested();
        let unmet = first_use.lacking.iter().filter(|unmet| requested.contains(unmet)).cloned().collect();
        let environment = &self.environment;
        let (tool, by_user, call) = (tool.as_deref(), first_use.by_user, &first_use.call);
        let mut question = FirstUseQuestion {
            plugin,
            agent,
            tool,
            by_user,
            call,
            keeping,
            unmet,
            offers,
            folder,
            bounds,
            environment,
        };
        let answer = self.prompt.ask(&mut question, stop).await;
        let offers = question.offers;
        if !matches!(answer, FirstUseAnswer::Stopped | FirstUseAnswer::No) && !is_used(first_use) {
            let reason = format!("another version of the plugin is used now, and the question was about {plugin}");
            self.prompt.report(&FirstUseReport::NothingGranted { reason });
            return None;
        }
        match answer {
            FirstUseAnswer::Stopped => None,
            FirstUseAnswer::No => Some(AnswerEffect::Refused),
            FirstUseAnswer::Never => {
                let report = self.keeping_trust(|| write_never_ask(&plugin.name, draft.as_ref()));
                self.prompt.report(&report);
                Some(AnswerEffect::Refused)
            }
            FirstUseAnswer::ThisSession => {
                let answered_grants = AnsweredGrants { temporary: offers.grants(), ..AnsweredGrants::default() };
                Some(AnswerEffect::Granted(Box::new(answered_grants), offers.unneeded))
            }
            FirstUseAnswer::Always => {
                let (answered_grants, report) =
                    self.keeping_trust(|| write_grants(&plugin.name, &offers, draft.as_ref()));
                self.prompt.report(&report);
                Some(AnswerEffect::Granted(Box::new(answered_grants), offers.unneeded))
            }
        }
    }
}

impl FirstUseHandler {
    /// Runs a function that changes an agent's file. If the user has trusted the file, the user's answer also trusts the
    /// changed file.
    pub(super) fn keeping_trust<T>(&self, change: impl FnOnce() -> T) -> T {
        let trusted = self.environment.trusted.as_ref();
        let before = trusted.and_then(|trusted| trusted.store.trusted(&trusted.path));
        let changed = change();
        if let Some(trusted) = trusted {
            trusted.store.keep(before, &|path| path.extension().is_some_and(|end| end == "toml"));
        }
        changed
    }
}

/// Whether the agent still uses the version of the plugin that the question is about.
fn is_used(first_use: &FirstUse) -> bool {
    let current = first_use.agent.current();
    let setup = current.setups().get(&first_use.plugin.name);
    setup.is_some_and(|setup| setup.plugin().identity().digest == first_use.plugin.digest)
}

/// How an answer changes the grants of the plugin.
enum AnswerEffect {
    /// The plugin gets these grants. The needs are not refused, although the question did not offer them.
    Granted(Box<AnsweredGrants>, Vec<UnmetNeed>),
    Refused,
}

type FileDraft<'d> = Option<&'d Result<Draft, EditError>>;

/// Writes the offered grants into the agent's file. If the file cannot be changed, the grants apply to this session only.
fn write_grants(plugin: &str, offers: &GrantOffers, draft: FileDraft<'_>) -> (AnsweredGrants, FirstUseReport) {
    let grants = offers.grants();
    let lines = offers.offered.iter().map(|offer| offer.line()).collect();
    let plugin_name = plugin.to_owned();
    match write_addition(plugin, &Addition::Grants(&offers.written()), draft) {
        Ok(path) => {
            let report = FirstUseReport::GrantsWritten { path, plugin: plugin_name, lines };
            (AnsweredGrants { permanent: grants, ..AnsweredGrants::default() }, report)
        }
        Err(reason) => {
            let flags = offers.offered.iter().map(|offer| offer.flag(plugin)).collect();
            let report = FirstUseReport::GrantsNotWritten { reason, plugin: plugin_name, lines, flags };
            (AnsweredGrants { temporary: grants, ..AnsweredGrants::default() }, report)
        }
    }
}

fn write_never_ask(plugin: &str, draft: FileDraft<'_>) -> FirstUseReport {
    let plugin_name = plugin.to_owned();
    match write_addition(plugin, &Addition::NeverAsk, draft) {
        Ok(path) => FirstUseReport::NeverAskWritten { path, plugin: plugin_name },
        Err(reason) => FirstUseReport::NeverAskNotWritten { reason, plugin: plugin_name },
    }
}

/// Writes an addition into the agent's file. Returns the path of the file, or the reason why nothing was written.
fn write_addition(plugin: &str, addition: &Addition<'_>, draft: FileDraft<'_>) -> Result<PathBuf, String> {
    let draft = match draft {
        None => return Err("this agent has no configuration file".to_owned()),
        Some(draft) => draft.as_ref().map_err(ToString::to_string)?,
    };
    draft.add(plugin, addition).map_err(|error| error.to_string())?;
    Ok(draft.path().to_owned())
}
