//! The typed calls: one method for each function that a plugin can export according to the plugin contract. Each method
//! converts the request, runs the guest in a new instance, and checks and converts the result.

use super::plugin_setup::PluginSetup;
use super::service_request;
use crate::capabilities::process::Trace;
use crate::component::sandbox::Sandbox;
use crate::contract::v0_1::bindings::exports::agent_host::plugin as exports;
use crate::contract::v0_1::conversion::{self, SessionMedia};
use crate::contract::v0_1::requests;
use crate::contract::v0_1::tools::{self, Missing};
use crate::execution::admission::LaneName;
use crate::execution::call_spec::{CallCapabilities, CallSpec, Ports};
use crate::execution::failure::{CallFailure, Stop};
use crate::execution::report::{CallReport, json_bytes};
use crate::grants::first_use::CallEffect;
use crate::identity::{Authority, Kind};
use agent_core::message::CallId;
use agent_core::model::MediaDecision;
use agent_core::plugin::{
    BuilderRequest, BuiltPrompt, PluginFailure, PolicyRequest, Scope, Section, StepRequest, ValidatorRequest, Verdict,
};
use agent_core::tool::{ToolError, ToolOutcome};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The context of one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallContext {
    /// Id that the host assigned to the call. If the call is repeated, every attempt has the same id.
    pub id: CallId,
    /// Number of this attempt to make the call. The first attempt has the number 1.
    pub attempt: u32,
    /// Maximum wall time of the call. If the wall-time limit in the plugin's setup is shorter, that limit applies.
    pub time_limit: Duration,
    /// The agent, session and turn of the call.
    pub scope: Scope,
}

/// A tool call whose arguments the host has validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallRequest<'a> {
    /// Name of the tool as the plugin defines it.
    pub name: &'a str,
    /// The arguments as JSON text.
    pub args: String,
    /// The id, the attempt, the time limit and the scope of the call.
    pub context: ToolCallContext,
}

/// Evaluates to the setup for the call. If the setup limits fuel, the macro replaces the setup's plugin with the plugin
/// that was compiled from the same component into code that counts fuel. If this code cannot be loaded, the macro
/// returns a failure from the function that uses the macro.
macro_rules! with_metering {
    ($sandbox:expr, $setup:expr) => {
        match $sandbox.with_metering($setup).await {
            Ok(setup) => setup,
            Err(failure) => return CallReport::refused(failure),
        }
    };
}

impl Sandbox {
    /// If the setup limits fuel, loads the compiled code that counts fuel, so that the first call does not have to wait
    /// for this code.
    pub async fn prepare(&self, setup: &PluginSetup) -> Result<(), CallFailure> {
        self.with_metering(setup).await.map(drop)
    }

