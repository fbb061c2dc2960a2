//! Examines the exports of a component that are not part of the plugin contract. Determines the functions that become
//! tools, the names of the tools, and the reasons why other functions do not become tools.

use super::constructors::{Constructor, Constructors};
use super::descriptions::Descriptions;
use super::shape::{HandlePosition, Signature};
use super::{Form, GenericFacts, GenericFunction, SkippedExport, command, export_name, names, schema};
use crate::binary::docs::Docs;
use crate::binary::imports::{self, Effects};
use crate::grants::manifest::Manifest;
use crate::limits::{DESCRIPTION_BYTES, TOOLS};
use crate::text::{clean, cut};
use agent_core::schema::Schema;
use agent_core::tool::{ToolDefinition, Traits};
use serde_json::Value;
use std::collections::BTreeSet;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};

/// Maximum number of exported functions of a component that are examined.
const MAX_FUNCTIONS: usize = 4_096;
/// Maximum total size of the schemas of all tools of a component, in bytes.
const SCHEMA_BYTES: usize = 4 * 1024 * 1024;
/// Maximum total number of types, cases and flags in all signatures of a component. A limit is needed because a
/// component can, in a few bytes, declare a type with many parts and then thousands of functions that take this type.
const SIGNATURE_PARTS: usize = 256 * 1024;
/// Maximum number of skipped functions that are listed with the reason for skipping them.
const MAX_SKIPPED: usize = 64;
/// The reason for skipping a function once the limit on all signatures or on all schemas is reached.
const TYPES_TOO_LARGE: &str = "the types of the component are too large in total";

/// The facts about a component, apart from its exports, that determine its tool definitions.
pub(crate) struct KnownFacts<'a> {
    pub(crate) docs: &'a Docs,
    pub(crate) manifest: Option<&'a Manifest>,
    pub(crate) imports: &'a [String],
    /// The tools that the component defines itself, by implementing the `tool` interface of the plugin contract.
    pub(crate) tools: &'a [ToolDefinition],
}

/// Finds the tools among the exports that are not part of the contract, in the order of the exports.
pub(crate) fn discover(component: &Component, known: &KnownFacts<'_>) -> (GenericFacts, Vec<ToolDefinition>) {
    let mut discovery =
        Discovery { functions_left: MAX_FUNCTIONS, parts_left: SIGNATURE_PARTS, ..Discovery::default() };
    let (engine, component_type) = (component.engine(), component.component_type());
    let mut functions = Vec::new();
    for (name, export) in component_type.exports(engine) {
        match export.ty {
            ComponentItem::ComponentFunc(function) => functions.push((name.to_owned(), function)),
            ComponentItem::Type(kind) => discovery.types.push((None, name.to_owned(), kind)),
            ComponentItem::ComponentInstance(instance) if !imports::is_of_contract(name) => {
                let types = instance.exports(engine).filter_map(|(kind_name, export)| match export.ty {
                    ComponentItem::Type(kind) => Some((Some(name.to_owned()), kind_name.to_owned(), kind)),
                    _ => None,
                });
                discovery.types.extend(types.take(MAX_FUNCTIONS));
                let functions = instance.exports(engine).filter_map(|(name, export)| match export.ty {
                    ComponentItem::ComponentFunc(function) => Some((name.to_owned(), function)),
                    _ => None,
                });
                discovery.add_interface(Some(name), functions.take(MAX_FUNCTIONS).collect());
            }
            _ => {}
        }
        if functions.len() > MAX_FUNCTIONS {
            break;
        }
    }
    discovery.add_interface(None, functions);
    discovery.finish(known)
}

#[derive(Default)]
struct Discovery {
    candidates: Vec<Candidate>,
    skipped: Vec<SkippedExport>,
    /// Number of skipped functions that are not in `skipped`, because the list is full.
    unlisted: usize,
    /// The types that the component exports. Each type is listed with the interface that exports it and with the
    /// type's name.
    types: Vec<(Option<String>, String, Type)>,
    /// Number of functions that may still be examined.
    functions_left: usize,
    /// Number of types, cases and flags that the signatures of the remaining functions may contain.
    parts_left: usize,
}

