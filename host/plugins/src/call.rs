//! The five calls: each converts the domain's words, runs the guest in a fresh instance, and checks the answer.

use crate::admission::LaneName;
use crate::bindings::exports::agent_host::plugin as exports;
use crate::convert::{self, SessionMedia};
use crate::emission;
use crate::failure::{CallFailure, Stop};
use crate::identity::{Authority, Kind};
use crate::media::Ports;
use crate::plugin::PluginSetup;
use crate::requests;
use crate::run::{CallReport, Ticket, json_bytes};
use crate::sandbox::Sandbox;
use crate::state::{Reach, Trace};
use crate::tools::{self, Missing};
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

/// The circumstances of one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallContext {
    /// The host's id: the same in every attempt.
    pub id: CallId,
    /// From 1.
    pub attempt: u32,
    /// Wall time that the call may take; the plugin's own limit holds too.
    pub time_limit: Duration,
    /// For whom.
    pub scope: Scope,
}

/// A tool call whose arguments the host has validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallRequest<'a> {
    /// As its author wrote it.
    pub name: &'a str,
    /// A JSON text.
    pub args: String,
    /// The circumstances.
    pub context: ToolCallContext,
}

/// The setup with code that counts fuel, where its limits say so.
macro_rules! fueled {
    ($sandbox:expr, $setup:expr) => {
        match $sandbox.fueled($setup).await {
            Ok(setup) => setup,
            Err(failure) => return CallReport::refused(failure),
        }
    };
}

impl Sandbox {
    /// Makes ready what the first call would else wait for: code that counts fuel, where the limits say so.
    pub async fn prepare(&self, setup: &PluginSetup) -> Result<(), CallFailure> {
        self.fueled(setup).await.map(drop)
    }

