//! The first look at a component's own exports: which functions are tools, under which names, and why the others are not.

use super::docs::Docs;
use super::makers::{Maker, Makers};
use super::shape::{Handles, Signature};
use super::words::Words;
use super::{Form, LeftOut, PlainFacts, PlainFunction, command, names, schema};
use crate::imports::{self, Effects};
use crate::limits::{DESCRIPTION_BYTES, TOOLS};
use crate::manifest::Manifest;
use crate::text::{clean, cut};
use agent_core::schema::Schema;
use agent_core::tool::{ToolDefinition, Traits};
use serde_json::Value;
use std::collections::BTreeSet;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentFunc, ComponentItem, Type};

/// Functions that are looked at.
const LOOKED_AT: usize = 4_096;
/// Bytes of all schemas together.
const SCHEMA_BYTES: usize = 4 * 1024 * 1024;
/// Parts of all signatures together: a few bytes can declare a type of many parts, and thousands of functions that take it.
const SIGNATURE_PARTS: usize = 256 * 1024;
/// Functions of which it is said why they are no tools.
const LEFT_OUT: usize = 64;

/// What else is known of the component.
pub(crate) struct Told<'a> {
    pub(crate) docs: &'a Docs,
    pub(crate) manifest: Option<&'a Manifest>,
    pub(crate) imports: &'a [String],
    /// The tools that it describes itself.
    pub(crate) tools: &'a [ToolDefinition],
}

/// The tools among the component's own exports, in the order of its exports.
pub(crate) fn survey(component: &Component, told: &Told<'_>) -> (PlainFacts, Vec<ToolDefinition>) {
    let mut survey = Survey { left: LOOKED_AT, parts: SIGNATURE_PARTS, ..Survey::default() };
    let (engine, whole) = (component.engine(), component.component_type());
    let mut functions = Vec::new();
    for (name, export) in whole.exports(engine) {
        match export.ty {
            ComponentItem::ComponentFunc(function) => functions.push((name.to_owned(), function)),
            ComponentItem::Type(kind) => survey.types.push((None, name.to_owned(), kind)),
            ComponentItem::ComponentInstance(instance) if !imports::is_own(name) => {
                let types = instance.exports(engine).filter_map(|(kind_name, export)| match export.ty {
                    ComponentItem::Type(kind) => Some((Some(name.to_owned()), kind_name.to_owned(), kind)),
                    _ => None,
                });
                survey.types.extend(types.take(LOOKED_AT));
                let functions = instance.exports(engine).filter_map(|(name, export)| match export.ty {
                    ComponentItem::ComponentFunc(function) => Some((name.to_owned(), function)),
                    _ => None,
                });
                survey.interface(Some(name), functions.take(LOOKED_AT).collect());
            }
            _ => {}
        }
        if functions.len() > LOOKED_AT {
            break;
        }
    }
    survey.interface(None, functions);
    survey.finish(told)
}

#[derive(Default)]
struct Survey {
    candidates: Vec<Candidate>,
    left_out: Vec<LeftOut>,
    not_listed: usize,
    /// Types by interface and name.
    types: Vec<(Option<String>, String, Type)>,
    /// Functions that may still be looked at.
    left: usize,
    /// Parts that their signatures may still have.
    parts: usize,
}

/// A function that can be called with data.
struct Candidate {
    interface: Option<String>,
    function: String,
    /// Without its marks. Example: `counter.increment`.
    plain_name: String,
    form: Form,
    signature: Signature,
    makers: Vec<Maker>,
}

impl Survey {
    fn interface(&mut self, interface: Option<&str>, functions: Vec<(String, ComponentFunc)>) {
        let makers = Makers::among(&functions);
        let mut used = BTreeSet::new();
        for (name, function) in &functions {
            let Some(left) = self.left.checked_sub(1) else {
                self.leave_out(interface, name, format!("only the first {LOOKED_AT} functions are looked at"));
                continue;
            };
            self.left = left;
            match candidate(interface, name, function, &makers) {
                Ok(Some(candidate)) => {
                    let Some(parts) = self.parts.checked_sub(candidate.parts()) else {
                        self.leave_out(interface, name, "the types of the component are too large together".to_owned());
                        continue;
                    };
                    self.parts = parts;
                    if let Mark::Method(resource, _) = Mark::of(name) {
                        used.insert(resource.to_owned());
                    }
                    self.candidates.push(candidate);
                }
                Ok(None) => {}
                Err(reason) => self.leave_out(interface, name, reason),
            }
        }
        for (name, _) in &functions {
            if let Some(resource) = makers.made_by(name)
                && !used.contains(resource)
            {
                let reason = format!("what it makes ends with its call, and no method of `{resource}` is offered");
                self.leave_out(interface, name, reason);
            }
        }
    }

