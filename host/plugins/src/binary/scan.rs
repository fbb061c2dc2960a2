//! Reads a component's imports and exports from its bytes before the component is compiled. The scan runs in the child
//! process that examines components, after the module `structure` has checked the limits on the component's structure.
//! The host process itself reads only the headers of the outermost sections, the manifest, and the names of
//! imports and exports.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType};
use wasmparser::types::Types;
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentExternalKind, Parser, Payload, ValidPayload, Validator, WasmFeatures,
};

/// The magic bytes that identify a file with compiled code in this host's cache.
pub(crate) const COMPILED_MAGIC: &[u8] = b"agent-host compiled 2\n";

/// The imports and exports of a component.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Names of the component's imports, in the order in which the component lists them.
    pub(crate) imports: Vec<String>,
    /// Names of the component's exports, in the order in which the component lists them.
    pub(crate) exports: Vec<String>,
    /// Whether the component exports functions with the async ABI.
    pub(crate) has_async_lift: bool,
}

/// The names of a component's imports and exports, in the order in which the component lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// Names of the imports, for example `wasi:io/streams@0.2.0`.
    pub imports: Vec<String>,
    /// Names of the exports, for example `agent-host:plugin/tool@0.1.0`.
    pub exports: Vec<String>,
}

/// The reason why a file cannot be loaded as a plugin (row 11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum NotAComponent {
    /// The format of the file is not known.
    #[error("it is not a WebAssembly component (it begins with {start}); build one with `agent-host plugin build`")]
    Unknown {
        /// The first bytes of the file, in hexadecimal.
        start: String,
    },
    /// The file is a core module.
    #[error("it is a core WebAssembly module{0}, not a component; {advice}", advice = .0.advice())]
    CoreModule(ModuleTarget),
    /// The file is WebAssembly text.
    #[error("it is WebAssembly text; compile it to a component first (`wasm-tools parse`)")]
    Text,
    /// The file contains compiled code, which the host loads only from its own cache.
    #[error("it is precompiled code, which is never loaded as a plugin; pass the component itself (`.wasm`)")]
    Precompiled,
    /// The file contains only interface definitions.
    #[error("it is a WIT package: interface definitions without code; build a component that implements them")]
    WitPackage,
    /// The file violates the binary format.
    #[error("it is damaged: {reason}")]
    Damaged {
        /// Describes the damage and the byte offset of the damage in the file.
        reason: String,
    },
    /// The component exports functions with the async ABI, which the host does not support.
    #[error(
        "it exports functions with the async ABI, which this host does not call; build it with synchronous exports"
    )]
    AsyncExport,
}

/// The target for which a core module was built. The target determines how to turn the module into a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModuleTarget {
    /// The module is a program for WASI preview 1.
    Preview1Command,
    /// The module is a library for WASI preview 1.
    Preview1Reactor,
    /// The module was built to become a component: it already contains its interface types.
    Component,
    /// The module was built for a web page or a JavaScript engine.
    JavaScript,
    /// The module's imports and sections do not show for which target the module was built.
    Unknown,
}

impl ModuleTarget {
    /// Determines the target from the module's imports and sections.
    fn of(module: &[u8]) -> Self {
        let (mut preview1, mut script, mut described, mut program) = (false, false, false, false);
        for payload in Parser::new(0).parse_all(module) {
            match payload {
                Ok(Payload::ImportSection(section)) => {
                    for import in section.into_imports().flatten() {
                        preview1 |= matches!(import.module, "wasi_snapshot_preview1" | "wasi_unstable");
                        script |= import.module.contains("wbg") || import.module.ends_with(".js");
                    }
                }
                Ok(Payload::ExportSection(section)) => {
                    program |= section.into_iter().flatten().any(|export| export.name == "_start");
                }
                Ok(Payload::CustomSection(section)) => described |= section.name().starts_with("component-type"),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        match (preview1, program) {
            (true, true) => ModuleTarget::Preview1Command,
            (true, false) => ModuleTarget::Preview1Reactor,
            _ if described => ModuleTarget::Component,
            _ if script => ModuleTarget::JavaScript,
            _ => ModuleTarget::Unknown,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            ModuleTarget::Preview1Command => {
                "build it for the target wasm32-wasip2, or turn it into a component: `jco new FILE --wasi-command -o NEW.wasm`"
            }
            ModuleTarget::Preview1Reactor => {
                "build it for the target wasm32-wasip2, or turn it into a component: `jco new FILE --wasi-reactor -o NEW.wasm`"
            }
            ModuleTarget::Component => "turn it into a component: `wasm-tools component new FILE -o NEW.wasm`",
            ModuleTarget::JavaScript => "its imports are JavaScript functions; build it for the target wasm32-wasip2",
            ModuleTarget::Unknown => {
                "build it for the target wasm32-wasip2, or wrap it with `wasm-tools component new`"
            }
        }
    }
}

impl fmt::Display for ModuleTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ModuleTarget::Preview1Command | ModuleTarget::Preview1Reactor => " for WASI preview 1",
            ModuleTarget::Component => " that was built to become a component",
            ModuleTarget::JavaScript => " for JavaScript",
            ModuleTarget::Unknown => "",
        })
    }
}

