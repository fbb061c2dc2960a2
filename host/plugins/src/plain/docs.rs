//! What a component's WIT says about its functions: the custom section `package-docs`, which holds the documentation of
//! a package as JSON behind a byte for its version.

use serde::Deserialize;
use std::collections::BTreeMap;
use wasmparser::{Parser, Payload};

const SECTION: &str = "package-docs";
/// The versions of the section that are read.
const VERSIONS: [u8; 2] = [0, 1];
/// Most bytes of one section.
const SECTION_BYTES: usize = 1024 * 1024;
/// Most sections.
const SECTIONS: usize = 64;

/// The documentation of all packages that the component describes.
#[derive(Debug, Default)]
pub(super) struct Docs {
    packages: Vec<Package>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Package {
    worlds: BTreeMap<String, World>,
    interfaces: BTreeMap<String, Interface>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct World {
    interfaces: BTreeMap<String, Interface>,
    interface_exports: BTreeMap<String, Interface>,
    funcs: BTreeMap<String, Function>,
    func_exports: BTreeMap<String, Function>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interface {
    funcs: BTreeMap<String, Function>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Function {
    docs: Option<String>,
}

impl Docs {
    /// Of a component, whichever of its parts carries them. What cannot be read says nothing.
    pub(super) fn read(component: &[u8]) -> Self {
        let payloads = Parser::new(0).parse_all(component).map_while(Result::ok);
        let sections = payloads.filter_map(|payload| match payload {
            Payload::CustomSection(section) if section.name() == SECTION => Some(section.data()),
            _ => None,
        });
        Self { packages: sections.take(SECTIONS).filter_map(package).collect() }
    }

    /// Of a function as the component exports it. Two packages that say different things say nothing.
    pub(super) fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let mut said = self.packages.iter().filter_map(|package| package.function(interface, function));
        let first = said.next()?;
        said.all(|other| other == first).then_some(first)
    }
}

impl Package {
    fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let docs = |function: &'_ Function| function.docs.is_some();
        let worlds = self.worlds.values();
        let found = match interface.map(|name| name.split('@').next().unwrap_or(name)) {
            None => worlds
                .flat_map(|world| [&world.func_exports, &world.funcs])
                .filter_map(|functions| functions.get(function))
                .find(|function| docs(function)),
            Some(path) => match path.rsplit_once('/') {
                Some((_, name)) => self.interfaces.get(name).and_then(|interface| interface.funcs.get(function)),
                None => worlds
                    .flat_map(|world| [&world.interface_exports, &world.interfaces])
                    .filter_map(|interfaces| interfaces.get(path)?.funcs.get(function))
                    .find(|function| docs(function)),
            },
        };
        found?.docs.as_deref().filter(|docs| !docs.trim().is_empty())
    }
}

fn package(section: &[u8]) -> Option<Package> {
    let (version, json) = section.split_first()?;
    if !VERSIONS.contains(version) || json.len() > SECTION_BYTES {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::CustomSection;

    fn component(sections: &[&str]) -> Vec<u8> {
        let mut component = wasm_encoder::Component::new();
        for json in sections {
            let data = [&[1], json.as_bytes()].concat();
            component.section(&CustomSection { name: SECTION.into(), data: data.into() });
        }
        component.finish()
    }

    // P3: docs come from the section, for functions of interfaces and of the world; a broken section is no problem.
    #[test]
    fn docs_are_found_by_interface_and_function() {
        let words = r#"{"docs": "All.", "interfaces": {"ops": {"funcs": {"add": {"docs": "Adds.", "new": 1},
            "[method]c.inc": {"docs": "Counts."}}}}, "worlds": {"w": {"func_exports": {"greet": {"docs": "Greets."}},
            "interface_exports": {"inline": {"funcs": {"f": {"docs": "Inline."}}}}}}}"#;
        let other = r#"{"interfaces": {"ops": {"funcs": {"add": {"docs": "Adds otherwise."}}}}}"#;
        let docs = Docs::read(&component(&[words, "{broken"]));
        assert_eq!(docs.function(Some("docs:calc/ops@0.1.0"), "add"), Some("Adds."));
        assert_eq!(docs.function(Some("docs:calc/ops"), "[method]c.inc"), Some("Counts."));
        assert_eq!(docs.function(None, "greet"), Some("Greets."));
        assert_eq!(docs.function(Some("inline"), "f"), Some("Inline."));
        assert_eq!(docs.function(None, "add"), None);
        let both = Docs::read(&component(&[words, other]));
        assert_eq!(both.function(Some("docs:calc/ops"), "add"), None, "nobody knows which of them is meant");
        assert_eq!(Docs::read(b"junk").function(None, "x"), None);
    }
}