    async fn with_metering<'s>(&self, setup: &'s PluginSetup) -> Result<Cow<'s, PluginSetup>, CallFailure> {
        if setup.limits.fuel.is_none() {
            return Ok(Cow::Borrowed(setup));
        }
        match self.metered(&setup.plugin).await {
            Ok(plugin) => Ok(Cow::Owned(PluginSetup { plugin, ..setup.clone() })),
            Err(error) => {
                let reason = format!("its fuel cannot be counted: {error}");
                Err(CallFailure::Host { plugin: Arc::clone(&setup.plugin.identity), reason })
            }
        }
    }

    /// Calls a tool (P2). Before this function returns, it stores the new media items of the tool's result through the
    /// media port.
    pub async fn call_tool(
        &self,
        setup: &PluginSetup,
        request: ToolCallRequest<'_>,
        ports: &Ports,
    ) -> CallReport<Result<ToolOutcome, ToolError>> {
        let setup = &*with_metering!(self, setup);
        if let Some(report) = self.call_generic(setup, &request, ports).await {
            return report;
        }
        let ToolCallRequest { name, args, context } = request;
        let Some(handle) = &setup.plugin.links.tool else {
            if setup.plugin.links.generic.is_some() {
                return no_such_tool(setup, name);
            }
            return not_exported(setup, Kind::Tool);
        };
        let Some(definition) = setup.plugin.tools().iter().find(|tool| tool.name == name) else {
            return no_such_tool(setup, name);
        };
        let setup =
            &*setup.for_calls_with(if definition.traits.read_only { CallEffect::Reads } else { CallEffect::Changes });
        let wall = setup.limits.tool_time.min(context.time_limit);
        let call_context = exports::tool::CallContext {
            id: context.id.0.clone(),
            attempt: context.attempt,
            time_limit: u32::try_from(wall.as_millis()).unwrap_or(u32::MAX),
            scope: conversion::scope_out(&context.scope),
        };
        let capabilities = capabilities(setup, &context.scope, ports);
        let spec = CallSpec {
            request_bytes: args.len(),
            ..call_spec((setup, Kind::Tool), (context.id.0, &context.scope), wall, capabilities)
        };
        let media = SessionMedia { port: ports.media.as_deref(), session: &context.scope.session };
        self.shared
            .runner
            .run(spec, |mut store, record| async move {
                let instance = handle.instance.instantiate_async(&mut store).await?;
                let guest = handle.indices.load(&mut store, &instance)?;
                let answer = guest.call_call(&mut store, name, &args, &call_context).await?;
                drop(store);
                match answer {
                    Ok(outcome) => {
                        record.count_bytes_from_guest(tools::new_media_bytes(&outcome));
                        match outcome {
                            exports::tool::Outcome::Pending(request) => {
                                let request = service_request::service_request_in(request, (setup, name), &record)?;
                                Ok(request.map(ToolOutcome::Pending))
                            }
                            exports::tool::Outcome::Done(done) => {
                                let done = tools::done_in(done, (media, record.limits.result)).await?;
                                Ok(Ok(ToolOutcome::Done(done)))
                            }
                        }
                    }
                    Err(error) => {
                        record.failed()?;
                        let denials = record.denials();
                        let missing = Missing { unmet: &setup.unmet, guessed: &setup.guessed, denials: &denials };
                        Ok(Err(tools::error_in(error, missing, record.limits.error)))
                    }
                }
            })
            .await
            .with_result_bytes()
    }

    /// Calls a context builder, which returns the turn's prompt (L2).
    pub async fn build_context(
        &self,
        setup: &PluginSetup,
        request: &BuilderRequest,
        ports: &Ports,
    ) -> CallReport<Result<BuiltPrompt, PluginFailure>> {
        let setup = &*with_metering!(self, setup);
        let Some(handle) = &setup.plugin.links.context_builder else {
            return not_exported(setup, Kind::ContextBuilder);
        };
        let scope = &request.scope;
        let capabilities = capabilities(setup, scope, ports);
        let spec = call_spec(
            (setup, Kind::ContextBuilder),
            (turn_label(scope), scope),
            setup.limits.builder_time,
            capabilities,
        )
        .in_builder_lane()
        .with_request(request);
        let media = SessionMedia { port: ports.media.as_deref(), session: &scope.session };
        let request = requests::builder_out(request);
        self.shared
            .runner
            .run(spec, |mut store, record| async move {
                let instance = handle.instance.instantiate_async(&mut store).await?;
                let guest = handle.indices.load(&mut store, &instance)?;
                let answer = guest.call_init(&mut store, &request).await?;
                drop(store);
                match answer {
                    Ok(prompt) => Ok(Ok(requests::prompt_in(prompt, media, record.limits.result).await?)),
                    Err(failure) => {
                        record.failed()?;
                        Ok(Err(conversion::failure_in(failure, record.limits.error)))
                    }
                }
            })
            .await
            .with_result_bytes()
    }

    /// Calls a context builder that exports `step-context`, which returns the sections of this step (L2).
    pub async fn build_step(
        &self,
        setup: &PluginSetup,
        request: &StepRequest,
        ports: &Ports,
    ) -> CallReport<Result<Vec<Section>, PluginFailure>> {
        let setup = &*with_metering!(self, setup);
        let Some(handle) = &setup.plugin.links.step_context else {
            return not_exported(setup, Kind::StepContext);
        };
        let scope = &request.scope;
        let capabilities = capabilities(setup, scope, ports);
        let spec =
            call_spec((setup, Kind::StepContext), (turn_label(scope), scope), setup.limits.builder_time, capabilities)
                .in_builder_lane()
                .with_request(request);
        let request = requests::step_request_out(request);
        self.shared
            .runner
            .run(spec, |mut store, record| async move {
                let instance = handle.instance.instantiate_async(&mut store).await?;
                let guest = handle.indices.load(&mut store, &instance)?;
                match guest.call_step(&mut store, &request).await? {
                    Ok(sections) => Ok(Ok(requests::sections_in(sections, record.limits.result)?)),
                    Err(failure) => {
                        record.failed()?;
                        Ok(Err(conversion::failure_in(failure, record.limits.error)))
                    }
                }
            })
            .await
            .with_result_bytes()
    }

    /// Calls an output validator, which returns a verdict (L12). The validator gets no grants and no ports.
    pub async fn validate(
        &self,
        setup: &PluginSetup,
        request: &ValidatorRequest,
    ) -> CallReport<Result<Verdict, PluginFailure>> {
        let setup = &*with_metering!(self, setup);
        let Some(handle) = &setup.plugin.links.output_validator else {
            return not_exported(setup, Kind::OutputValidator);
        };
        let spec = call_spec(
            (setup, Kind::OutputValidator),
            (turn_label(&request.scope), &request.scope),
            setup.limits.pure_time,
            CallCapabilities::nothing(Authority::Inert),
        )
        .with_request(request);
        let request = requests::validator_out(request);
        self.shared
            .runner
            .run(spec, |mut store, record| async move {
                let instance = handle.instance.instantiate_async(&mut store).await?;
                let guest = handle.indices.load(&mut store, &instance)?;
                match guest.call_validate(&mut store, &request).await? {
                    Ok(verdict) => Ok(Ok(requests::verdict_in(verdict, &record.limits)?)),
                    Err(failure) => Ok(Err(conversion::failure_in(failure, record.limits.error))),
                }
            })
            .await
            .with_result_bytes()
    }

    /// Calls a media policy, which returns one decision for each media item (P4). The policy gets no grants and no
    /// ports.
    pub async fn decide(
        &self,
        setup: &PluginSetup,
        request: &PolicyRequest,
    ) -> CallReport<Result<Vec<MediaDecision>, PluginFailure>> {
        let setup = &*with_metering!(self, setup);
        let Some(handle) = &setup.plugin.links.media_policy else {
            return not_exported(setup, Kind::MediaPolicy);
        };
        let spec = call_spec(
            (setup, Kind::MediaPolicy),
            (turn_label(&request.scope), &request.scope),
            setup.limits.pure_time,
            CallCapabilities::nothing(Authority::Inert),
        )
        .with_request(request);
        let items = request.items.len();
        let request = requests::policy_out(request);
        self.shared
            .runner
            .run(spec, |mut store, record| async move {
                let instance = handle.instance.instantiate_async(&mut store).await?;
                let guest = handle.indices.load(&mut store, &instance)?;
                match guest.call_decide(&mut store, &request).await? {
                    Ok(decisions) => Ok::<_, Stop>(Ok(requests::decisions_in(decisions, items, record.limits.result)?)),
                    Err(failure) => Ok(Err(conversion::failure_in(failure, record.limits.error))),
                }
            })
            .await
            .with_result_bytes()
    }
}