    fn leave_out(&mut self, interface: Option<&str>, function: &str, reason: String) {
        if self.left_out.len() >= LEFT_OUT {
            self.not_listed += 1;
            return;
        }
        let function = [interface, Some(function)].into_iter().flatten().collect::<Vec<_>>().join(" ");
        self.left_out.push(LeftOut { function: clean(&function, 256), reason: clean(&reason, 512) });
    }

    fn finish(mut self, told: &Told<'_>) -> (PlainFacts, Vec<ToolDefinition>) {
        let docs = told.docs;
        let words = Words::new(docs, &self.types);
        let traits = traits(told.imports);
        let taken = told.tools.iter().map(|tool| tool.name.clone()).collect();
        let candidates = std::mem::take(&mut self.candidates);
        let exports: Vec<_> =
            candidates.iter().map(|found| (found.interface.as_deref(), found.plain_name.clone())).collect();
        let names = names::assign(&exports, &taken);
        let (mut functions, mut definitions, mut schema_bytes) = (Vec::new(), Vec::new(), 0);
        for (found, name) in candidates.into_iter().zip(names) {
            let definition = name.ok_or_else(|| "its name is longer than 128 characters".to_owned()).and_then(|name| {
                if told.tools.len() + definitions.len() >= TOOLS {
                    return Err(format!("a component may have at most {TOOLS} tools"));
                }
                let definition = found.definition(name, (docs, &words), told.manifest, traits);
                schema_bytes += check(&definition)?;
                if schema_bytes > SCHEMA_BYTES {
                    return Err("the types of the component are too large together".to_owned());
                }
                Ok(definition)
            });
            match definition {
                Ok(definition) => {
                    let Candidate { interface, function, form, .. } = found;
                    functions.push(PlainFunction { tool: definition.name.clone(), interface, function, form });
                    definitions.push(definition);
                }
                Err(reason) => self.leave_out(found.interface.as_deref(), &found.function, reason),
            }
        }
        if self.not_listed > 0 {
            let reason = "there are too many to name them all".to_owned();
            self.left_out.push(LeftOut { function: format!("and {} more", self.not_listed), reason });
        }
        (PlainFacts { functions, left_out: self.left_out }, definitions)
    }
}

impl Candidate {
    /// Of its signature, and of those that make its instance.
    fn parts(&self) -> usize {
        self.signature.parts() + self.makers.iter().map(|maker| maker.signature.parts()).sum::<usize>()
    }

    fn definition(
        &self,
        name: String,
        (docs, words): (&Docs, &Words),
        manifest: Option<&Manifest>,
        traits: Traits,
    ) -> ToolDefinition {
        if self.form == Form::Command {
            let about = manifest.map(|manifest| manifest.description.as_str()).filter(|about| !about.is_empty());
            return command::definition(name, about, traits);
        }
        let description = match docs.function(self.interface.as_deref(), &self.function) {
            Some(docs) => docs.to_owned(),
            None => self.sentence(),
        };
        let input_schema = match self.makers.as_slice() {
            [] => schema::of_parameters(&self.signature.parameters, words),
            makers => schema::of_method(makers, &self.signature, words),
        };
        ToolDefinition {
            name,
            title: None,
            description: cut(&clean(&description, DESCRIPTION_BYTES), DESCRIPTION_BYTES).to_owned(),
            input_schema,
            output_schema: schema::of_result(&self.signature, words),
            traits,
            priority: 0,
        }
    }

    /// Where nothing is documented: what the types say.
    fn sentence(&self) -> String {
        let place = match &self.interface {
            Some(interface) => format!("of the WIT interface `{interface}`"),
            None => "of the component".to_owned(),
        };
        let name = &self.plain_name;
        let made = |maker: &Maker| format!("`{}{}`", maker.key(), maker.signature.wit());
        let made: Vec<_> = self.makers.iter().map(made).collect();
        let constructed = match made.as_slice() {
            [] => String::new(),
            makers => format!(", on a new instance made from `self`: {}", makers.join(" or ")),
        };
        format!("Calls the function `{name}` {place}{constructed}. Its type is `func{}`.", self.signature.wit())
    }
}

