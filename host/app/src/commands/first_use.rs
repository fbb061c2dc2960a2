//! The person at the terminal, asked for what a plugin lacks when it is about to be used for the first time (P6).

use super::asking::Person;
use crate::configuration::{Addition, Draft, EditError};
use crate::environment;
use crate::first_use::{Bounds, Folder, Hosts, Offers, host_patterns};
use crate::terminal::first_use::{Answer, Asking, Keeping, card, help, question};
use crate::terminal::{DIM, Terminal, TypedLine, YELLOW, text};
use agent_plugins::{Answers, to_ask};
use agent_runtime::{Answered, FirstUse, swap};
use agent_store::Store;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// Takes first uses, one after another, and remembers what was answered.
pub(crate) struct FirstUseDesk {
    terminal: Terminal,
    store: Arc<dyn Store>,
    /// Of each agent that has one, by its name.
    files: BTreeMap<String, PathBuf>,
    /// None: nobody is there.
    arriving: Option<Receiver<FirstUse>>,
    /// By agent and plugin.
    answers: BTreeMap<(String, String), Answers>,
}

/// What came of a card.
enum Said {
    Yes(Box<Answered>),
    No,
    /// The turn ends: nothing was answered.
    Nothing,
}

impl FirstUseDesk {
    /// One for that person; where it is nobody, calls run with what they are granted.
    pub(crate) fn new(
        terminal: &Terminal,
        person: Person,
        store: Arc<dyn Store>,
        (arriving, files): (Receiver<FirstUse>, BTreeMap<String, PathBuf>),
    ) -> Self {
        let arriving = (person == Person::AtTerminal).then_some(arriving);
        Self { terminal: terminal.clone(), store, files, arriving, answers: BTreeMap::new() }
    }

    /// One where nobody is.
    pub(crate) fn closed(terminal: &Terminal, store: Arc<dyn Store>) -> Self {
        let (files, answers) = (BTreeMap::new(), BTreeMap::new());
        Self { terminal: terminal.clone(), store, files, arriving: None, answers }
    }

