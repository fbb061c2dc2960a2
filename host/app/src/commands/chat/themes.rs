//! `/theme`: colours for a light or a dark terminal. The choice is stored in the data folder.

use super::Chat;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, Theme};
use agent_config::DataDirectory;
use std::path::PathBuf;

fn file(data: &DataDirectory) -> PathBuf {
    data.root().join("theme")
}

/// Uses the theme that the user has chosen, or else the theme that suits the background of the terminal.
pub(super) fn use_stored(terminal: &Terminal, data: &DataDirectory) {
    let stored = std::fs::read_to_string(file(data)).ok().and_then(|name| Theme::parse(name.trim()));
    let suitable = || environment::has_light_background().then_some(Theme::Light);
    if let Some(theme) = stored.or_else(suitable) {
        terminal.use_theme(theme);
    }
}

impl Chat<'_> {
    /// Shows the theme, or uses another theme in this session and in later sessions.
    pub(super) fn set_theme(&self, theme: Option<Theme>) -> Result<(), Failure> {
        let Some(theme) = theme else {
            let name = self.terminal.theme().name();
            self.note(format!("the theme is `{name}`; /theme light|dark|none changes it"));
            return Ok(());
        };
        let saved = std::fs::write(file(&self.storage.data), theme.name());
        self.terminal.use_theme(theme);
        self.note(format!("the theme is `{}` from now on", theme.name()));
        saved.map_err(|error| Failure::failed(format!("the theme is used only in this session: {error}")))
    }
}