/// None: a constructor, which becomes part of its methods.
fn candidate(
    interface: Option<&str>,
    name: &str,
    function: &ComponentFunc,
    makers: &Makers,
) -> Result<Option<Candidate>, String> {
    let found = |plain_name: String, form, signature, makers| {
        let (interface, function) = (interface.map(str::to_owned), name.to_owned());
        Ok(Some(Candidate { interface, function, plain_name, form, signature, makers }))
    };
    if makers.made_by(name).is_some() {
        return Ok(None);
    }
    if let Some(reason) = of_the_engine(interface, name, function).or_else(|| of_a_server(interface)) {
        return Err(reason.to_owned());
    }
    match Mark::of(name) {
        Mark::Constructor(resource) => makers.of(resource).map(|_| None),
        Mark::Asynchronous => Err("it is asynchronous".to_owned()),
        Mark::Function(_) if is_command(interface, name, function) => {
            found("run".to_owned(), Form::Command, Signature::default(), Vec::new())
        }
        Mark::Function(plain_name) => {
            found(plain_name.to_owned(), Form::Function, Signature::of(function, Handles::Nowhere)?, Vec::new())
        }
        Mark::Static(resource, method) => {
            let signature = Signature::of(function, Handles::Nowhere)?;
            found(format!("{resource}.{method}"), Form::Function, signature, Vec::new())
        }
        Mark::Method(resource, method) => {
            let makers = makers.of(resource)?.to_vec();
            let signature = Signature::of(function, Handles::First)?;
            let form = Form::Method { makers: makers.iter().map(|maker| maker.function.clone()).collect() };
            found(format!("{resource}.{method}"), form, signature, makers)
        }
    }
}

/// Functions with which toolchains set up the engine in a component while they build it. Calling them again breaks it.
fn of_the_engine(interface: Option<&str>, name: &str, function: &ComponentFunc) -> Option<&'static str> {
    let begins_with =
        |names: &[&str]| names.iter().copied().eq(function.params().map(|(name, _)| name).take(names.len()));
    let is_set_up = match (interface, name) {
        // QuickJS by componentize-qjs, and CPython by componentize-py.
        (None, "init") => begins_with(&["shim", "script"]),
        (Some("exports"), "init") => begins_with(&["app-name"]),
        (None, name) => matches!(name, "wizer-initialize" | "wizer-resume"),
        _ => false,
    };
    is_set_up.then_some("its toolchain called it when the component was built, and it sets up the language's engine")
}

/// What a web server calls.
fn of_a_server(interface: Option<&str>) -> Option<&'static str> {
    let (path, _) = interface?.split_once('@')?;
    let is_handler = matches!(path, "wasi:http/incoming-handler" | "wasi:http/handler");
    is_handler.then_some(
        "it answers HTTP requests, and this host serves none to plugins; export functions that take and give data, or a \
         command-line program (`wasi:cli/run`)",
    )
}

/// The kind of function that an export's name tells.
pub(super) enum Mark<'n> {
    Function(&'n str),
    Constructor(&'n str),
    Method(&'n str, &'n str),
    Static(&'n str, &'n str),
    Asynchronous,
}

impl<'n> Mark<'n> {
    pub(super) fn of(name: &'n str) -> Self {
        let Some((mark, rest)) = name.strip_prefix('[').and_then(|name| name.split_once(']')) else {
            return Mark::Function(name);
        };
        match (mark, rest.split_once('.')) {
            ("constructor", _) => Mark::Constructor(rest),
            ("method", Some((resource, method))) => Mark::Method(resource, method),
            ("static", Some((resource, method))) => Mark::Static(resource, method),
            _ => Mark::Asynchronous,
        }
    }
}

/// `wasi:cli/run@0.2.x`, of the type that it has there.
fn is_command(interface: Option<&str>, name: &str, function: &ComponentFunc) -> bool {
    let is_run = interface.is_some_and(|interface| interface.starts_with("wasi:cli/run@0.2."));
    let bare = |kind: Type| matches!(kind, Type::Result(result) if result.ok().is_none() && result.err().is_none());
    is_run && name == "run" && function.params().len() == 0 && function.results().next().is_some_and(bare)
}

/// What is certain of every function of a component: one that has no means to change anything changes nothing.
fn traits(imports: &[String]) -> Traits {
    let is_pure = imports.iter().all(|name| imports::effects(name) == Effects::None);
    Traits { read_only: is_pure, idempotent: is_pure, ..Traits::default() }
}

/// That the host can use the schemas; their bytes.
fn check(definition: &ToolDefinition) -> Result<usize, String> {
    let mut bytes = 0;
    let schemas: [Option<&Value>; 2] = [Some(&definition.input_schema), definition.output_schema.as_ref()];
    for schema in schemas.into_iter().flatten() {
        bytes += schema.to_string().len();
        Schema::compile(schema).map_err(|error| format!("its types are too large: {error}"))?;
    }
    Ok(bytes)
}