/// A function that can become a tool.
struct Candidate {
    interface: Option<String>,
    function: String,
    /// Name of the function without the annotation in brackets, for example `counter.increment`.
    bare_name: String,
    form: Form,
    signature: Signature,
    constructors: Vec<Constructor>,
}

impl Discovery {
    fn add_interface(&mut self, interface: Option<&str>, functions: Vec<(String, ComponentFunc)>) {
        let constructors = Constructors::find(&functions);
        let mut used = BTreeSet::new();
        for (name, function) in &functions {
            let Some(functions_left) = self.functions_left.checked_sub(1) else {
                self.skip(interface, name, format!("only the first {MAX_FUNCTIONS} functions are examined"));
                continue;
            };
            self.functions_left = functions_left;
            match candidate(interface, name, function, &constructors) {
                Ok(Some(candidate)) => {
                    let Some(parts_left) = self.parts_left.checked_sub(candidate.parts()) else {
                        self.skip(interface, name, TYPES_TOO_LARGE.to_owned());
                        continue;
                    };
                    self.parts_left = parts_left;
                    if let ExportName::Method(resource, _) = ExportName::parse(name) {
                        used.insert(resource.to_owned());
                    }
                    self.candidates.push(candidate);
                }
                Ok(None) => {}
                Err(reason) => self.skip(interface, name, reason),
            }
        }
        for (name, _) in &functions {
            if let Some(resource) = constructors.resource_made_by(name)
                && !used.contains(resource)
            {
                let reason = format!(
                    "the resource that it makes is valid only during its call, and no method of `{resource}` is offered"
                );
                self.skip(interface, name, reason);
            }
        }
    }

    fn skip(&mut self, interface: Option<&str>, function: &str, reason: String) {
        if self.skipped.len() >= MAX_SKIPPED {
            self.unlisted += 1;
            return;
        }
        let function = clean(&export_name(interface, function), 256);
        self.skipped.push(SkippedExport { function, reason: clean(&reason, 512) });
    }

    fn finish(mut self, known: &KnownFacts<'_>) -> (GenericFacts, Vec<ToolDefinition>) {
        let docs = known.docs;
        let descriptions = Descriptions::new(docs, &self.types);
        let traits = traits(known.imports);
        let taken = known.tools.iter().map(|tool| tool.name.clone()).collect();
        let candidates = std::mem::take(&mut self.candidates);
        let exports: Vec<_> =
            candidates.iter().map(|found| (found.interface.as_deref(), found.bare_name.clone())).collect();
        let names = names::assign(&exports, &taken);
        let (mut functions, mut definitions, mut schema_bytes) = (Vec::new(), Vec::new(), 0);
        for (found, name) in candidates.into_iter().zip(names) {
            let definition = name.ok_or_else(|| "its name is longer than 128 characters".to_owned()).and_then(|name| {
                if known.tools.len() + definitions.len() >= TOOLS {
                    return Err(format!("a component may have at most {TOOLS} tools"));
                }
                let definition = found.definition(name, (docs, &descriptions), known.manifest, traits);
                schema_bytes += check(&definition)?;
                if schema_bytes > SCHEMA_BYTES {
                    return Err(TYPES_TOO_LARGE.to_owned());
                }
                Ok(definition)
            });
            match definition {
                Ok(definition) => {
                    let Candidate { interface, function, form, .. } = found;
                    functions.push(GenericFunction { tool: definition.name.clone(), interface, function, form });
                    definitions.push(definition);
                }
                Err(reason) => self.skip(found.interface.as_deref(), &found.function, reason),
            }
        }
        if self.unlisted > 0 {
            let reason = "there are too many skipped functions to list all of them".to_owned();
            self.skipped.push(SkippedExport { function: format!("and {} more", self.unlisted), reason });
        }
        (GenericFacts { functions, skipped: self.skipped }, definitions)
    }
}

