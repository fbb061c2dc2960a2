//! Reads the sections of a component's outermost level in the host process, before any other code reads the component.
//! The reader is a loop over section headers. The loop does not descend into nested modules, components or types.

use super::scan::{Interfaces, NotAComponent};
use wasmparser::{BinaryReader, BinaryReaderError, ComponentExternalKind, FromReader, Parser, SectionLimited};

/// Name of the custom section that contains a component's manifest as JSON.
pub const MANIFEST_SECTION: &str = "agent-host:manifest";

/// Size of a component's header in bytes: the magic number and the version.
pub(crate) const HEADER_BYTES: usize = 8;
pub(crate) const CUSTOM_SECTION: u8 = 0;
const CORE_MODULE_SECTION: u8 = 1;
const COMPONENT_SECTION: u8 = 4;
const IMPORT_SECTION: u8 = 10;
const EXPORT_SECTION: u8 = 11;
/// Maximum number of imports, and also of exports, that the host process reads from a component. The setting
/// `component_interfaces` cannot be higher than this number.
const MAX_NAMES: usize = 10_000;

/// One section of a component's outermost level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) id: u8,
    pub(crate) contents: &'a [u8],
}

/// An iterator over the sections of a component. The iterator ends after the first damaged section.
pub(crate) struct Sections<'a> {
    reader: Option<BinaryReader<'a>>,
}

impl<'a> Sections<'a> {
    /// Creates an iterator over the sections of this component. Fails if the bytes do not start with a
    /// component's header.
    pub(crate) fn of(component: &'a [u8]) -> Result<Self, NotAComponent> {
        crate::binary::scan::check_header(component)?;
        Ok(Self { reader: Some(BinaryReader::new(&component[HEADER_BYTES..], HEADER_BYTES)) })
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, NotAComponent>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut().filter(|reader| !reader.eof())?;
        let section = read_section(reader);
        if section.is_err() {
            self.reader = None;
        }
        Some(section.map_err(damaged))
    }
}

fn read_section<'a>(reader: &mut BinaryReader<'a>) -> Result<Section<'a>, BinaryReaderError> {
    let id = reader.read_u8()?;
    let size = reader.read_var_u32()?;
    Ok(Section { id, contents: reader.read_bytes(size as usize)? })
}

/// The result of the search for a manifest: the manifest's JSON, and the damage in the file that ended the search
/// early. A manifest that precedes the damage is still found, so that the plugin's name can be compared with the lock
/// file even if bytes were appended to the file.
pub(crate) struct FoundManifest<'a> {
    pub(crate) json: Option<&'a [u8]>,
    pub(crate) damage: Option<NotAComponent>,
}

/// Finds the manifest section. If there are several manifest sections, returns the last of them.
pub(crate) fn find_manifest(component: &[u8]) -> Result<FoundManifest<'_>, NotAComponent> {
    let mut found = FoundManifest { json: None, damage: None };
    for section in Sections::of(component)? {
        match section {
            Ok(section) => found.json = manifest_json(section).or(found.json),
            Err(damage) => found.damage = Some(damage),
        }
    }
    Ok(found)
}

/// The manifest's JSON if the section is a manifest section, or None.
pub(crate) fn manifest_json(section: Section<'_>) -> Option<&[u8]> {
    custom_data(section, MANIFEST_SECTION)
}

/// The data of the section if it is a custom section with this name, or None.
pub(crate) fn custom_data<'a>(section: Section<'a>, name: &str) -> Option<&'a [u8]> {
    if section.id != CUSTOM_SECTION {
        return None;
    }
    let mut reader = BinaryReader::new(section.contents, 0);
    let has_name = reader.read_string().is_ok_and(|found| found == name);
    has_name.then(|| &section.contents[reader.current_position()..])
}

