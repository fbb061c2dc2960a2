//! One call of a tool, wherever the tool comes from: arguments in, one result out.

mod mcp;

use crate::builtins;
use crate::registry::RegisteredTool;
use crate::session::Shared;
use agent_core::change::{CallRecord, CallResult, Denial, ToolPresence};
use agent_core::message::{CallId, Content};
use agent_core::plugin::Scope;
use agent_core::run::TurnError;
use agent_core::tool::{CallCost, ServiceRequest, ToolDone, ToolError, ToolOutcome, ToolSource};
use agent_core::view::result_text;
use agent_plugins::{CallFailure, HostAnswers, StoppedCalls, ToolCallContext, ToolCallRequest};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Tries of one dispatch when the tool says that it may succeed later (only tools that can be repeated).
const TRIES: u32 = 3;
/// First wait before another try, unless the tool names its own; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait that is worth it within a turn.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Wall time of any call; the plugin's own limit is shorter.
const LONGEST_CALL: Duration = Duration::from_secs(120);
/// Bytes of a result's text that are stored.
const STORED_BYTES: usize = 1 << 20;

/// What a call brought, before it is a result.
struct Brought {
    outcome: Result<ToolDone, ToolError>,
    cost: CallCost,
    denials: Vec<Denial>,
    /// Instead of an outcome.
    request: Option<Box<ServiceRequest>>,
    tool: ToolPresence,
    answers: Option<Box<HostAnswers>>,
}

/// How a call that has run came out.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With its result.
    Done(CallResult),
    /// It has asked for a service instead (P2).
    Pending(Box<ServiceRequest>, CallCost, Vec<Denial>),
}

/// A call that has run and asks for a service.
#[derive(Debug)]
pub(crate) struct PendingCall {
    pub(crate) call: CallId,
    pub(crate) request: ServiceRequest,
    pub(crate) cost: CallCost,
    pub(crate) denials: Vec<Denial>,
    pub(crate) answers: Option<Box<HostAnswers>>,
}

/// A call that has run.
#[derive(Debug)]
pub(crate) struct HasRun {
    pub(crate) ran: Ran,
    /// What the host answered its plugin, in the last try.
    pub(crate) answers: Option<Box<HostAnswers>>,
}

/// Runs a call to its result. `Err` is the host's own failure, which ends the turn (L9).
pub(crate) async fn run(shared: &Shared, record: &CallRecord, attempt: u32, scope: Scope) -> Result<HasRun, TurnError> {
    let Some(tool) = shared.agent.registry().get(&record.name) else {
        let message = format!("there is no tool `{}` any more", record.name);
        return Ok(HasRun { ran: Ran::Done(result(Brought::gone(message))), answers: None });
    };
    let filled_in;
    let record = match tool.outgoing(record.effective_arguments(), &scope.session) {
        Cow::Borrowed(_) => record,
        Cow::Owned(arguments) => {
            filled_in = CallRecord { edited: Some(arguments), ..record.clone() };
            &filled_in
        }
    };
    let mut tried = 0;
    let mut earlier =
        EarlierDenials { stopped: shared.ports.stopped.as_deref(), call: &record.id, denials: Vec::new() };
    loop {
        let mut brought = once(shared, tool, record, (attempt, scope.clone())).await?;
        tried += 1;
        brought.denials = earlier.with(std::mem::take(&mut brought.denials));
        if let Some(request) = brought.request.take() {
            earlier.denials.clear();
            let ran = Ran::Pending(request, brought.cost, brought.denials);
            return Ok(HasRun { ran, answers: brought.answers });
        }
        if let Ok(done) = &brought.outcome
            && let Err(error) = tool.check_structured(done.structured.as_ref())
        {
            brought.outcome = Err(error);
        }
        match wait_before_retry(tool, &brought.outcome, tried) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => {
                earlier.denials.clear();
                let answers = brought.answers.take();
                return Ok(HasRun { ran: Ran::Done(result(brought)), answers });
            }
        }
    }
}

fn wait_before_retry(tool: &RegisteredTool, outcome: &Result<ToolDone, ToolError>, tried: u32) -> Option<Duration> {
    let Err(ToolError::Unavailable { retry_after, .. }) = outcome else { return None };
    let wait = retry_after.map_or(FIRST_WAIT * 2_u32.pow(tried - 1), |ms| Duration::from_millis(ms.into()));
    (tool.definition.traits.repeatable() && tried < TRIES && wait <= LONGEST_WAIT).then_some(wait)
}

async fn once(
    shared: &Shared,
    tool: &RegisteredTool,
    record: &CallRecord,
    (attempt, scope): (u32, Scope),
) -> Result<Brought, TurnError> {
    match &tool.source {
        ToolSource::BuiltIn => {
            let started = Instant::now();
            let outcome = builtins::call(shared, &record.name, record.effective_arguments()).await;
            let wall_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            Ok(Brought { cost: CallCost { wall_us, ..CallCost::default() }, ..Brought::without_cost(outcome) })
        }
        ToolSource::Plugin { plugin, .. } => in_plugin(shared, plugin, record, (attempt, scope)).await,
        ToolSource::Mcp { server, .. } => mcp::call(shared, server, record).await,
        // These calls are handed on when they are dispatched, and never come here.
        ToolSource::Service { .. } | ToolSource::Agent { .. } => {
            let message = format!("this host cannot reach {} yet", tool.source);
            Ok(Brought::without_cost(Err(ToolError::Unavailable { message, retry_after: None })))
        }
    }
}