impl Candidate {
    /// Total number of types, cases and flags in the function's signature and in the signatures of its constructors.
    fn parts(&self) -> usize {
        self.signature.parts()
            + self.constructors.iter().map(|constructor| constructor.signature.parts()).sum::<usize>()
    }

    fn definition(
        &self,
        name: String,
        (docs, descriptions): (&Docs, &Descriptions),
        manifest: Option<&Manifest>,
        traits: Traits,
    ) -> ToolDefinition {
        if self.form == Form::Command {
            let about = manifest.map(|manifest| manifest.description.as_str()).filter(|about| !about.is_empty());
            return command::definition(name, about, traits);
        }
        let description = match docs.function(self.interface.as_deref(), &self.function) {
            Some(docs) => docs.to_owned(),
            None => self.description_from_types(),
        };
        let input_schema = match self.constructors.as_slice() {
            [] => schema::for_parameters(&self.signature.parameters, descriptions),
            constructors => schema::for_method(constructors, &self.signature, descriptions),
        };
        ToolDefinition {
            name,
            title: None,
            description: cut(&clean(&description, DESCRIPTION_BYTES), DESCRIPTION_BYTES).to_owned(),
            input_schema,
            output_schema: schema::for_result(&self.signature, descriptions),
            traits,
            priority: 0,
        }
    }

    /// The tool description for a function that has no documentation.
    fn description_from_types(&self) -> String {
        let origin = match &self.interface {
            Some(interface) => format!("of the WIT interface `{interface}`"),
            None => "of the component".to_owned(),
        };
        let name = &self.bare_name;
        let describe = |constructor: &Constructor| format!("`{}{}`", constructor.key(), constructor.signature.wit());
        let described: Vec<_> = self.constructors.iter().map(describe).collect();
        let constructed = match described.as_slice() {
            [] => String::new(),
            constructors => format!(", on a new instance made from `self`: {}", constructors.join(" or ")),
        };
        format!("Calls the function `{name}` {origin}{constructed}. Its type is `func{}`.", self.signature.wit())
    }
}

/// Checks whether a function can become a tool. Returns None for a constructor, because a constructor is not a tool: it
/// is called by the tools for the methods of its resource. If the function is skipped, the error states why.
fn candidate(
    interface: Option<&str>,
    name: &str,
    function: &ComponentFunc,
    constructors: &Constructors,
) -> Result<Option<Candidate>, String> {
    let found = |bare_name: String, form, signature, constructors| {
        let (interface, function) = (interface.map(str::to_owned), name.to_owned());
        Ok(Some(Candidate { interface, function, bare_name, form, signature, constructors }))
    };
    if constructors.resource_made_by(name).is_some() {
        return Ok(None);
    }
    if let Some(reason) = toolchain_function(interface, name, function).or_else(|| http_handler(interface)) {
        return Err(reason.to_owned());
    }
    match ExportName::parse(name) {
        ExportName::Constructor(resource) => constructors.of(resource).map(|_| None),
        ExportName::Asynchronous => Err("it is asynchronous".to_owned()),
        ExportName::Function(_) if is_command(interface, name, function) => {
            found("run".to_owned(), Form::Command, Signature::default(), Vec::new())
        }
        ExportName::Function(bare_name) => {
            found(bare_name.to_owned(), Form::Function, Signature::of(function, HandlePosition::None)?, Vec::new())
        }
        ExportName::Static(resource, method) => {
            let signature = Signature::of(function, HandlePosition::None)?;
            found(format!("{resource}.{method}"), Form::Function, signature, Vec::new())
        }
        ExportName::Method(resource, method) => {
            let constructors = constructors.of(resource)?.to_vec();
            let signature = Signature::of(function, HandlePosition::First)?;
            let form = Form::Method {
                constructors: constructors.iter().map(|constructor| constructor.function.clone()).collect(),
            };
            found(format!("{resource}.{method}"), form, signature, constructors)
        }
    }
}

