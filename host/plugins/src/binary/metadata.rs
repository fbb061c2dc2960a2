//! Reads the version and the description that a toolchain has written into a component, in the custom sections `version`
//! and `description` of the WebAssembly tool conventions.

use super::sections::{Sections, custom_data};
use crate::text::clean;

/// Maximum length of each text, in bytes.
const TEXT_BYTES: usize = 1024;

/// The texts that a component contains about itself, apart from its manifest. They are claims of its author.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentMetadata {
    /// Version of the component.
    pub version: Option<String>,
    /// Description of the component.
    pub description: Option<String>,
}

impl ComponentMetadata {
    /// Reads the texts from the outermost sections of a component. Texts that are not UTF-8 are ignored.
    pub fn of(component: &[u8]) -> Self {
        let mut found = Self::default();
        for section in Sections::of(component).into_iter().flatten().map_while(Result::ok) {
            let text = |name| custom_data(section, name).and_then(|data| std::str::from_utf8(data).ok());
            let text = |name| text(name).map(|text| clean(text, TEXT_BYTES));
            found.version = text("version").or(found.version);
            found.description = text("description").or(found.description);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_escaped() {
        let text = "(component (@custom \"version\" \"1.2.3\") (@custom \"description\" \"Finds \\1b[2Jwords.\"))";
        let component = wat::parse_str(text).expect("a component");
        let found = ComponentMetadata::of(&component);
        assert_eq!(found.version.as_deref(), Some("1.2.3"));
        assert_eq!(found.description.as_deref(), Some("Finds \\u{1b}[2Jwords."));
        assert_eq!(ComponentMetadata::of(b"text"), ComponentMetadata::default());
    }
}
