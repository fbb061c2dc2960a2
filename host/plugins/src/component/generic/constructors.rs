//! Finds the functions that can construct a resource for a call of one of its methods. If the resource has a
//! constructor, only this constructor is used. If the resource does not have a constructor, the host uses every
//! function of the same interface that takes only data and returns the resource.

use super::discovery::ExportName;
use super::shape::{HandlePosition, Signature};
use std::collections::BTreeMap;
use wasmtime::component::ResourceType;
use wasmtime::component::types::{ComponentFunc, Type};

/// Maximum number of constructors from which the model can choose.
const MAX_CONSTRUCTORS: usize = 8;

/// A function that constructs a resource.
#[derive(Clone, Debug)]
pub(super) struct Constructor {
    /// Name under which the component exports the function, for example `[static]codec.from-config`.
    pub(super) function: String,
    pub(super) signature: Signature,
}

impl Constructor {
    /// The name by which the model chooses this constructor if the resource has several constructors, for
    /// example `from-config`.
    pub(super) fn key(&self) -> &str {
        key(&self.function)
    }
}

/// Returns the name by which the model chooses a constructor if the resource has several constructors. `function` is
/// the name under which the component exports the constructor.
pub(super) fn key(function: &str) -> &str {
    match ExportName::parse(function) {
        ExportName::Static(_, name) | ExportName::Function(name) | ExportName::Method(_, name) => name,
        ExportName::Constructor(_) | ExportName::Asynchronous => "constructor",
    }
}

/// The constructors of all resources of an interface.
#[derive(Default)]
pub(super) struct Constructors {
    /// Maps the name of each resource to its constructors. If the host cannot call the constructor, the value is an
    /// error that contains the reason.
    by_resource: BTreeMap<String, Result<Vec<Constructor>, String>>,
    /// Maps the name of each constructing function to the name of the resource that it constructs.
    resource_made_by: BTreeMap<String, String>,
}

impl Constructors {
    /// Finds the constructors among the functions of one interface.
    pub(super) fn find(functions: &[(String, ComponentFunc)]) -> Self {
        let mut constructors = Self::default();
        let mut resources: Vec<(&str, ResourceType)> = Vec::new();
        for (name, function) in functions {
            match ExportName::parse(name) {
                ExportName::Constructor(resource) => constructors.insert_constructor(resource, name, function),
                ExportName::Method(resource, _) if !resources.iter().any(|(known, _)| *known == resource) => {
                    if let Some((_, Type::Borrow(kind))) = function.params().next() {
                        resources.push((resource, kind));
                    }
                }
                _ => {}
            }
        }
        resources.retain(|(resource, _)| !constructors.by_resource.contains_key(*resource));
        for (name, function) in functions {
            let resource = constructed_type(name, function).and_then(|constructed| {
                resources.iter().find(|(_, kind)| *kind == constructed).map(|(resource, _)| *resource)
            });
            if let Some(resource) = resource {
                constructors.insert_function(resource, name, function);
            }
        }
        constructors
    }

    fn insert_constructor(&mut self, resource: &str, name: &str, function: &ComponentFunc) {
        let signature = Signature::of(function, HandlePosition::Result);
        let constructor = signature.map(|signature| vec![Constructor { function: name.to_owned(), signature }]);
        if constructor.is_ok() {
            self.resource_made_by.insert(name.to_owned(), resource.to_owned());
        }
        self.by_resource.insert(resource.to_owned(), constructor);
    }

    fn insert_function(&mut self, resource: &str, name: &str, function: &ComponentFunc) {
        let Ok(signature) = Signature::of(function, HandlePosition::Result) else { return };
        let known = self.by_resource.entry(resource.to_owned()).or_insert_with(|| Ok(Vec::new()));
        if let Ok(known) = known
            && known.len() < MAX_CONSTRUCTORS
            && !known.iter().any(|other| other.key() == key(name))
        {
            known.push(Constructor { function: name.to_owned(), signature });
            self.resource_made_by.insert(name.to_owned(), resource.to_owned());
        }
    }

    /// The constructors of a resource, or the reason why the host cannot construct the resource.
    pub(super) fn of(&self, resource: &str) -> Result<&[Constructor], String> {
        match self.by_resource.get(resource) {
            Some(Ok(constructors)) => Ok(constructors),
            Some(Err(reason)) => Err(format!("the constructor of `{resource}`: {reason}")),
            None => Err(format!(
                "`{resource}` has no constructor, and no function makes it from data; a handle is valid only during its call"
            )),
        }
    }

    /// The name of the resource that this function constructs. None if the function is not used as a constructor.
    pub(super) fn resource_made_by(&self, function: &str) -> Option<&str> {
        self.resource_made_by.get(function).map(String::as_str)
    }
}

/// Returns the type of the resource that the function returns, or `None` if the function cannot serve as a constructor.
fn constructed_type(name: &str, function: &ComponentFunc) -> Option<ResourceType> {
    if !matches!(ExportName::parse(name), ExportName::Static(..) | ExportName::Function(_)) {
        return None;
    }
    match function.results().next()? {
        Type::Own(resource) => Some(resource),
        Type::Result(result) => match result.ok()? {
            Type::Own(resource) => Some(resource),
            _ => None,
        },
        _ => None,
    }
}
