//! Runs one call of a tool from any source, and produces exactly one result for the call.

mod builtin;
mod changed_files;
mod file_trees;
mod mcp;
mod rehearsal;

use crate::host::SessionServices;
use crate::tools::registry::RegisteredTool;
use crate::tools::results::{denials_in, removed_tool_result, result_of};
use agent_core::change::{CallRecord, CallResult, Denial, ToolAvailability};
use agent_core::message::CallId;
use agent_core::plugin::Scope;
use agent_core::run::TurnError;
use agent_core::tool::{CallCost, ServiceRequest, ToolDone, ToolError, ToolOutcome, ToolSource};
use agent_plugins::{CallFailure, HostCallLog, StoppedCalls, ToolCallContext, ToolCallRequest};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Maximum number of attempts at a call. A call is attempted again only if the tool may be called repeatedly and has
/// reported that a later attempt may succeed.
const MAX_TRIES: u32 = 3;
/// Time between the first and the second attempt, if the tool does not specify a time. The time doubles with each
/// further attempt.
const FIRST_RETRY_WAIT: Duration = Duration::from_millis(200);
/// Maximum time between two attempts. If the tool specifies a longer time, the call is not retried, and the tool's
/// error becomes the result.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(5);
/// Maximum wall time of one attempt at a plugin's tool call. The plugin's configured limit (`tool_wall_ms`) can be
/// shorter, but not longer.
const CALL_TIME_LIMIT: Duration = Duration::from_secs(120);

/// The outcome of one attempt at a call, before it is converted to a result.
struct RawOutcome {
    outcome: Result<ToolDone, ToolError>,
    cost: CallCost,
    denials: Vec<Denial>,
    /// The service request that the plugin made instead of returning a result, if there is one.
    request: Option<Box<ServiceRequest>>,
    tool: ToolAvailability,
    host_answers: Option<Box<HostCallLog>>,
}

/// The outcome of a tool call after its last attempt.
#[derive(Debug)]
pub(super) enum CallOutcome {
    /// The call has ended with this result.
    Done(CallResult),
    /// The plugin requests a service, and the call waits for the answer (P2).
    Pending(Box<ServiceRequest>, CallCost, Vec<Denial>),
}

/// A call that has finished running.
#[derive(Debug)]
pub(super) struct CompletedCall {
    pub(super) outcome: CallOutcome,
    /// The values that the host returned to the plugin's host calls during the last attempt.
    pub(super) host_answers: Option<Box<HostCallLog>>,
}

/// A call whose tool has finished running and has requested a service.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) call: CallId,
    pub(super) request: ServiceRequest,
    pub(super) cost: CallCost,
    pub(super) denials: Vec<Denial>,
    pub(super) host_answers: Option<Box<HostCallLog>>,
}

/// Runs a call until it has a result or its plugin requests a service. An error is a failure of the host and ends the
/// turn (L9).
pub(super) async fn run(
    services: &SessionServices,
    record: &CallRecord,
    attempt: u32,
    scope: Scope,
) -> Result<CompletedCall, TurnError> {
    let Some(tool) = services.agent.registry().get(&record.name) else {
        let message = format!("the tool `{}` no longer exists", record.name);
        return Ok(CompletedCall { outcome: CallOutcome::Done(removed_tool_result(message)), host_answers: None });
    };
    let completed;
    let record = match tool.outgoing(record.effective_arguments(), &scope.session) {
        Cow::Borrowed(_) => record,
        Cow::Owned(arguments) => {
            completed = CallRecord { edited: Some(arguments), ..record.clone() };
            &completed
        }
    };
    let mut tries = 0;
    let mut earlier =
        EarlierDenials { stopped: services.ports.stopped.as_deref(), call: &record.id, denials: Vec::new() };
    loop {
        let mut raw = try_once(services, tool, record, (attempt, scope.clone())).await?;
        tries += 1;
        raw.denials = earlier.with(std::mem::take(&mut raw.denials));
        if let Some(request) = raw.request.take() {
            earlier.denials.clear();
            let outcome = CallOutcome::Pending(request, raw.cost, raw.denials);
            return Ok(CompletedCall { outcome, host_answers: raw.host_answers });
        }
        if let Ok(done) = &raw.outcome
            && let Err(error) = tool.check_structured(done.structured.as_ref())
        {
            raw.outcome = Err(error);
        }
        match wait_before_retry(tool, &raw.outcome, tries) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => {
                earlier.denials.clear();
                let host_answers = raw.host_answers.take();
                return Ok(CompletedCall { outcome: CallOutcome::Done(raw.into_result()), host_answers });
            }
        }
    }
}

