//! `/theme`: colours for a light or a dark terminal. The choice is stored in the data folder.

use super::Chat;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, Theme};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Name of the file in the data folder that contains the name of the theme.
const FILE: &str = "theme";
/// Maximum size of the file in bytes.
const MAX_FILE: u64 = 64;

/// Uses the theme that the user has chosen, or else the theme that suits the background of the terminal. The data folder may
/// be missing.
pub(crate) fn use_stored(terminal: &Terminal, data: Option<&Path>) {
    let data = data.map(Path::to_owned).or_else(|| environment::host().data_directory);
    let read = |folder: PathBuf| {
        let mut name = String::new();
        std::fs::File::open(folder.join(FILE)).ok()?.take(MAX_FILE).read_to_string(&mut name).ok()?;
        Theme::parse(name.trim())
    };
    let stored = data.and_then(read);
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
        let saved = std::fs::write(self.storage.data.root().join(FILE), theme.name());
        self.terminal.use_theme(theme);
        self.note(format!("the theme is `{}` from now on", theme.name()));
        saved.map_err(|error| Failure::failed(format!("the theme is used only in this session: {error}")))
    }
}
