//! Calls to generic functions: converts the JSON arguments to component values, calls the function in a new instance,
//! and converts the result to JSON.

use super::kinds::{ToolCallRequest, call_spec, capabilities};
use super::plugin_setup::PluginSetup;
use crate::capabilities::process::Trace;
use crate::capabilities::process::program::Program;
use crate::component::generic::results::write;
use crate::component::generic::shape::{Shape, Signature};
use crate::component::generic::{Callable, EXPORT_CHANGED, GenericExport, GenericLinks, SELF_ARGUMENT, arguments};
use crate::component::sandbox::Sandbox;
use crate::contract::RejectedResult;
use crate::contract::v0_1::bindings::exports::agent_host::plugin::tool as wit;
use crate::contract::v0_1::tools::{self, Missing};
use crate::execution::call_spec::{CallSpec, Ports};
use crate::execution::failure::Stop;
use crate::execution::report::CallReport;
use crate::execution::runner::GuestStore;
use crate::identity::Kind;
use crate::limits::{GENERIC_ARGUMENT_BYTES, Limit};
use crate::recording::CallRecord;
use agent_core::message::Content;
use agent_core::tool::{ToolDone, ToolError, ToolOutcome, Violation};
use serde_json::{Value, json};
use std::sync::Arc;
use wasmtime::component::{ComponentExportIndex, Instance, Val};
use wasmtime_wasi::I32Exit;

type Answer = Result<ToolOutcome, ToolError>;

/// The arguments of one call, converted from JSON.
enum ArgumentValues {
    Function(Vec<Val>),
    /// `constructor` is a position in the method's list of constructors: the position of the constructor to call.
    Method {
        constructor: usize,
        constructor_arguments: Vec<Val>,
        arguments: Vec<Val>,
    },
    Command(Arc<Program>),
}

impl Sandbox {
    /// Calls the generic function that the plugin offers as this tool. Returns None if the tool is not a
    /// generic function.
    pub(crate) async fn call_generic(
        &self,
        setup: &PluginSetup,
        request: &ToolCallRequest<'_>,
        ports: &Ports,
    ) -> Option<CallReport<Answer>> {
        let links = setup.plugin.links.generic.as_ref()?;
        let functions = &setup.plugin.facts.generic.functions;
        let index = functions.iter().position(|function| function.tool == request.name)?;
        let export = links.exports.get(index)?;
        let values = match read_arguments(export, setup.plugin.name(), &request.args) {
            Ok(values) => values,
            Err(violation) => {
                let error = ToolError::InvalidArguments { violations: vec![violation] };
                return Some(CallReport::returned_early(Err(error)));
            }
        };
        let context = &request.context;
        let wall = setup.limits.tool_time.min(context.time_limit);
        let mut capabilities = capabilities(setup, &context.scope, ports);
        capabilities.trace = Trace::InEnvironment(context.scope.trace.clone());
        if let ArgumentValues::Command(program) = &values {
            capabilities.program = Some(Arc::clone(program));
        }
        let (request_bytes, call) = (request.args.len(), (context.id.0.clone(), &context.scope));
        let lifted_bytes = setup.limits.generic_lifted();
        let spec = CallSpec { lifted_bytes, request_bytes, ..call_spec((setup, Kind::Tool), call, wall, capabilities) };
        let run = |store, record| run_call(setup, links, PreparedCall { export, values }, store, record);
        Some(self.shared.runner.run(spec, run).await.with_result_bytes())
    }
}

/// An export to call, and the argument values for the call.
struct PreparedCall<'a> {
    export: &'a GenericExport,
    values: ArgumentValues,
}