/// Reads the imports and exports of the outermost component. Nested components are not read here: the compiler
/// validates them.
pub(crate) fn scan(bytes: &[u8]) -> Result<Scan, NotAComponent> {
    if Parser::is_core_wasm(bytes) {
        return Err(NotAComponent::CoreModule(ModuleTarget::of(bytes)));
    }
    check_header(bytes)?;
    let mut scan = Scan::default();
    let mut depth = 0_u32;
    let mut has_code = false;
    let mut only_types = true;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(damaged)? {
            Payload::ModuleSection { .. } => {
                has_code = true;
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    scan.has_async_lift |= is_async_lift(&function.map_err(damaged)?);
                }
            }
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    scan.imports.push(import.map_err(damaged)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    let export = export.map_err(damaged)?;
                    only_types &= export.kind == ComponentExternalKind::Type;
                    scan.exports.push(export.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    if !has_code && only_types && !scan.exports.is_empty() {
        return Err(NotAComponent::WitPackage);
    }
    Ok(scan)
}

/// Names of the imports that contain only types, which the host does not have to implement. For example, if an
/// exported interface uses the types of another interface, the component has an import that contains only these types.
/// This function does not read the code in the component. If the component is damaged, the returned set is empty.
pub(crate) fn type_only_imports(bytes: &[u8], imports: &[String]) -> BTreeSet<String> {
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    let mut outermost = None;
    for payload in Parser::new(0).parse_all(bytes) {
        let Some(valid) = payload.ok().and_then(|payload| validator.payload(&payload).ok()) else {
            return BTreeSet::new();
        };
        if let ValidPayload::End(types) = valid {
            // The last end that the parser reports is the end of the outermost component.
            outermost = Some(types);
        }
    }
    let Some(types) = outermost else { return BTreeSet::new() };
    let is_type_only =
        |name: &&String| types.component_item_for_import(name).is_some_and(|item| has_only_types(&item.ty, &types));
    imports.iter().filter(is_type_only).cloned().collect()
}

fn has_only_types(item: &ComponentEntityType, types: &Types) -> bool {
    match item {
        ComponentEntityType::Type { referenced, .. } => matches!(referenced, ComponentAnyTypeId::Defined(_)),
        ComponentEntityType::Instance(instance) => {
            types[*instance].exports.values().all(|item| has_only_types(&item.ty, types))
        }
        _ => false,
    }
}

/// Checks that the first bytes of a file are the header of a component.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), NotAComponent> {
    if Parser::is_component(bytes) {
        return Ok(());
    }
    if Parser::is_core_wasm(bytes) {
        return Err(NotAComponent::CoreModule(ModuleTarget::Unknown));
    }
    // Compiled code of wasmtime is an ELF file, and files of the host's cache can be recognised by the magic bytes of
    // the cache.
    if bytes.starts_with(b"\x7fELF") || bytes.starts_with(COMPILED_MAGIC) {
        return Err(NotAComponent::Precompiled);
    }
    if bytes.trim_ascii_start().starts_with(b"(component") || bytes.trim_ascii_start().starts_with(b"(module") {
        return Err(NotAComponent::Text);
    }
    let start = if bytes.is_empty() {
        "nothing: the file is empty".to_owned()
    } else {
        bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    Err(NotAComponent::Unknown { start })
}

fn is_async_lift(function: &CanonicalFunction) -> bool {
    matches!(function, CanonicalFunction::Lift { options, .. } if options.contains(&CanonicalOption::Async))
}

fn damaged(error: wasmparser::BinaryReaderError) -> NotAComponent {
    NotAComponent::Damaged { reason: format!("{} at byte {}", error.message(), error.offset()) }
}
