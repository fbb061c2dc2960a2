//! Calls of plain functions: JSON becomes values, a fresh instance runs, its values become JSON.

use super::command::Program;
use super::results::write;
use super::shape::{Shape, Signature};
use super::{Callable, Entrance, PlainLinks, SELF, arguments};
use crate::bindings::exports::agent_host::plugin::tool as wit;
use crate::call::{ToolCallRequest, reach, ticket};
use crate::failure::{Refusal, Stop};
use crate::limits::{Limit, PLAIN_ARGUMENT_BYTES};
use crate::media::Ports;
use crate::plugin::PluginSetup;
use crate::record::CallRecord;
use crate::run::{CallReport, GuestStore, Ticket};
use crate::sandbox::Sandbox;
use crate::state::Trace;
use crate::tools::{self, Missing};
use agent_core::message::Content;
use agent_core::tool::{ToolDone, ToolError, ToolOutcome, Violation};
use serde_json::{Value, json};
use std::sync::Arc;
use wasmtime::component::{ComponentExportIndex, Instance, Val};
use wasmtime_wasi::I32Exit;

type Answer = Result<ToolOutcome, ToolError>;

/// Values for one call.
enum Values {
    Function(Vec<Val>),
    Method { maker: usize, made_from: Vec<Val>, method: Vec<Val> },
    Command(Arc<Program>),
}

impl Sandbox {
    /// Calls the plain function that this tool is; None: the tool is none.
    pub(crate) async fn call_plain(
        &self,
        setup: &PluginSetup,
        request: &ToolCallRequest<'_>,
        ports: &Ports,
    ) -> Option<CallReport<Answer>> {
        let links = setup.plugin.links.plain.as_ref()?;
        let functions = &setup.plugin.facts.plain.functions;
        let index = functions.iter().position(|function| function.tool == request.name)?;
        let entrance = links.entrances.get(index)?;
        let values = match values(entrance, setup.plugin.name(), &request.args) {
            Ok(values) => values,
            Err(violation) => {
                let error = ToolError::InvalidArguments { violations: vec![violation] };
                return Some(CallReport::answered(Err(error)));
            }
        };
        let context = &request.context;
        let wall = setup.limits.tool_time.min(context.time_limit);
        let mut reach = reach(setup, &context.scope, ports);
        reach.trace = Trace::InEnvironment(context.scope.trace.clone());
        if let Values::Command(program) = &values {
            reach.program = Some(Arc::clone(program));
        }
        let (asked, of) = (request.args.len(), (context.id.0.clone(), &context.scope));
        let ticket = Ticket { lifted: setup.limits.plain_lifted(), asked, ..ticket(setup, of, wall, reach) };
        let run = |store, record| answer(setup, links, Called { entrance, values }, store, record);
        Some(self.run(ticket, run).await.counted())
    }
}

/// What is called, with what.
struct Called<'a> {
    entrance: &'a Entrance,
    values: Values,
}