async fn in_plugin(
    shared: &Shared,
    name: &str,
    record: &CallRecord,
    (attempt, scope): (u32, Scope),
) -> Result<Brought, TurnError> {
    let Some(setup) = shared.agent.setups().get(name) else {
        return Err(TurnError::PluginChanged { reason: format!("`{name}` is not loaded") });
    };
    let setup = shared.setup(setup);
    let context = ToolCallContext { id: record.id.clone(), attempt, time_limit: LONGEST_CALL, scope };
    let request = ToolCallRequest { name: &record.name, args: record.effective_arguments().to_string(), context };
    let report = shared.sandbox.call_tool(&setup, request, &shared.ports).await;
    let mut asked = None;
    let outcome = match report.result {
        Ok(Ok(ToolOutcome::Done(done))) => Ok(done),
        Ok(Ok(ToolOutcome::Pending(request))) => {
            asked = Some(Box::new(request));
            Ok(ToolDone::default())
        }
        Ok(Err(error)) => Err(error),
        Err(failure @ CallFailure::Host { .. }) => return Err(TurnError::HostFailed { message: failure.to_string() }),
        Err(failure) => Err(failure.for_model()),
    };
    let (cost, denials, answers) = (report.cost, denials_in(&report.denials), report.answers);
    Ok(Brought { outcome, cost, denials, request: asked, tool: ToolPresence::There, answers })
}

/// What a plugin was refused, for events and the audit log.
pub(crate) fn denials_in(denials: &[agent_plugins::Denial]) -> Vec<Denial> {
    denials.iter().map(Denial::from).collect()
}

/// What earlier tries of a call were denied was denied to the call (O3). It is told with the result of the last try, or where
/// the call is stopped before that.
struct EarlierDenials<'s> {
    stopped: Option<&'s StoppedCalls>,
    call: &'s CallId,
    denials: Vec<Denial>,
}

impl EarlierDenials<'_> {
    /// All of them with those of one more try.
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

impl Brought {
    fn without_cost(outcome: Result<ToolDone, ToolError>) -> Self {
        let (cost, tool) = (CallCost::default(), ToolPresence::There);
        Self { outcome, cost, denials: Vec::new(), request: None, tool, answers: None }
    }

    /// The tool was there when the model called it (L7).
    fn gone(message: String) -> Self {
        Self { tool: ToolPresence::Gone, ..Self::without_cost(Err(ToolError::NotFound { message })) }
    }
}

pub(crate) fn result_of(outcome: Result<ToolDone, ToolError>) -> CallResult {
    result(Brought::without_cost(outcome))
}

/// The result of a call that has run and whose request was refused.
pub(crate) fn failed(error: ToolError, cost: CallCost, denials: Vec<Denial>) -> CallResult {
    result(Brought { cost, denials, ..Brought::without_cost(Err(error)) })
}

fn result(brought: Brought) -> CallResult {
    let Brought { outcome, cost, denials, tool, .. } = brought;
    match outcome {
        Err(error) => {
            let content = vec![Content::Text(error.for_model())];
            CallResult { content, structured: None, is_error: true, cost, denials, tool }
        }
        Ok(ToolDone { content, structured }) => {
            let content = match (content.is_empty(), &structured) {
                (false, _) => content,
                (true, Some(json)) => vec![Content::Json(json.clone())],
                (true, None) => vec![Content::Text("The call succeeded.".to_owned())],
            };
            CallResult { content: bounded(content), structured, is_error: false, cost, denials, tool }
        }
    }
}

/// At most 1 MiB of text is stored; the sandbox has refused more from plugins already.
pub(crate) fn bounded(content: Vec<Content>) -> Vec<Content> {
    let mut text = result_text(&content);
    if text.len() <= STORED_BYTES {
        return content;
    }
    text.truncate(text.floor_char_boundary(STORED_BYTES));
    text.push_str("\n[cut at 1 MiB: the rest is not stored]");
    let media = content.into_iter().filter(|item| matches!(item, Content::Media(_)));
    std::iter::once(Content::Text(text)).chain(media).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::message::{Digest, Media};

    /// L26: a result is stored up to 1 MiB, cut between characters and said so; its media stay.
    #[test]
    fn l26_at_most_one_mebibyte_of_a_result_is_stored() {
        let text = |bytes: usize| vec![Content::Text("x".repeat(bytes))];
        assert_eq!(bounded(text(STORED_BYTES)), text(STORED_BYTES));
        let digest = Digest::from_sha256([1; 32]);
        let media = Media { digest, mime_type: "image/png".to_owned(), size: 5, dimensions: None, name: None };
        let picture = Content::Media(media);
        // One byte, then characters of two: the limit is in the middle of one.
        let long = Content::Text(format!("x{}", "ä".repeat(STORED_BYTES)));
        let cut = bounded(vec![long, picture.clone()]);
        let [Content::Text(kept), last] = &cut[..] else { panic!("{} parts", cut.len()) };
        let (whole, note) = kept.split_once('\n').expect("a line says that it was cut");
        assert_eq!((whole.len(), note), (STORED_BYTES - 1, "[cut at 1 MiB: the rest is not stored]"));
        assert_eq!(*last, picture);
    }
}
