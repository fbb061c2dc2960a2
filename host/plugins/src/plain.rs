//! Components of any world: each exported function that takes and gives data is a tool (P3), described by its WIT types.
//! Resources are offered where one call can make the instance and use it; a command-line program is one tool.

mod arguments;
mod call;
pub(crate) mod command;
mod docs;
mod makers;
mod names;
mod results;
#[cfg(test)]
mod round_trip;
mod schema;
mod shape;
mod survey;
mod words;

use crate::load::LoadError;
use crate::state::CallState;
use agent_core::tool::ToolDefinition;
use serde::{Deserialize, Serialize};
use shape::{Handles, Signature};
use std::fmt;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

pub(crate) use docs::Docs;
pub(crate) use survey::{Told, survey};

/// The argument of a method under which those of what makes its instance stand. No WIT parameter of a method has this name.
const SELF: &str = "self";
/// Why an export without tools cannot be linked: it was there when the component was first looked at.
const GONE: &str = "an export has changed since it was looked at";

/// What a component exports besides the contract. It depends on nothing but its bytes and this host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlainFacts {
    pub(crate) functions: Vec<PlainFunction>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// An exported function that is a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlainFunction {
    /// The tool's name.
    pub(crate) tool: String,
    /// The exported interface; None: the world itself.
    interface: Option<String>,
    /// As it is exported. Example: `[method]counter.increment`.
    function: String,
    pub(crate) form: Form,
}

/// How a function becomes one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Form {
    Function,
    /// On an instance that one of these functions makes for the call.
    Method {
        makers: Vec<String>,
    },
    /// `wasi:cli/run`.
    Command,
}

/// An exported function that is no tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Where it is exported. Example: `docs:words/store@0.1.0 open`.
    pub function: String,
    /// Completes "it is not offered: ".
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` is not offered: {}", self.function, self.reason)
    }
}

impl PlainFacts {
    /// Gives the command-line program, if it is one, the plugin's name: the only thing here that the bytes don't say.
    pub(crate) fn name_command(&mut self, plugin: &str, tools: &mut [ToolDefinition]) {
        let Some(function) = self.functions.iter_mut().find(|function| function.form == Form::Command) else { return };
        let Some(index) = tools.iter().position(|tool| tool.name == function.tool) else { return };
        let others = tools.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, tool)| tool.name.as_str());
        let name = names::of_command(plugin, others);
        function.tool.clone_from(&name);
        tools[index].name = name;
    }
}

/// The component linked with the authority of tools, and how each of its plain functions is entered.
pub(crate) struct PlainLinks {
    instance: InstancePre<CallState>,
    entrances: Vec<Entrance>,
}

enum Entrance {
    Function(Callable),
    Method { makers: Vec<(String, Callable)>, method: Callable },
    Command(ComponentExportIndex),
}

struct Callable {
    index: ComponentExportIndex,
    signature: Signature,
}

/// Finds the functions again in the compiled component.
pub(crate) fn link(facts: &PlainFacts, instance: InstancePre<CallState>) -> Result<PlainLinks, LoadError> {
    let component = instance.component();
    let gone = || LoadError::Link { reason: GONE.to_owned() };
    let callable = |interface: Option<&str>, function: &str, handles| {
        let (function, index) = find(component, interface, function).ok_or_else(gone)?;
        let signature = Signature::of(&function, handles).map_err(|reason| LoadError::Link { reason })?;
        Ok::<_, LoadError>(Callable { index, signature })
    };
    let entrance = |function: &PlainFunction| {
        let (interface, name) = (function.interface.as_deref(), function.function.as_str());
        Ok(match &function.form {
            Form::Function => Entrance::Function(callable(interface, name, Handles::Nowhere)?),
            Form::Method { makers } => {
                let maker =
                    |name: &String| Ok((makers::key(name).to_owned(), callable(interface, name, Handles::Result)?));
                let makers = makers.iter().map(maker).collect::<Result<_, LoadError>>()?;
                Entrance::Method { makers, method: callable(interface, name, Handles::First)? }
            }
            Form::Command => Entrance::Command(find(component, interface, name).ok_or_else(gone)?.1),
        })
    };
    let entrances = facts.functions.iter().map(entrance).collect::<Result<_, LoadError>>()?;
    Ok(PlainLinks { instance, entrances })
}

impl PlainLinks {
    /// What is instantiated.
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
