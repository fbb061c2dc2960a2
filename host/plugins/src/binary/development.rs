//! Development builds: components that get the sources of the plugin from the host when a call starts. The sources are in
//! a custom section of the component, so builds that differ only in their sources have the same compiled code.

use super::scan::NotAComponent;
use super::sections::{HEADER_BYTES, MANIFEST_SECTION, Sections, custom_data, interfaces};
use std::sync::Arc;
use wasm_encoder::{CustomSection, Encode, Section as _};

/// Name of the custom section that contains the sources of a development build.
const SOURCES_SECTION: &str = "agent-host:sources";
/// The interface that a development build imports, and the function of the interface that returns the sources.
pub(crate) const SOURCES_INTERFACE: &str = "agent-host:development/sources@0.1.0";
pub(crate) const SOURCES_FUNCTION: &str = "read";
/// Text before the bytes of the code, so that no component consists of these bytes.
const CODE_PREFIX: &[u8] = b"agent-host: code of a development build\n";

/// The sources of a development build, and everything else.
pub(crate) struct DevelopmentBuild {
    pub(crate) sources: Arc<str>,
    /// All sections except for the manifest and the sources, neither of which affects the compiled code.
    pub(crate) code: Vec<u8>,
}

impl DevelopmentBuild {
    /// Returns None if the component is not a development build.
    pub(crate) fn of(component: &[u8]) -> Option<Self> {
        let mut sources = None;
        let mut code = [CODE_PREFIX, &component[..HEADER_BYTES.min(component.len())]].concat();
        for section in Sections::of(component).ok()? {
            let section = section.ok()?;
            if let Some(data) = custom_data(section, SOURCES_SECTION) {
                sources = Some(Arc::from(std::str::from_utf8(data).ok()?));
            } else if custom_data(section, MANIFEST_SECTION).is_none() {
                code.push(section.id);
                section.contents.encode(&mut code);
            }
        }
        Some(Self { sources: sources?, code })
    }
}

/// Whether the component is a development build. Reads only the headers of the outermost sections.
pub fn is_development_build(component: &[u8]) -> bool {
    let sections = Sections::of(component).into_iter().flatten();
    sections.map_while(Result::ok).any(|section| custom_data(section, SOURCES_SECTION).is_some())
}

/// Returns a copy of the component with these sources, which replace the sources in the component if there are any.
pub fn with_sources(component: &[u8], sources: &str) -> Result<Vec<u8>, NotAComponent> {
    interfaces(component)?;
    let mut bytes = component[..HEADER_BYTES].to_vec();
    for section in Sections::of(component)? {
        let section = section?;
        if custom_data(section, SOURCES_SECTION).is_none() {
            bytes.push(section.id);
            section.contents.encode(&mut bytes);
        }
    }
    CustomSection { name: SOURCES_SECTION.into(), data: sources.as_bytes().into() }.append_to(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::{Manifest, with_manifest};

    // S5: a change of the sources or of the manifest does not change the code.
    #[test]
    fn s5_code_of_a_development_build_does_not_depend_on_the_sources() {
        let built = |text: &str, sources: &str, name: &str| {
            let component = with_sources(&wat::parse_str(text).expect("valid text"), sources).expect("a component");
            let manifest = Manifest { name: name.to_owned(), ..Manifest::default() };
            with_manifest(&component, &manifest).expect("a component")
        };
        let first = built("(component (core module))", "one", "calc");
        let found = DevelopmentBuild::of(&first).expect("a development build");
        assert_eq!(&*found.sources, "one");
        assert!(is_development_build(&first));
        let second = DevelopmentBuild::of(&built("(component (core module))", "two", "words")).expect("one, too");
        assert_eq!((&*second.sources, &second.code), ("two", &found.code));
        let replaced = with_sources(&first, "three").expect("a component");
        let replaced = DevelopmentBuild::of(&replaced).expect("one, too");
        assert_eq!((&*replaced.sources, &replaced.code), ("three", &found.code));
        let other = DevelopmentBuild::of(&built("(component (core module) (core module))", "one", "calc"));
        assert_ne!(other.expect("one, too").code, found.code);
        let plain = wat::parse_str("(component)").expect("valid text");
        assert!(DevelopmentBuild::of(&plain).is_none() && !is_development_build(&plain));
        assert!(found.code.starts_with(CODE_PREFIX));
    }
}