    async fn fueled<'s>(&self, setup: &'s PluginSetup) -> Result<Cow<'s, PluginSetup>, CallFailure> {
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

    /// Calls a tool (P2). New media in its result are stored through the port before this returns.
    pub async fn call_tool(
        &self,
        setup: &PluginSetup,
        request: ToolCallRequest<'_>,
        ports: &Ports,
    ) -> CallReport<Result<ToolOutcome, ToolError>> {
        let setup = &*fueled!(self, setup);
        if let Some(report) = self.call_plain(setup, &request, ports).await {
            return report;
        }
        let ToolCallRequest { name, args, context } = request;
        let Some(entrance) = &setup.plugin.links.tool else {
            if setup.plugin.links.plain.is_some() {
                return no_such_tool(setup, name);
            }
            return not_exported(setup, Kind::Tool);
        };
        if !setup.plugin.tools().iter().any(|tool| tool.name == name) {
            return no_such_tool(setup, name);
        }
        let wall = setup.limits.tool_time.min(context.time_limit);
        let call_context = exports::tool::CallContext {
            id: context.id.0.clone(),
            attempt: context.attempt,
            time_limit: u32::try_from(wall.as_millis()).unwrap_or(u32::MAX),
            scope: convert::scope_out(&context.scope),
        };
        let reach = reach(setup, &context.scope, ports);
        let ticket = Ticket { asked: args.len(), ..ticket(setup, (context.id.0, &context.scope), wall, reach) };
        let media = SessionMedia { port: ports.media.as_deref(), session: &context.scope.session };
        self.run(ticket, |mut store, record| async move {
            let instance = entrance.instance.instantiate_async(&mut store).await?;
            let guest = entrance.indices.load(&mut store, &instance)?;
            let answer = guest.call_call(&mut store, name, &args, &call_context).await?;
            drop(store);
            match answer {
                Ok(outcome) => {
                    record.take(tools::new_media_bytes(&outcome));
                    match outcome {
                        exports::tool::Outcome::Pending(request) => {
                            let request = emission::request_of(request, (setup, name), &record)?;
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
        .counted()
    }

    /// Asks a context builder for the turn's prompt (L2).
    pub async fn build_context(
        &self,
        setup: &PluginSetup,
        request: &BuilderRequest,
        ports: &Ports,
    ) -> CallReport<Result<BuiltPrompt, PluginFailure>> {
        let setup = &*fueled!(self, setup);
        let Some(entrance) = &setup.plugin.links.context_builder else {
            return not_exported(setup, Kind::ContextBuilder);
        };
        let scope = &request.scope;
        let reach = reach(setup, scope, ports);
        let ticket = ticket(setup, (turn(scope), scope), setup.limits.builder_time, reach).of_builder().asking(request);
        let media = SessionMedia { port: ports.media.as_deref(), session: &scope.session };
        let request = requests::builder_out(request);
        self.run(ticket, |mut store, record| async move {
            let instance = entrance.instance.instantiate_async(&mut store).await?;
            let guest = entrance.indices.load(&mut store, &instance)?;
            let answer = guest.call_init(&mut store, &request).await?;
            drop(store);
            match answer {
                Ok(prompt) => Ok(Ok(requests::prompt_in(prompt, media, record.limits.result).await?)),
                Err(failure) => {
                    record.failed()?;
                    Ok(Err(convert::failure_in(failure, record.limits.error)))
                }
            }
        })
        .await
        .counted()
    }

    /// Asks the optional per-step export for sections of this step (L2).
    pub async fn build_step(
        &self,
        setup: &PluginSetup,
        request: &StepRequest,
        ports: &Ports,
    ) -> CallReport<Result<Vec<Section>, PluginFailure>> {
        let setup = &*fueled!(self, setup);
        let Some(entrance) = &setup.plugin.links.step_context else {
            return not_exported(setup, Kind::StepContext);
        };
        let scope = &request.scope;
        let reach = reach(setup, scope, ports);
        let ticket = ticket(setup, (turn(scope), scope), setup.limits.builder_time, reach).of_builder().asking(request);
        let request = requests::step_out(request);
        self.run(ticket, |mut store, record| async move {
            let instance = entrance.instance.instantiate_async(&mut store).await?;
            let guest = entrance.indices.load(&mut store, &instance)?;
            match guest.call_step(&mut store, &request).await? {
                Ok(sections) => Ok(Ok(requests::sections_in(sections, record.limits.result)?)),
                Err(failure) => {
                    record.failed()?;
                    Ok(Err(convert::failure_in(failure, record.limits.error)))
                }
            }
        })
        .await
        .counted()
    }

    /// Asks an output validator (L12). It gets no grants and no ports: it is a pure function.
    pub async fn validate(
        &self,
        setup: &PluginSetup,
        request: &ValidatorRequest,
    ) -> CallReport<Result<Verdict, PluginFailure>> {
        let setup = &*fueled!(self, setup);
        let Some(entrance) = &setup.plugin.links.output_validator else {
            return not_exported(setup, Kind::OutputValidator);
        };
        let ticket = ticket(
            setup,
            (turn(&request.scope), &request.scope),
            setup.limits.pure_time,
            Reach::nothing(Authority::Inert),
        )
        .asking(request);
        let request = requests::validator_out(request);
        self.run(ticket, |mut store, record| async move {
            let instance = entrance.instance.instantiate_async(&mut store).await?;
            let guest = entrance.indices.load(&mut store, &instance)?;
            match guest.call_validate(&mut store, &request).await? {
                Ok(verdict) => Ok(Ok(requests::verdict_in(verdict, &record.limits)?)),
                Err(failure) => Ok(Err(convert::failure_in(failure, record.limits.error))),
            }
        })
        .await
        .counted()
    }

    /// Asks a media policy for one decision per medium (P4). It gets no grants and no ports: it is a pure function.
    pub async fn decide(
        &self,
        setup: &PluginSetup,
        request: &PolicyRequest,
    ) -> CallReport<Result<Vec<MediaDecision>, PluginFailure>> {
        let setup = &*fueled!(self, setup);
        let Some(entrance) = &setup.plugin.links.media_policy else {
            return not_exported(setup, Kind::MediaPolicy);
        };
        let ticket = ticket(
            setup,
            (turn(&request.scope), &request.scope),
            setup.limits.pure_time,
            Reach::nothing(Authority::Inert),
        )
        .asking(request);
        let items = request.items.len();
        let request = requests::policy_out(request);
        self.run(ticket, |mut store, record| async move {
            let instance = entrance.instance.instantiate_async(&mut store).await?;
            let guest = entrance.indices.load(&mut store, &instance)?;
            match guest.call_decide(&mut store, &request).await? {
                Ok(decisions) => Ok::<_, Stop>(Ok(requests::decisions_in(decisions, items, record.limits.result)?)),
                Err(failure) => Ok(Err(convert::failure_in(failure, record.limits.error))),
            }
        })
        .await
        .counted()
    }
}

impl Ticket {
    /// Of a context builder.
    fn of_builder(self) -> Self {
        Self { lane: LaneName::Builders, ..self }
    }

    /// For this request.
    fn asking(self, request: &impl Serialize) -> Self {
        Self { asked: json_bytes(request), ..self }
    }
}

pub(crate) fn ticket(setup: &PluginSetup, (call, scope): (String, &Scope), wall: Duration, reach: Reach) -> Ticket {
    let (lane, unmet, declared) = match reach.authority {
        Authority::Granted => (LaneName::Calls, Arc::clone(&setup.guessed), Arc::clone(&setup.unmet)),
        Authority::Inert => (LaneName::Pure, Arc::default(), Arc::default()),
    };
    Ticket {
        plugin: Arc::clone(&setup.plugin.identity),
        room: Arc::clone(&setup.plugin.room),
        call,
        agent: scope.agent.as_str().into(),
        asked: 0,
        lane,
        wall,
        limits: setup.limits,
        lifted: setup.limits.lifted(reach.authority),
        reach,
        unmet,
        declared,
        trial: setup.trial.clone(),
    }
}

pub(crate) fn reach(setup: &PluginSetup, scope: &Scope, ports: &Ports) -> Reach {
    Reach {
        authority: Authority::Granted,
        grants: Arc::clone(&setup.grants),
        agent: scope.agent.clone(),
        session: scope.session.clone(),
        media: ports.media.clone(),
        program: None,
        key_value: ports.key_value.clone(),
        model: ports.model.clone(),
        http: ports.http.clone(),
        then: ports.then.clone(),
        current: ports.grants.clone(),
        stopped: ports.stopped.clone(),
        turn: scope.turn,
        trace: Trace::Told(scope.trace.clone()),
        secrets: Arc::clone(&setup.secrets),
    }
}

/// What stands in the log for calls that have no id.
fn turn(scope: &Scope) -> String {
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
