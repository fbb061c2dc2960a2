//! The choice of standard plugins in `setup`. Without a choice, all plugins are used from the folder in which they were
//! installed. If the user chooses some of them, these are copied into the user's own plugin folder and locked there, so
//! that `plugin update` brings the versions of a newer installation.

use super::{Asking, Setup};
use crate::commands::plugin::{index_lines, installed_index};
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, text};
use agent_config::agent_file::nearest;
use agent_registry::{FolderEntry, FolderIndex, LockedPlugin, PluginFolder, RemoveMode, ReplacePolicy};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Name of the user's plugin folder beside the user-wide file.
const USER_PLUGINS: &str = "plugins";

/// The installed standard plugins.
pub(super) struct StandardPlugins {
    folder: PathBuf,
    index: FolderIndex,
    /// The user's plugin folder, into which a selection is copied.
    own: PathBuf,
}

/// The plugins that were installed together with this program, which may read the current folder by default.
pub(super) struct InstalledPlugins(Option<(PathBuf, Option<FolderIndex>)>);

impl InstalledPlugins {
    pub(super) fn find() -> Result<Self, Failure> {
        let folder = environment::host().installed_plugins();
        let index = installed_index()?.map(|(_, index)| index);
        Ok(Self(folder.map(|folder| (folder, index))))
    }

    /// Whether this component is the installed plugin with this name: its digest is in the index of the installed plugins.
    /// If they have no index, it must be in their folder.
    pub(super) fn contains(&self, component: &Path, name: &str) -> bool {
        match &self.0 {
            None => false,
            Some((_, Some(index))) => index.plugin(name).is_some_and(|entry| {
                let read = agent_plugins::read_component(component, entry.size);
                read.is_ok_and(|bytes| agent_plugins::digest_of(&bytes) == entry.component)
            }),
            Some((folder, None)) => {
                let canonical = |path: &Path| path.canonicalize().ok();
                canonical(folder).is_some_and(|folder| component.parent().and_then(canonical) == Some(folder))
            }
        }
    }
}

impl StandardPlugins {
    /// Returns the installed plugins, if they have an index. `user_file` is the user-wide file.
    pub(super) fn find(user_file: &Path) -> Result<Option<Self>, Failure> {
        let own = user_file.with_file_name(USER_PLUGINS);
        Ok(installed_index()?.map(|(folder, index)| Self { folder, index, own }))
    }

    /// Whether the plugins in this folder are standard plugins or a selection of them.
    pub(super) fn are_in(&self, folder: &Path) -> bool {
        folder == self.folder || folder == self.own
    }

    /// Whether this is the folder of a selection.
    fn is_selection(&self, folder: &Path) -> bool {
        folder == self.own
    }

    /// The plugins that the user has selected before, by name. Empty if the user uses all of them.
    fn selected(&self, folder: &Path) -> Vec<String> {
        if !self.is_selection(folder) {
            return Vec::new();
        }
        let locked = PluginFolder::new(&self.own).lock_file().map(|lock| lock.plugins().to_vec()).unwrap_or_default();
        locked.into_iter().filter(|plugin| self.is_from_here(plugin)).map(|plugin| plugin.name).collect()
    }

    fn is_from_here(&self, plugin: &LockedPlugin) -> bool {
        let canonical = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
        Path::new(&plugin.reference).parent().is_some_and(|parent| canonical(parent) == canonical(&self.folder))
    }

    /// Finds plugins by numbers of the shown list or by names.
    fn find_all(&self, words: &[&str]) -> Result<Vec<&FolderEntry>, String> {
        let names = || self.index.plugins.iter().map(|entry| entry.name.as_str());
        let find = |word: &&str| {
            let by_number =
                word.parse::<usize>().ok().and_then(|number| self.index.plugins.get(number.checked_sub(1)?));
            self.index.plugin(word).or(by_number).ok_or_else(|| {
                let hint = nearest(word, names()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("there is no standard plugin `{}`{hint}", text::one_line(word, 100))
            })
        };
        words.iter().map(find).collect()
    }

    /// Copies the selected plugins into the user's plugin folder, and removes standard plugins there that are no longer
    /// selected. Returns the folder.
    fn install(&self, selected: &[&FolderEntry]) -> Result<PathBuf, Failure> {
        let folder = PluginFolder::new(&self.own);
        for entry in selected {
            let (bytes, locked) = entry.component_in(&self.folder).map_err(Failure::refused)?;
            folder.install(locked, &bytes, ReplacePolicy::LockedFile).map_err(Failure::refused)?;
        }
        let names: BTreeSet<&str> = selected.iter().map(|entry| entry.name.as_str()).collect();
        let lock = folder.lock_file().map_err(Failure::refused)?;
        for plugin in
            lock.plugins().iter().filter(|plugin| self.is_from_here(plugin) && !names.contains(plugin.name.as_str()))
        {
            folder.remove(&plugin.name, RemoveMode::EntryAndFile).map_err(Failure::refused)?;
        }
        Ok(self.own.clone())
    }

    fn shown(&self, width: usize) -> String {
        let entries = self.index.plugins.iter().enumerate();
        let entry = |(number, entry): (usize, &FolderEntry)| {
            let lines = index_lines(entry).replace('\n', "\n    ");
            text::wrapped_entry(&format!("{:>3} {lines}", number + 1), width)
        };
        entries.map(entry).collect::<Vec<_>>().join("\n")
    }
}

impl Setup<'_> {
    /// Lets the user choose some of the standard plugins, if these are the plugins of the chosen folder. Returns None if
    /// the user has ended the input.
    pub(super) async fn choose_standard_plugins(&mut self, user_file: &Path) -> Result<Option<()>, Failure> {
        let standard = StandardPlugins::find(user_file)?;
        let chosen = self.choices.plugins.clone();
        let Some(standard) = standard.filter(|standard| chosen.is_none_or(|folder| standard.are_in(&folder))) else {
            return match self.arguments.standard.is_empty() {
                true => Ok(Some(())),
                false => Err(Failure::refused(
                    "--standard: no standard plugins with an index were installed together with this program",
                )),
            };
        };
        if !self.arguments.standard.is_empty() {
            let words: Vec<&str> = self.arguments.standard.iter().map(String::as_str).collect();
            let selected =
                standard.find_all(&words).map_err(|problem| Failure::refused(format!("--standard: {problem}")))?;
            self.choices.plugins = Some(standard.install(&selected)?);
            return Ok(Some(()));
        }
        if self.asking == Asking::Nobody {
            return Ok(Some(()));
        }
        self.terminal.note(format!("{BOLD}Which standard plugins?{BOLD:#}"));
        self.terminal.note(standard.shown(self.terminal.width()));
        self.terminal.note(format!(
            "  {DIM}what a plugin asks for, it gets only after you grant it; write `all`, or numbers or names{DIM:#}"
        ));
        let present = self.choices.plugins.as_deref().map(|folder| standard.selected(folder)).unwrap_or_default();
        let default = if present.is_empty() { "all".to_owned() } else { present.join(" ") };
        loop {
            let Some(answer) = self.ask(&format!("Plugins [{default}]: ")).await? else { return Ok(None) };
            let answer = if answer.is_empty() { default.clone() } else { answer };
            if answer == "all" {
                self.choices.plugins = Some(standard.folder);
                return Ok(Some(()));
            }
            let words: Vec<&str> = answer.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            match standard.find_all(&words) {
                Ok(selected) => {
                    self.choices.plugins = Some(standard.install(&selected)?);
                    return Ok(Some(()));
                }
                Err(problem) => self.warn(&problem),
            }
        }
    }
}
