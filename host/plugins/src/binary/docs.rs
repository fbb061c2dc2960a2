//! Reads the WIT documentation that a component contains. The custom section `package-docs` contains a version byte and
//! the documentation of a package as JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wasmparser::{Parser, Payload};

const SECTION_NAME: &str = "package-docs";
/// The versions of the `package-docs` format that this module can read.
const SUPPORTED_VERSIONS: [u8; 2] = [0, 1];
/// Maximum total size of all documentation sections of a component, in bytes.
const DOCS_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of one documentation section, in bytes.
const SECTION_BYTES: usize = 1024 * 1024;
/// Maximum number of documentation sections that are read from a component.
const MAX_SECTIONS: usize = 64;

/// The documentation of all WIT packages that a component describes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Docs {
    packages: Vec<Package>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Package {
    worlds: BTreeMap<String, World>,
    interfaces: BTreeMap<String, Interface>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct World {
    interfaces: BTreeMap<String, Interface>,
    interface_exports: BTreeMap<String, Interface>,
    funcs: BTreeMap<String, Function>,
    func_exports: BTreeMap<String, Function>,
    types: BTreeMap<String, TypeDocs>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Interface {
    funcs: BTreeMap<String, Function>,
    types: BTreeMap<String, TypeDocs>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Function {
    docs: Option<String>,
}

/// The documentation of a type and of its fields, cases or flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TypeDocs {
    pub(crate) docs: Option<String>,
    pub(crate) items: BTreeMap<String, String>,
}

impl Docs {
    /// Reads the documentation from a component and from all components nested in it. Documentation sections that
    /// cannot be read are ignored. This function parses the whole component, so it runs in the child process that
    /// examines components.
    pub(crate) fn read(component: &[u8]) -> Self {
        let payloads = Parser::new(0).parse_all(component).map_while(Result::ok);
        let sections = payloads.filter_map(|payload| match payload {
            Payload::CustomSection(section) if section.name() == SECTION_NAME => Some(section.data()),
            _ => None,
        });
        let mut left = DOCS_BYTES;
        let bounded = sections.take(MAX_SECTIONS).take_while(|section| match left.checked_sub(section.len()) {
            Some(remaining) => {
                left = remaining;
                true
            }
            None => false,
        });
        Self { packages: bounded.filter_map(package).collect() }
    }

    /// The documentation of an exported function. None if the function has no documentation, or if several packages
    /// document it differently.
    pub(crate) fn function(&self, interface: Option<&str>, function: &str) -> Option<&str> {
        let mut docs = self.packages.iter().filter_map(|package| package.function(interface, function));
        let first = docs.next()?;
        docs.all(|other| other == first).then_some(first)
    }

    /// The documentation of a type that an interface defines or uses under this name. None if the type has no
    /// documentation, or if several packages document it differently.
    pub(crate) fn of_type(&self, interface: Option<&str>, name: &str) -> Option<&TypeDocs> {
        let of_interface = self.packages.iter().flat_map(|package| package.types_of(interface));
        let of_interface: Vec<_> = of_interface.filter_map(|types| types.get(name)).collect();
        let everywhere = || self.packages.iter().flat_map(Package::types).filter_map(|types| types.get(name)).collect();
        let docs = if of_interface.is_empty() { everywhere() } else { of_interface };
        let (first, others) = docs.split_first()?;
        others.iter().all(|other| other == first).then_some(*first)
    }
}

type Types = BTreeMap<String, TypeDocs>;

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

impl Package {
    fn types(&self) -> impl Iterator<Item = &Types> {
        let of_worlds = self.worlds.values().flat_map(|world| {
            let interfaces = world.interfaces.values().chain(world.interface_exports.values());
            interfaces.map(|interface| &interface.types).chain([&world.types])
        });
        self.interfaces.values().map(|interface| &interface.types).chain(of_worlds)
    }

    fn types_of(&self, interface: Option<&str>) -> Vec<&Types> {
        let worlds = self.worlds.values();
        match interface.map(|name| name.split('@').next().unwrap_or(name)) {
            None => worlds.map(|world| &world.types).collect(),
            Some(path) => match path.rsplit_once('/') {
                Some((_, name)) => self.interfaces.get(name).map(|interface| &interface.types).into_iter().collect(),
                None => worlds
                    .flat_map(|world| [&world.interface_exports, &world.interfaces])
                    .filter_map(|interfaces| Some(&interfaces.get(path)?.types))
                    .collect(),
            },
        }
    }
}

fn package(section: &[u8]) -> Option<Package> {
    let (version, json) = section.split_first()?;
    if !SUPPORTED_VERSIONS.contains(version) || json.len() > SECTION_BYTES {
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
            component.section(&CustomSection { name: SECTION_NAME.into(), data: data.into() });
        }
        component.finish()
    }

    // P3: documentation is found for functions of interfaces and of worlds. A broken documentation section is ignored.
    #[test]
    fn p3_docs_are_found_by_interface_and_function() {
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
        assert_eq!(both.function(Some("docs:calc/ops"), "add"), None, "the packages disagree");
        assert_eq!(Docs::read(b"junk").function(None, "x"), None);
    }

    // P3: the documentation of a type is read from the interface that defines the type, even if the type is looked up
    // through an interface that only uses it.
    #[test]
    fn p3_docs_are_found_by_type() {
        let words = r#"{"interfaces": {"shapes": {"types": {"point": {"docs": "A place.", "items": {"x": "East."}}}},
            "maps": {"types": {"tile": {"docs": "Of a map."}}}, "floors": {"types": {"tile": {"docs": "Of a floor."}}}},
            "worlds": {"w": {"types": {"mode": {"docs": "How."}}}}}"#;
        let docs = Docs::read(&component(&[words]));
        let type_docs = |interface, name| docs.of_type(interface, name).and_then(|docs| docs.docs.as_deref());
        assert_eq!(type_docs(Some("docs:calc/shapes@0.1.0"), "point"), Some("A place."));
        assert_eq!(type_docs(Some("docs:calc/paint@0.1.0"), "point"), Some("A place."), "the interface uses the type");
        assert_eq!(type_docs(Some("docs:calc/maps"), "tile"), Some("Of a map."));
        assert_eq!(type_docs(Some("docs:calc/paint"), "tile"), None, "the packages disagree");
        assert_eq!(type_docs(None, "mode"), Some("How."));
        assert_eq!(docs.of_type(None, "point").and_then(|docs| docs.items.get("x")).map(String::as_str), Some("East."));
    }
}