fn wait_before_retry(tool: &RegisteredTool, outcome: &Result<ToolDone, ToolError>, tries: u32) -> Option<Duration> {
    let Err(ToolError::Unavailable { retry_after, .. }) = outcome else { return None };
    let wait = retry_after.map_or(FIRST_RETRY_WAIT * 2_u32.pow(tries - 1), |ms| Duration::from_millis(ms.into()));
    (tool.definition.traits.repeatable() && tries < MAX_TRIES && wait <= MAX_RETRY_WAIT).then_some(wait)
}

async fn try_once(
    services: &SessionServices,
    tool: &RegisteredTool,
    record: &CallRecord,
    (attempt, scope): (u32, Scope),
) -> Result<RawOutcome, TurnError> {
    match &tool.source {
        ToolSource::BuiltIn => {
            let started = Instant::now();
            let outcome = builtin::call(services, &record.name, record.effective_arguments()).await;
            let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            Ok(RawOutcome { cost: CallCost { wall_us, ..CallCost::default() }, ..RawOutcome::without_cost(outcome) })
        }
        ToolSource::Plugin { plugin, .. } => call_plugin(services, plugin, record, (attempt, scope)).await,
        ToolSource::Mcp { server, .. } => mcp::call(services, server, record, &scope.trace).await,
        // A call to a service, to another agent or to the client is forwarded when the call is dispatched, so this
        // function never receives such a call.
        ToolSource::Service { .. } | ToolSource::Agent { .. } | ToolSource::Client => {
            let message = format!("internal error: a call to {} was not forwarded", tool.source);
            Ok(RawOutcome::without_cost(Err(ToolError::Unavailable { message, retry_after: None })))
        }
    }
}

async fn call_plugin(
    services: &SessionServices,
    name: &str,
    record: &CallRecord,
    (attempt, scope): (u32, Scope),
) -> Result<RawOutcome, TurnError> {
    let Some(setup) = services.agent.setups().get(name) else {
        return Err(TurnError::PluginChanged { reason: format!("the plugin `{name}` is not loaded") });
    };
    let setup = services.current_setup(setup);
    let context = ToolCallContext { id: record.id.clone(), attempt, time_limit: CALL_TIME_LIMIT, scope };
    let request = ToolCallRequest { name: &record.name, args: record.effective_arguments().to_string(), context };
    let files_before = changed_files::before(services, &setup, record).await;
    let report = services.sandbox.call_tool(&setup, request, &services.ports).await;
    if let Some(files) = files_before {
        files.note_changes(services, record).await;
    }
    let mut service_request = None;
    let outcome = match report.result {
        Ok(Ok(ToolOutcome::Done(done))) => Ok(done),
        Ok(Ok(ToolOutcome::Pending(request))) => {
            service_request = Some(Box::new(request));
            Ok(ToolDone::default())
        }
        Ok(Err(error)) => Err(error),
        Err(failure @ CallFailure::Host { .. }) => return Err(TurnError::HostFailed { message: failure.to_string() }),
        Err(failure) => Err(failure.for_model()),
    };
    let (cost, denials, host_answers) = (report.cost, denials_in(&report.denials), report.answers);
    Ok(RawOutcome { outcome, cost, denials, request: service_request, tool: ToolAvailability::Available, host_answers })
}

/// Collects the denials of all attempts at a call, because the denials in earlier attempts belong to the call too (O3).
/// The collected denials are reported with the result of the last attempt. If the call is stopped before it has a
/// result, the denials are reported when this value is dropped.
struct EarlierDenials<'s> {
    stopped: Option<&'s StoppedCalls>,
    call: &'s CallId,
    denials: Vec<Denial>,
}

impl EarlierDenials<'_> {
    /// Adds the denials of the latest attempt, and returns the denials of all attempts.
    fn with(&mut self, denials: Vec<Denial>) -> Vec<Denial> {
        for denial in denials {
            if !self.denials.contains(&denial) {
                self.denials.push(denial);
            }
        }
        self.denials.clone()
    }
}

impl Drop for EarlierDenials<'_> {
    fn drop(&mut self) {
        if let Some(stopped) = self.stopped {
            stopped.note(&self.call.0, std::mem::take(&mut self.denials));
        }
    }
}

impl RawOutcome {
    fn without_cost(outcome: Result<ToolDone, ToolError>) -> Self {
        let (cost, tool) = (CallCost::default(), ToolAvailability::Available);
        Self { outcome, cost, denials: Vec::new(), request: None, tool, host_answers: None }
    }

    /// Returns the outcome of a call whose tool was removed after the model called it (L7).
    fn of_removed_tool(message: String) -> Self {
        Self { tool: ToolAvailability::Removed, ..Self::without_cost(Err(ToolError::NotFound { message })) }
    }

    fn into_result(self) -> CallResult {
        let Self { outcome, cost, denials, tool, .. } = self;
        CallResult { cost, denials, tool, ..result_of(outcome) }
    }
}