async fn run_call(
    setup: &PluginSetup,
    links: &GenericLinks,
    prepared: PreparedCall<'_>,
    mut store: GuestStore,
    record: Arc<CallRecord>,
) -> Result<Answer, Stop> {
    let instance = links.instance().instantiate_async(&mut store).await?;
    let answer = match (prepared.export, prepared.values) {
        (GenericExport::Function(function), ArgumentValues::Function(values)) => {
            let value = call(&mut store, &instance, function, values).await?;
            drop(store);
            outcome(&function.signature, value, record.limits.result)?
        }
        (
            GenericExport::Method { constructors, method },
            ArgumentValues::Method { constructor, constructor_arguments, arguments },
        ) => {
            let (_, constructor) = constructors.get(constructor).ok_or_else(|| host_error(EXPORT_CHANGED))?;
            match construct(&mut store, &instance, constructor, constructor_arguments).await? {
                Ok(resource) => {
                    let values = [vec![resource], arguments].concat();
                    let value = call(&mut store, &instance, method, values).await?;
                    drop(store);
                    outcome(&method.signature, value, record.limits.result)?
                }
                Err(message) => Err(message),
            }
        }
        (GenericExport::Command(index), ArgumentValues::Command(program)) => {
            run_command(&mut store, &instance, index, (&program, record.limits.result)).await?
        }
        _ => return Err(host_error("the argument values were read for an export of a different form")),
    };
    match answer {
        Ok(done) => Ok(Ok(ToolOutcome::Done(done))),
        Err(message) => {
            record.failed()?;
            let denials = record.denials();
            let missing = Missing { unmet: &setup.unmet, guessed: &setup.guessed, denials: &denials };
            Ok(Err(tools::error_in(wit::Error::Failed(message), missing, record.limits.error)))
        }
    }
}

async fn call(
    store: &mut GuestStore,
    instance: &Instance,
    function: &Callable,
    values: Vec<Val>,
) -> Result<Option<Val>, Stop> {
    let results = usize::from(function.signature.result.is_some());
    call_function(store, instance, &function.index, &values, results).await
}

/// Calls a constructor. Returns the new resource, or the constructor's error as text for the model.
async fn construct(
    store: &mut GuestStore,
    instance: &Instance,
    constructor: &Callable,
    values: Vec<Val>,
) -> Result<Result<Val, String>, Stop> {
    let result = call_function(store, instance, &constructor.index, &values, 1).await?;
    let error = match &constructor.signature.result {
        Some(Shape::Result { error, .. }) => error.as_deref(),
        _ => None,
    };
    match result {
        Some(Val::Result(Ok(Some(resource)))) => Ok(Ok(*resource)),
        Some(Val::Result(Err(value))) => Ok(Err(error_text(error, value)?)),
        Some(resource) => Ok(Ok(resource)),
        None => Err(host_error("the constructor returned nothing")),
    }
}

async fn call_function(
    store: &mut GuestStore,
    instance: &Instance,
    index: &ComponentExportIndex,
    values: &[Val],
    results: usize,
) -> Result<Option<Val>, Stop> {
    let function = instance.get_func(&mut *store, index).ok_or_else(|| host_error(EXPORT_CHANGED))?;
    let mut returned = vec![Val::Bool(false); results];
    function.call_async(store, values, &mut returned).await?;
    Ok(returned.pop())
}

async fn run_command(
    store: &mut GuestStore,
    instance: &Instance,
    index: &ComponentExportIndex,
    (program, bytes): (&Program, usize),
) -> Result<Result<ToolDone, String>, Stop> {
    let code = match call_function(store, instance, index, &[], 1).await {
        Ok(Some(Val::Result(Ok(_)))) => 0,
        Ok(_) => 1,
        Err(Stop::Guest(error)) => match error.downcast_ref::<I32Exit>() {
            Some(exit) => exit.0,
            None => return Err(Stop::Guest(error)),
        },
        Err(stop) => return Err(stop),
    };
    if code != 0 {
        return Ok(Err(program.failure(code)));
    }
    let printed = program.take_stdout();
    if printed.is_empty() { Ok(Ok(ToolDone::default())) } else { done_with_text(printed, bytes).map(Ok) }
}

/// Converts the result of a function. If the function returns the error case of a `result`, the model receives the
/// error as the tool's failure.
fn outcome(signature: &Signature, value: Option<Val>, bytes: usize) -> Result<Result<ToolDone, String>, Stop> {
    match (&signature.result, value) {
        (Some(Shape::Result { ok, .. }), Some(Val::Result(Ok(value)))) => match (ok, value) {
            (Some(shape), Some(value)) => done_with_value(shape, *value, bytes).map(Ok),
            _ => Ok(Ok(ToolDone::default())),
        },
        (Some(Shape::Result { error, .. }), Some(Val::Result(Err(value)))) => {
            Ok(Err(error_text(error.as_deref(), value)?))
        }
        (Some(shape), Some(value)) => done_with_value(shape, value, bytes).map(Ok),
        _ => Ok(Ok(ToolDone::default())),
    }
}

