//! What makes an instance of a resource for one call: its constructor, or where it has none the functions of the same
//! interface that take data and give one.

use super::shape::{Handles, Signature};
use super::survey::Mark;
use std::collections::BTreeMap;
use wasmtime::component::ResourceType;
use wasmtime::component::types::{ComponentFunc, Type};

/// Functions that a model may choose among to make an instance.
const MOST: usize = 8;

/// A function that makes an instance.
#[derive(Clone, Debug)]
pub(super) struct Maker {
    /// As it is exported. Example: `[static]codec.from-config`.
    pub(super) function: String,
    pub(super) signature: Signature,
}

impl Maker {
    /// What it is called where there are several. Example: `from-config`.
    pub(super) fn key(&self) -> &str {
        key(&self.function)
    }
}

/// What a maker of this export's name is called where there are several.
pub(super) fn key(function: &str) -> &str {
    match Mark::of(function) {
        Mark::Static(_, name) | Mark::Function(name) | Mark::Method(_, name) => name,
        Mark::Constructor(_) | Mark::Asynchronous => "constructor",
    }
}

/// The makers of an interface's resources.
#[derive(Default)]
pub(super) struct Makers {
    /// By the resource's name. An error: why the constructor cannot be called.
    of: BTreeMap<String, Result<Vec<Maker>, String>>,
    /// The resource that a function makes.
    made_by: BTreeMap<String, String>,
}

impl Makers {
    pub(super) fn among(functions: &[(String, ComponentFunc)]) -> Self {
        let mut makers = Self::default();
        let mut resources: Vec<(&str, ResourceType)> = Vec::new();
        for (name, function) in functions {
            match Mark::of(name) {
                Mark::Constructor(resource) => makers.insert_constructor(resource, name, function),
                Mark::Method(resource, _) if !resources.iter().any(|(known, _)| *known == resource) => {
                    if let Some((_, Type::Borrow(kind))) = function.params().next() {
                        resources.push((resource, kind));
                    }
                }
                _ => {}
            }
        }
        resources.retain(|(resource, _)| !makers.of.contains_key(*resource));
        for (name, function) in functions {
            let resource = made(name, function)
                .and_then(|made| resources.iter().find(|(_, kind)| *kind == made).map(|(resource, _)| *resource));
            if let Some(resource) = resource {
                makers.insert_function(resource, name, function);
            }
        }
        makers
    }

    fn insert_constructor(&mut self, resource: &str, name: &str, function: &ComponentFunc) {
        let signature = Signature::of(function, Handles::Result);
        let maker = signature.map(|signature| vec![Maker { function: name.to_owned(), signature }]);
        if maker.is_ok() {
            self.made_by.insert(name.to_owned(), resource.to_owned());
        }
        self.of.insert(resource.to_owned(), maker);
    }

    fn insert_function(&mut self, resource: &str, name: &str, function: &ComponentFunc) {
        let Ok(signature) = Signature::of(function, Handles::Result) else { return };
        let known = self.of.entry(resource.to_owned()).or_insert_with(|| Ok(Vec::new()));
        if let Ok(known) = known
            && known.len() < MOST
            && !known.iter().any(|other| other.key() == key(name))
        {
            known.push(Maker { function: name.to_owned(), signature });
            self.made_by.insert(name.to_owned(), resource.to_owned());
        }
    }

    /// Those of one resource, or why there is none.
    pub(super) fn of(&self, resource: &str) -> Result<&[Maker], String> {
        match self.of.get(resource) {
            Some(Ok(makers)) => Ok(makers),
            Some(Err(reason)) => Err(format!("the constructor of `{resource}`: {reason}")),
            None => Err(format!(
                "`{resource}` has no constructor, and no function makes one from data; handles end with their call"
            )),
        }
    }

    /// The resource that this function makes.
    pub(super) fn made_by(&self, function: &str) -> Option<&str> {
        self.made_by.get(function).map(String::as_str)
    }
}

/// The resource that a function gives, if it could be a maker.
fn made(name: &str, function: &ComponentFunc) -> Option<ResourceType> {
    if !matches!(Mark::of(name), Mark::Static(..) | Mark::Function(_)) {
        return None;
    }
    match function.results().next()? {
        Type::Own(made) => Some(made),
        Type::Result(result) => match result.ok()? {
            Type::Own(made) => Some(made),
            _ => None,
        },
        _ => None,
    }
}
