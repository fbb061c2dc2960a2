//! Colours for terminals with a dark or a light background.

use super::Terminal;

/// Codes that are hard to read on a light background, each with its replacement: yellow becomes magenta, and cyan
/// becomes blue.
const REPLACED: [(&str, &str); 2] = [("\u{1b}[33m", "\u{1b}[35m"), ("\u{1b}[36m", "\u{1b}[34m")];

/// The colours of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    /// Colours for a dark background.
    #[default]
    Dark,
    /// Colours for a light background.
    Light,
    /// No colours and no styles.
    None,
}

impl Theme {
    /// Returns the theme with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Theme::Dark, Theme::Light, Theme::None].into_iter().find(|theme| theme.name() == name)
    }

    /// Returns the name that users write.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Theme::Dark => "dark",
            Theme::Light => "light",
            Theme::None => "none",
        }
    }

    /// Replaces the colours of the dark theme by those of this theme.
    pub(super) fn recolour(self, text: String) -> String {
        match self {
            Theme::Light if text.contains('\u{1b}') => {
                REPLACED.iter().fold(text, |text, (dark, light)| text.replace(dark, light))
            }
            Theme::Light | Theme::Dark | Theme::None => text,
        }
    }
}

impl Terminal {
    /// Returns the theme of the output.
    pub(crate) fn theme(&self) -> Theme {
        self.screen().theme
    }

    /// Uses this theme for all later output of the process.
    pub(crate) fn use_theme(&self, theme: Theme) {
        self.screen().theme = theme;
        let choice = if theme == Theme::None { anstream::ColorChoice::Never } else { anstream::ColorChoice::Auto };
        // A dumb terminal never gets colours.
        if self.interactive {
            choice.write_global();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RED, YELLOW};
    use super::*;

    #[test]
    fn i1_the_light_theme_replaces_colours_that_are_hard_to_read() {
        let text = format!("{YELLOW}!{YELLOW:#} {RED}error{RED:#}");
        assert_eq!(Theme::Dark.recolour(text.clone()), text);
        assert_eq!(Theme::Light.recolour(text.clone()), text.replace("[33m", "[35m"));
        assert!(Theme::Light.recolour(text).contains("[31merror"));
        for theme in [Theme::Dark, Theme::Light, Theme::None] {
            assert_eq!(Theme::parse(theme.name()), Some(theme));
        }
        assert_eq!(Theme::parse("blue"), None);
    }
}