async fn answer(
    setup: &PluginSetup,
    links: &PlainLinks,
    called: Called<'_>,
    mut store: GuestStore,
    record: Arc<CallRecord>,
) -> Result<Answer, Stop> {
    let instance = links.instance.instantiate_async(&mut store).await?;
    let answer = match (called.entrance, called.values) {
        (Entrance::Function(function), Values::Function(values)) => {
            let value = call(&mut store, &instance, function, values).await?;
            drop(store);
            outcome(&function.signature, value, record.limits.result)?
        }
        (Entrance::Method { makers, method }, Values::Method { maker, made_from, method: values }) => {
            let (_, maker) = makers.get(maker).ok_or_else(|| host(super::GONE))?;
            match construct(&mut store, &instance, maker, made_from).await? {
                Ok(made) => {
                    let values = [vec![made], values].concat();
                    let value = call(&mut store, &instance, method, values).await?;
                    drop(store);
                    outcome(&method.signature, value, record.limits.result)?
                }
                Err(message) => Err(message),
            }
        }
        (Entrance::Command(index), Values::Command(program)) => {
            run_command(&mut store, &instance, index, (&program, record.limits.result)).await?
        }
        _ => return Err(host("the values are of another function")),
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
    call_for(store, instance, &function.index, &values, results).await
}

/// The new instance, or what its maker failed with.
async fn construct(
    store: &mut GuestStore,
    instance: &Instance,
    maker: &Callable,
    values: Vec<Val>,
) -> Result<Result<Val, String>, Stop> {
    let made = call_for(store, instance, &maker.index, &values, 1).await?;
    let error = match &maker.signature.result {
        Some(Shape::Result { error, .. }) => error.as_deref(),
        _ => None,
    };
    match made {
        Some(Val::Result(Ok(Some(made)))) => Ok(Ok(*made)),
        Some(Val::Result(Err(value))) => Ok(Err(words(error, value)?)),
        Some(made) => Ok(Ok(made)),
        None => Err(host("the function made nothing")),
    }
}

async fn call_for(
    store: &mut GuestStore,
    instance: &Instance,
    index: &ComponentExportIndex,
    values: &[Val],
    results: usize,
) -> Result<Option<Val>, Stop> {
    let function = instance.get_func(&mut *store, index).ok_or_else(|| host(super::GONE))?;
    let mut given = vec![Val::Bool(false); results];
    function.call_async(store, values, &mut given).await?;
    Ok(given.pop())
}

async fn run_command(
    store: &mut GuestStore,
    instance: &Instance,
    index: &ComponentExportIndex,
    (program, bytes): (&Program, usize),
) -> Result<Result<ToolDone, String>, Stop> {
    let code = match call_for(store, instance, index, &[], 1).await {
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
    let printed = program.printed();
    if printed.is_empty() { Ok(Ok(ToolDone::default())) } else { text(printed, bytes).map(Ok) }
}

/// A function's own failure goes to the model as the failure of the tool.
fn outcome(signature: &Signature, value: Option<Val>, bytes: usize) -> Result<Result<ToolDone, String>, Stop> {
    match (&signature.result, value) {
        (Some(Shape::Result { ok, .. }), Some(Val::Result(Ok(value)))) => match (ok, value) {
            (Some(shape), Some(value)) => done(shape, *value, bytes).map(Ok),
            _ => Ok(Ok(ToolDone::default())),
        },
        (Some(Shape::Result { error, .. }), Some(Val::Result(Err(value)))) => Ok(Err(words(error.as_deref(), value)?)),
        (Some(shape), Some(value)) => done(shape, value, bytes).map(Ok),
        _ => Ok(Ok(ToolDone::default())),
    }
}

fn done(shape: &Shape, value: Val, bytes: usize) -> Result<ToolDone, Stop> {
    // Without quotes and escapes: it is for reading, and a bare string promises no structure.
    if let Val::String(words) = value {
        return text(words, bytes);
    }
    let json = write(shape, value).map_err(|reason| host(&reason))?;
    if json.to_string().len() > bytes {
        return Err(too_much(bytes));
    }
    // A structured null alone would look like no result at all.
    let content = if json.is_null() { vec![Content::Json(Value::Null)] } else { Vec::new() };
    Ok(ToolDone { content, structured: Some(json) })
}

fn text(text: String, bytes: usize) -> Result<ToolDone, Stop> {
    if text.len() > bytes { Err(too_much(bytes)) } else { Ok(ToolDone::text(text)) }
}

/// What a function failed with, for the model.
fn words(shape: Option<&Shape>, value: Option<Box<Val>>) -> Result<String, Stop> {
    match (shape, value.map(|value| *value)) {
        (_, Some(Val::String(text))) => Ok(text),
        (Some(shape), Some(value)) => Ok(write(shape, value).map_err(|reason| host(&reason))?.to_string()),
        _ => Ok("the function failed and did not say why".to_owned()),
    }
}

fn values(entrance: &Entrance, plugin: &str, text: &str) -> Result<Values, Violation> {
    let wrong = |rule: &str, message| Violation { pointer: String::new(), rule: Some(rule.to_owned()), message };
    if text.len() > PLAIN_ARGUMENT_BYTES {
        let message = format!("the arguments have {} bytes; at most {PLAIN_ARGUMENT_BYTES} are passed on", text.len());
        return Err(wrong("maxLength", message));
    }
    let json: Value = serde_json::from_str(text).map_err(|error| wrong("json", error.to_string()))?;
    let read = |signature: &Signature, json: &Value, pointer: &str| {
        let fields = arguments::read_fields(&signature.parameters, json, pointer)?;
        Ok::<Vec<_>, Violation>(fields.into_iter().map(|(_, value)| value).collect())
    };
    Ok(match entrance {
        Entrance::Function(function) => Values::Function(read(&function.signature, &json, "")?),
        Entrance::Method { makers, method } => {
            let mut json = json;
            let own = json.as_object_mut().and_then(|object| object.shift_remove(SELF)).unwrap_or_else(|| json!({}));
            let (maker, own, pointer) = chosen(makers, own)?;
            let signature = &makers[maker].1.signature;
            Values::Method {
                maker,
                made_from: read(signature, &own, &pointer)?,
                method: read(&method.signature, &json, "")?,
            }
        }
        Entrance::Command(_) => Values::Command(Arc::new(Program::new(plugin, &json)?)),
    })
}

/// Which function makes the instance, and from what: of several the one that is named.
fn chosen(makers: &[(String, Callable)], own: Value) -> Result<(usize, Value, String), Violation> {
    if makers.len() == 1 {
        return Ok((0, own, format!("/{SELF}")));
    }
    let Value::Object(named) = own else {
        let message = "it must be an object".to_owned();
        return Err(Violation { pointer: format!("/{SELF}"), rule: Some("type".to_owned()), message });
    };
    let mut named = named.into_iter();
    let (Some((name, own)), None) = (named.next(), named.next()) else {
        let message = "it must name exactly one way to make the instance".to_owned();
        return Err(Violation { pointer: format!("/{SELF}"), rule: Some("maxProperties".to_owned()), message });
    };
    match makers.iter().position(|(key, _)| *key == name) {
        Some(maker) => Ok((maker, own, format!("/{SELF}/{name}"))),
        None => {
            let (pointer, rule) = (format!("/{SELF}"), Some("additionalProperties".to_owned()));
            Err(Violation { pointer, rule, message: format!("there is no {name:?} here") })
        }
    }
}

fn host(reason: &str) -> Stop {
    Stop::Refused(Refusal::Host(reason.to_owned()))
}

fn too_much(bytes: usize) -> Stop {
    Stop::Refused(Refusal::Limit(Limit::ResultText(bytes)))
}