impl CallSpec {
    /// Runs the call in the lane for context builders, in which any number of calls may wait.
    fn in_builder_lane(self) -> Self {
        Self { lane: LaneName::Builders, ..self }
    }

    /// Stores the number of bytes that the request has when it is encoded as JSON.
    fn with_request(self, request: &impl Serialize) -> Self {
        Self { request_bytes: json_bytes(request), ..self }
    }
}

pub(crate) fn call_spec(
    (setup, kind): (&PluginSetup, Kind),
    (call, scope): (String, &Scope),
    wall: Duration,
    capabilities: CallCapabilities,
) -> CallSpec {
    let (lane, unmet, declared) = match capabilities.authority {
        Authority::Granted => (LaneName::Calls, Arc::clone(&setup.guessed), Arc::clone(&setup.unmet)),
        Authority::Inert => (LaneName::Pure, Arc::default(), Arc::default()),
    };
    CallSpec {
        plugin: Arc::clone(&setup.plugin.identity),
        kind,
        engine: setup.plugin.engine_context.engine.clone(),
        metering: setup.plugin.engine_context.metering,
        call,
        agent: scope.agent.as_str().into(),
        request_bytes: 0,
        lane,
        wall,
        limits: setup.limits,
        lifted_bytes: setup.limits.lifted(capabilities.authority),
        capabilities,
        unmet,
        declared,
        trial: setup.trial.clone(),
    }
}

pub(crate) fn capabilities(setup: &PluginSetup, scope: &Scope, ports: &Ports) -> CallCapabilities {
    CallCapabilities {
        authority: Authority::Granted,
        grants: Arc::clone(&setup.grants),
        agent: scope.agent.clone(),
        session: scope.session.clone(),
        media: ports.media.clone(),
        program: None,
        key_value: ports.key_value.clone(),
        model: ports.model.clone(),
        http: ports.http.clone(),
        replay: ports.replay.clone(),
        scratch: setup.scratch.clone(),
        current_grants: ports.grants.clone(),
        stopped_calls: ports.stopped.clone(),
        turn: scope.turn,
        trace: Trace::InRequest(scope.trace.clone()),
        secrets: Arc::clone(&setup.secrets),
        asked_requests: setup.asked_requests.clone(),
    }
}

/// The text with which the log identifies a call that has no call id.
fn turn_label(scope: &Scope) -> String {
    format!("turn {}", scope.turn)
}

fn not_exported<T>(setup: &PluginSetup, kind: Kind) -> CallReport<T> {
    CallReport::refused(CallFailure::NotExported { plugin: Arc::clone(&setup.plugin.identity), kind })
}

fn no_such_tool<T>(setup: &PluginSetup, name: &str) -> CallReport<T> {
    let names: Vec<_> = setup.plugin.tools().iter().take(20).map(|tool| tool.name.as_str()).collect();
    let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let plugin = Arc::clone(&setup.plugin.identity);
    CallReport::refused(CallFailure::NoSuchTool { plugin, name: name.to_owned(), available })
}