/// The names of a component's imports and exports, in the order in which the component lists them. Fails if there are
/// more than 10,000 imports or more than 10,000 exports.
pub fn interfaces(component: &[u8]) -> Result<Interfaces, NotAComponent> {
    let (mut found, mut has_code, mut only_types) = (Interfaces::default(), false, true);
    for section in Sections::of(component)? {
        let Section { id, contents } = section?;
        match id {
            IMPORT_SECTION => read_names(contents, &mut found.imports, |import: wasmparser::ComponentImport<'_>| {
                import.name.name.to_owned()
            })?,
            EXPORT_SECTION => read_names(contents, &mut found.exports, |export: wasmparser::ComponentExport<'_>| {
                only_types &= export.kind == ComponentExternalKind::Type;
                export.name.name.to_owned()
            })?,
            CORE_MODULE_SECTION => has_code = true,
            COMPONENT_SECTION => has_code |= contains_module(contents),
            _ => {}
        }
    }
    if !has_code && only_types && !found.exports.is_empty() {
        return Err(NotAComponent::WitPackage);
    }
    Ok(found)
}

/// Whether a nested component itself contains a module or component. In a WIT package that is encoded as a component,
/// no nested component contains a module or component.
fn contains_module(component: &[u8]) -> bool {
    let sections = Sections::of(component).into_iter().flatten();
    sections.map_while(Result::ok).any(|section| matches!(section.id, CORE_MODULE_SECTION | COMPONENT_SECTION))
}

fn read_names<'a, T: FromReader<'a>>(
    contents: &'a [u8],
    names: &mut Vec<String>,
    mut name: impl FnMut(T) -> String,
) -> Result<(), NotAComponent> {
    for item in SectionLimited::<T>::new(BinaryReader::new(contents, 0)).map_err(damaged)? {
        let item = item.map_err(damaged)?;
        if names.len() >= MAX_NAMES {
            let reason = format!("it has more than {MAX_NAMES} imports or exports");
            return Err(NotAComponent::Damaged { reason });
        }
        names.push(name(item));
    }
    Ok(())
}

/// Whether the bytes have the header of a core module.
pub(crate) fn is_core_module(bytes: &[u8]) -> bool {
    Parser::is_core_wasm(bytes)
}

fn damaged(error: BinaryReaderError) -> NotAComponent {
    NotAComponent::Damaged { reason: format!("{} at byte {}", error.message(), error.offset()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::{Manifest, with_manifest};

    fn component(text: &str) -> Vec<u8> {
        wat::parse_str(text).expect("valid text")
    }

    // P15: the manifest is found even if bytes were appended to the component, so that the plugin's name can be checked
    // against the lock file before the damage is reported.
    #[test]
    fn p15_manifest_is_found_before_appended_bytes() {
        let manifest = Manifest { name: "calc".to_owned(), ..Manifest::default() };
        let whole = with_manifest(&component("(component)"), &manifest).expect("a component");
        let found = find_manifest(&whole).expect("a component");
        assert!(found.json.is_some() && found.damage.is_none());
        let appended = [whole.as_slice(), &[0xff; 40]].concat();
        let found = find_manifest(&appended).expect("a component");
        assert!(found.json.is_some() && found.damage.is_some());
        assert!(find_manifest(b"text").is_err());
    }

    #[test]
    fn interfaces_are_read_at_the_outermost_level_only() {
        let bytes = component(
            r#"(component
                (import "a:b/c@1.0.0" (instance))
                (component (import "x:y/z@1.0.0" (instance)))
                (core module)
                (instance $i)
                (export "d:e/f@1.0.0" (instance $i)))"#,
        );
        let found = interfaces(&bytes).expect("a component");
        assert_eq!((found.imports, found.exports), (vec!["a:b/c@1.0.0".to_owned()], vec!["d:e/f@1.0.0".to_owned()]));
    }

    // Row 36: reading stops with an error as soon as a component has too many imports or exports.
    #[test]
    fn row_36_too_many_names_are_refused() {
        let many: String = (0..=MAX_NAMES).map(|number| format!("(import \"a{number}\" (func))")).collect();
        let error = interfaces(&component(&format!("(component {many})"))).expect_err("too many");
        assert!(error.to_string().contains("more than 10000"), "{error}");
    }
}