    /// The next first use; never, where nobody is there.
    pub(crate) async fn next(&mut self) -> FirstUse {
        match &mut self.arriving {
            Some(arriving) => match arriving.recv().await {
                Some(first_use) => first_use,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Asks, unless it was answered before; the turn goes on afterwards.
    pub(crate) async fn serve(&mut self, first_use: FirstUse, stop: &CancellationToken) {
        if !first_use.is_waited_for() {
            return;
        }
        let name = first_use.agent.current().config().name.clone();
        let plugin = first_use.plugin.name.clone();
        let answers = self.answers.entry((name.clone(), plugin.clone())).or_default();
        let lacking = to_ask(&first_use.still_lacking(), answers);
        let file = self.files.get(&name).cloned();
        let base = file.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let folder = Folder { base, written: ".".to_owned(), is_typed: false };
        let bounds = Bounds::of_call(&first_use.arguments, first_use.revoked(), first_use.protected.clone());
        let offers = Offers::new(&plugin, lacking.clone(), (&folder, &bounds), &environment::variable);
        if offers.given.is_empty() && !offers.has_folder() {
            return;
        }
        match self.ask(&first_use, &name, (offers, folder, bounds), stop).await {
            Said::Nothing => {}
            Said::No => self.answers.entry((name, plugin)).or_default().refuse(&lacking),
            Said::Yes(answered) => {
                if let Err(error) = first_use.agent.answer(&plugin, &answered) {
                    self.warn(&format!("nothing was granted: {error}"));
                }
                // What a yes could not give is not asked for again.
                let left = to_ask(&first_use.still_lacking(), &Answers::default());
                self.answers.entry((name, plugin)).or_default().refuse(&left);
                if let Err(error) = swap::write_down_grants(&*self.store, &first_use.agent).await {
                    self.warn(&format!("the audit log could not take it: {error}"));
                }
            }
        }
    }

    async fn ask(
        &self,
        first_use: &FirstUse,
        agent: &str,
        (mut offers, mut folder, mut bounds): (Offers, Folder, Bounds),
        stop: &CancellationToken,
    ) -> Said {
        let FirstUse { plugin, tool, .. } = first_use;
        let asking = Asking { plugin, agent, tool: tool.as_deref() };
        // What is written is written into the file as it is while it is being asked.
        let draft = self.files.get(agent).map(|file| Draft::read(file));
        let keeping = if draft.is_some() { Keeping::File } else { Keeping::Nowhere };
        let asked = first_use.lacking.clone();
        let asked: Vec<_> = asked.into_iter().filter(|asked| offers.asked().contains(asked)).collect();
        self.terminal.idle();
        self.terminal.note(card(&asking, &offers));
        loop {
            let line = match self.terminal.question(question(keeping), stop).await {
                Ok(TypedLine::Text(line)) => line,
                Ok(TypedLine::Stopped) => return Said::Nothing,
                Ok(TypedLine::End) | Err(_) => return Said::No,
            };
            match Answer::parse(&line) {
                Some(Answer::ThisRun | Answer::Always) if offers.given.is_empty() => {
                    self.warn("a yes would give nothing here: `d DIR` names a folder that is there, n says no");
                }
                Some(Answer::ThisRun) => {
                    let answered = Answered { for_this_run: offers.grants(), ..Answered::default() };
                    return Said::Yes(Box::new(answered));
                }
                Some(Answer::Always) => {
                    return Said::Yes(Box::new(self.for_good(&plugin.name, &offers, draft.as_ref())));
                }
                Some(Answer::No) => return Said::No,
                Some(Answer::Never) => {
                    self.never(&plugin.name, draft.as_ref());
                    return Said::No;
                }
                Some(Answer::Folder(written)) if offers.has_folder() => {
                    folder = another(&folder, &written);
                    offers = Offers::new(&plugin.name, asked.clone(), (&folder, &bounds), &environment::variable);
                    self.terminal.note(card(&asking, &offers));
                }
                Some(Answer::Host(typed)) if offers.has_requests() => {
                    let patterns = host_patterns(&typed);
                    if typed != "*" && patterns.is_empty() {
                        self.warn("write a server as `a.example`, `a.example:8080` or `https://a.example`");
                        continue;
                    }
                    bounds.hosts = if typed == "*" { Hosts::All } else { Hosts::Typed(patterns) };
                    offers = Offers::new(&plugin.name, asked.clone(), (&folder, &bounds), &environment::variable);
                    self.terminal.note(card(&asking, &offers));
                }
                Some(Answer::Help | Answer::Folder(_) | Answer::Host(_)) | None => {
                    self.terminal.note(help(&offers, keeping))
                }
            }
        }
    }

    /// Writes what was shown. What cannot be written is granted for this run, and said.
    fn for_good(&self, plugin: &str, offers: &Offers, draft: Option<&Result<Draft, EditError>>) -> Answered {
        let grants = offers.grants();
        let (written, lines) = (offers.written(), offers.given.iter().map(|offer| offer.line()).collect::<Vec<_>>());
        match self.write(plugin, &Addition::Grants(&written), draft) {
            Written::Into(path) => {
                self.hint(&format!("written into {}: [plugins.{plugin}.grants] {}", path.display(), lines.join(", ")));
                Answered { for_good: grants, ..Answered::default() }
            }
            Written::Not(why) => {
                let flags: Vec<_> = offers.given.iter().map(|offer| offer.flag(plugin)).collect();
                self.warn(&format!(
                    "{why}, so this holds for this run. To keep it, add to the agent's configuration\n  [plugins.{plugin}.grants]\n  \
                     {}\nor pass {}",
                    lines.join("\n  "),
                    flags.join(" ")
                ));
                Answered { for_this_run: grants, ..Answered::default() }
            }
        }
    }

    fn never(&self, plugin: &str, draft: Option<&Result<Draft, EditError>>) {
        match self.write(plugin, &Addition::AskNoMore, draft) {
            Written::Into(path) => {
                self.hint(&format!("written into {}: [plugins.{plugin}.grants] ask = false", path.display()));
            }
            Written::Not(why) => self.warn(&format!(
                "{why}, so this holds for this run. To keep it, add to the agent's configuration\n  [plugins.{plugin}.grants]\n  ask = false"
            )),
        }
    }

    fn write(&self, plugin: &str, addition: &Addition<'_>, draft: Option<&Result<Draft, EditError>>) -> Written {
        match draft {
            None => Written::Not("this agent has no configuration file".to_owned()),
            Some(Err(error)) => Written::Not(error.to_string()),
            Some(Ok(draft)) => match draft.add(plugin, addition) {
                Ok(()) => Written::Into(draft.path().to_owned()),
                Err(error) => Written::Not(error.to_string()),
            },
        }
    }

    fn hint(&self, line: &str) {
        let line = format!("{DIM}{}{DIM:#}", text::harmless(line));
        self.terminal.note(text::wrapped(&line, self.terminal.width()));
    }

    fn warn(&self, line: &str) {
        let line = format!("{YELLOW}!{YELLOW:#} {}", text::harmless(line));
        self.terminal.note(text::wrapped(&line, self.terminal.width()));
    }
}

/// What became of the file.
enum Written {
    Into(PathBuf),
    Not(String),
}

/// A folder that somebody types is meant from where they are; a plugin names it as it is written in the configuration.
fn another(folder: &Folder, written: &str) -> Folder {
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    let is_base_here = folder.base.as_os_str().is_empty() || canonical(&folder.base) == canonical(Path::new("."));
    let climbs = Path::new(written).components().any(|component| component == Component::ParentDir);
    let whole = canonical(Path::new(written)).filter(|_| climbs || !is_base_here);
    let written = whole.map_or_else(|| written.to_owned(), |whole| whole.to_string_lossy().into_owned());
    Folder { base: folder.base.clone(), written, is_typed: true }
}