fn done_with_value(shape: &Shape, value: Val, bytes: usize) -> Result<ToolDone, Stop> {
    // If the result is a string, the model receives it as text without JSON quotes.
    if let Val::String(string) = value {
        return done_with_text(string, bytes);
    }
    let json = write(shape, value).map_err(|reason| host_error(&reason))?;
    if json.to_string().len() > bytes {
        return Err(result_too_large(bytes));
    }
    // A null result is returned both as content and as structured data, because structured data that is null would look
    // like a missing result.
    let content = if json.is_null() { vec![Content::Json(Value::Null)] } else { Vec::new() };
    Ok(ToolDone { content, structured: Some(json) })
}

fn done_with_text(text: String, bytes: usize) -> Result<ToolDone, Stop> {
    if text.len() > bytes { Err(result_too_large(bytes)) } else { Ok(ToolDone::text(text)) }
}

/// Converts the error value that a function returned to text for the model.
fn error_text(shape: Option<&Shape>, value: Option<Box<Val>>) -> Result<String, Stop> {
    match (shape, value.map(|value| *value)) {
        (_, Some(Val::String(text))) => Ok(text),
        (Some(shape), Some(value)) => Ok(write(shape, value).map_err(|reason| host_error(&reason))?.to_string()),
        _ => Ok("the function failed without an error message".to_owned()),
    }
}

/// Converts the arguments from JSON to the values for this export.
fn read_arguments(export: &GenericExport, plugin: &str, text: &str) -> Result<ArgumentValues, Violation> {
    let violation = |rule: &str, message| Violation { pointer: String::new(), rule: Some(rule.to_owned()), message };
    if text.len() > GENERIC_ARGUMENT_BYTES {
        let message = format!("the arguments have {} bytes; at most {GENERIC_ARGUMENT_BYTES} are allowed", text.len());
        return Err(violation("maxLength", message));
    }
    let json: Value = serde_json::from_str(text).map_err(|error| violation("json", error.to_string()))?;
    let read = |signature: &Signature, json: &Value, pointer: &str| {
        let fields = arguments::read_fields(&signature.parameters, json, pointer)?;
        Ok::<Vec<_>, Violation>(fields.into_iter().map(|(_, value)| value).collect())
    };
    Ok(match export {
        GenericExport::Function(function) => ArgumentValues::Function(read(&function.signature, &json, "")?),
        GenericExport::Method { constructors, method } => {
            let mut json = json;
            let self_argument = json.as_object_mut().and_then(|object| object.shift_remove(SELF_ARGUMENT));
            let (constructor, constructor_json, pointer) =
                choose_constructor(constructors, self_argument.unwrap_or_else(|| json!({})))?;
            let signature = &constructors[constructor].1.signature;
            ArgumentValues::Method {
                constructor,
                constructor_arguments: read(signature, &constructor_json, &pointer)?,
                arguments: read(&method.signature, &json, "")?,
            }
        }
        GenericExport::Command(_) => ArgumentValues::Command(Arc::new(Program::new(plugin, &json)?)),
    })
}

/// Returns the index of the constructor to call, the arguments of that constructor, and the JSON pointer to these
/// arguments. If there are several constructors, `self` must be an object whose only key is the name of a constructor.
fn choose_constructor(
    constructors: &[(String, Callable)],
    self_argument: Value,
) -> Result<(usize, Value, String), Violation> {
    if constructors.len() == 1 {
        return Ok((0, self_argument, format!("/{SELF_ARGUMENT}")));
    }
    let Value::Object(named) = self_argument else {
        let message = "it must be an object".to_owned();
        return Err(Violation { pointer: format!("/{SELF_ARGUMENT}"), rule: Some("type".to_owned()), message });
    };
    let mut named = named.into_iter();
    let (Some((name, arguments)), None) = (named.next(), named.next()) else {
        let message = "it must contain exactly one key, which is the name of a constructor".to_owned();
        return Err(Violation {
            pointer: format!("/{SELF_ARGUMENT}"),
            rule: Some("maxProperties".to_owned()),
            message,
        });
    };
    match constructors.iter().position(|(key, _)| *key == name) {
        Some(constructor) => Ok((constructor, arguments, format!("/{SELF_ARGUMENT}/{name}"))),
        None => {
            let (pointer, rule) = (format!("/{SELF_ARGUMENT}"), Some("additionalProperties".to_owned()));
            Err(Violation { pointer, rule, message: format!("unknown constructor {name:?}") })
        }
    }
}

fn host_error(reason: &str) -> Stop {
    Stop::Refused(RejectedResult::Host(reason.to_owned()))
}

fn result_too_large(bytes: usize) -> Stop {
    Stop::Refused(RejectedResult::Limit(Limit::ResultText(bytes)))
}
