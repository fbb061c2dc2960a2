//! Components of any WIT world (P3). Each exported function that takes and returns data becomes a tool, whose schema is
//! derived from the function's WIT types. Functions that become tools in this way are called generic functions. A
//! method becomes a tool if a single call can construct the method's resource and then call the method. A command-line
//! program becomes one tool.

pub(crate) mod arguments;
mod command;
mod constructors;
mod described;
mod descriptions;
mod discovery;
mod names;
pub(crate) mod results;
#[cfg(test)]
mod round_trip;
mod schema;
pub(crate) mod shape;

use crate::execution::state::CallState;
use crate::grants::manifest::Manifest;
use agent_core::tool::ToolDefinition;
use serde::{Deserialize, Serialize};
use shape::{HandlePosition, Signature};
use std::fmt;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

pub(crate) use command::USAGE as COMMAND_USAGE;
pub(crate) use discovery::{KnownFacts, discover};

/// For a tool that calls a method: name of the argument that contains the arguments of the constructor. No parameter of
/// a WIT method can have this name.
pub(crate) const SELF_ARGUMENT: &str = "self";
/// The error message for an export that existed when the component was first loaded, but is now missing or has a
/// different type.
pub(crate) const EXPORT_CHANGED: &str = "an export has changed since the component was first loaded";

/// The facts about those exports of a component that do not belong to the plugin contract. The facts depend only on the
/// component's bytes and on this host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GenericFacts {
    pub(crate) functions: Vec<GenericFunction>,
    #[serde(rename = "left_out")]
    pub(crate) skipped: Vec<SkippedExport>,
}

/// An exported function that is offered as a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GenericFunction {
    /// Name of the tool that calls the function.
    pub(crate) tool: String,
    /// Name of the exported interface, or None if the world itself exports the function.
    interface: Option<String>,
    /// Name under which the component exports the function, for example `[method]counter.increment`.
    function: String,
    pub(crate) form: Form,
}

impl GenericFunction {
    /// The interface and the name of the exported function, as a manifest and the list of skipped functions name it.
    pub(crate) fn export(&self) -> String {
        export_name(self.interface.as_deref(), &self.function)
    }
}

/// Returns the interface and the name of an exported function, for example `docs:words/store@0.1.0 open`.
fn export_name(interface: Option<&str>, function: &str) -> String {
    [interface, Some(function)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The form of an exported function, which determines how the function is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    Function,
    /// The function is a method of a resource. For each call, one of the functions in `constructors` constructs
    /// the resource.
    Method {
        #[serde(rename = "makers")]
        constructors: Vec<String>,
    },
    /// The function `wasi:cli/run` of a command-line program.
    Command,
}

/// An exported function that is not offered as a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedExport {
    /// The interface and the name of the function, for example `docs:words/store@0.1.0 open`.
    pub function: String,
    /// The reason why the function is not a tool. The reason completes the sentence "it is not offered: ".
    pub reason: String,
}

impl fmt::Display for SkippedExport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` is not offered: {}", self.function, self.reason)
    }
}

impl GenericFacts {
    /// If the component is a command-line program, its tool gets the name of the plugin, unless the manifest contains a
    /// name for the tool. The plugin's name may come from the name of its file, so the tool's name is not part of the
    /// stored facts.
    pub(crate) fn name_command(&mut self, (plugin, manifest): (&str, Option<&Manifest>), tools: &mut [ToolDefinition]) {
        let Some(function) = self.functions.iter_mut().find(|function| function.form == Form::Command) else { return };
        let export = function.export();
        let mut described = manifest.into_iter().flat_map(|manifest| &manifest.tools);
        if described.any(|tool| tool.export == export && tool.name.is_some()) {
            return;
        }
        let Some(index) = tools.iter().position(|tool| tool.name == function.tool) else { return };
        let other_names =
            tools.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, tool)| tool.name.as_str());
        let name = names::for_command(plugin, other_names);
        function.tool.clone_from(&name);
        tools[index].name = name;
    }
}

/// A component that is linked with the authority of tools, and its generic functions.
pub(crate) struct GenericLinks {
    instance: InstancePre<CallState>,
    pub(crate) exports: Vec<GenericExport>,
}

/// The exported functions that the host calls for a tool.
pub(crate) enum GenericExport {
    Function(Callable),
    Method { constructors: Vec<(String, Callable)>, method: Callable },
    Command(ComponentExportIndex),
}

/// An exported function with its signature.
pub(crate) struct Callable {
    pub(crate) index: ComponentExportIndex,
    pub(crate) signature: Signature,
}

/// Searches the compiled component for the functions that are described in `facts`, and returns them.
pub(crate) fn link(facts: &GenericFacts, instance: InstancePre<CallState>) -> Result<GenericLinks, String> {
    let component = instance.component();
    let changed = || EXPORT_CHANGED.to_owned();
    let callable = |interface: Option<&str>, function: &str, handles| {
        let (function, index) = find(component, interface, function).ok_or_else(changed)?;
        let signature = Signature::of(&function, handles)?;
        Ok::<_, String>(Callable { index, signature })
    };
    let export = |function: &GenericFunction| {
        let (interface, name) = (function.interface.as_deref(), function.function.as_str());
        Ok(match &function.form {
            Form::Function => GenericExport::Function(callable(interface, name, HandlePosition::None)?),
            Form::Method { constructors } => {
                let constructor = |name: &String| {
                    Ok((constructors::key(name).to_owned(), callable(interface, name, HandlePosition::Result)?))
                };
                let constructors = constructors.iter().map(constructor).collect::<Result<_, String>>()?;
                GenericExport::Method { constructors, method: callable(interface, name, HandlePosition::First)? }
            }
            Form::Command => GenericExport::Command(find(component, interface, name).ok_or_else(changed)?.1),
        })
    };
    let exports = facts.functions.iter().map(export).collect::<Result<_, String>>()?;
    Ok(GenericLinks { instance, exports })
}

impl GenericLinks {
    /// The linked component, which is instantiated for each call.
    pub(crate) fn instance(&self) -> &InstancePre<CallState> {
        &self.instance
    }
}

fn find(
    component: &Component,
    interface: Option<&str>,
    function: &str,
) -> Option<(ComponentFunc, ComponentExportIndex)> {
    let interface = match interface {
        Some(name) => Some(component.get_export_index(None, name)?),
        None => None,
    };
    match component.get_export(interface.as_ref(), function)? {
        (ComponentItem::ComponentFunc(function), index) => Some((function, index)),
        _ => None,
    }
}