/// Returns the reason for skipping a function that sets up a language runtime. The toolchain already called
/// this function when it built the component, and a second call would break the component. Returns None for all
/// other functions.
fn toolchain_function(interface: Option<&str>, name: &str, function: &ComponentFunc) -> Option<&'static str> {
    let begins_with =
        |names: &[&str]| names.iter().copied().eq(function.params().map(|(name, _)| name).take(names.len()));
    let is_setup = match (interface, name) {
        // componentize-qjs uses a function with these parameters to set up QuickJS.
        (None, "init") => begins_with(&["shim", "script"]),
        // componentize-py uses a function with this parameter to set up CPython.
        (Some("exports"), "init") => begins_with(&["app-name"]),
        (None, name) => matches!(name, "wizer-initialize" | "wizer-resume"),
        _ => false,
    };
    is_setup.then_some("its toolchain called it when the component was built, to set up the language runtime")
}

/// Returns the reason for skipping the functions of an interface that handles HTTP requests. Returns None for all
/// other interfaces.
fn http_handler(interface: Option<&str>) -> Option<&'static str> {
    let (path, _) = interface?.split_once('@')?;
    let is_handler = matches!(path, "wasi:http/incoming-handler" | "wasi:http/handler");
    is_handler.then_some(
        "it answers HTTP requests, which this host does not send to plugins; export functions that take and return data, or a \
        command-line program (`wasi:cli/run`)",
    )
}

/// The parsed name of an exported function. The kind of the function is written in brackets before the name, for
/// example `[method]`.
pub(super) enum ExportName<'n> {
    Function(&'n str),
    Constructor(&'n str),
    Method(&'n str, &'n str),
    Static(&'n str, &'n str),
    Asynchronous,
}

impl<'n> ExportName<'n> {
    pub(super) fn parse(name: &'n str) -> Self {
        let Some((annotation, rest)) = name.strip_prefix('[').and_then(|name| name.split_once(']')) else {
            return ExportName::Function(name);
        };
        match (annotation, rest.split_once('.')) {
            ("constructor", _) => ExportName::Constructor(rest),
            ("method", Some((resource, method))) => ExportName::Method(resource, method),
            ("static", Some((resource, method))) => ExportName::Static(resource, method),
            _ => ExportName::Asynchronous,
        }
    }
}

/// Whether the function is `run` of `wasi:cli/run@0.2.x` and has the type that WASI defines for `run`.
fn is_command(interface: Option<&str>, name: &str, function: &ComponentFunc) -> bool {
    let is_run = interface.is_some_and(|interface| interface.starts_with("wasi:cli/run@0.2."));
    let bare = |kind: Type| matches!(kind, Type::Result(result) if result.ok().is_none() && result.err().is_none());
    is_run && name == "run" && function.params().len() == 0 && function.results().next().is_some_and(bare)
}

/// Returns the traits of the tools that are made from a component's functions. If no import of the component can
/// have effects, the tools are read-only and idempotent.
fn traits(imports: &[String]) -> Traits {
    let is_pure = imports.iter().all(|name| imports::effects(name) == Effects::None);
    Traits { read_only: is_pure, idempotent: is_pure, ..Traits::default() }
}

/// Checks that the host can compile the schemas. Returns the total size of the schemas in bytes.
fn check(definition: &ToolDefinition) -> Result<usize, String> {
    let mut bytes = 0;
    let schemas: [Option<&Value>; 2] = [Some(&definition.input_schema), definition.output_schema.as_ref()];
    for schema in schemas.into_iter().flatten() {
        bytes += schema.to_string().len();
        Schema::compile(schema).map_err(|error| format!("its types are too large: {error}"))?;
    }
    Ok(bytes)
}
