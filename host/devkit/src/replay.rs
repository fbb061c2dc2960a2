//! Replays the plugin calls of a stored session and finds where another plugin version gives a different result (S6).
//! Everything before the first difference matches the recording, so a full run would reach the same point: the loop
//! is a function of its inputs.

use crate::diff::labelled;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::message::{Content, Digest};
use agent_core::tool::ServiceRequest;
use agent_core::view::result_text;
use agent_plugins::{Generation, LoadedPlugin, Sandbox};
use agent_runtime::PluginAllowance;
use agent_runtime::replay::{
    PluginAction, PluginActionKind, RecordedRequest, RecordedSession, RecordedTurn, Replayed, ReplayedOutcome,
};
use agent_store::{SessionSummary, Store, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The labels of the two sides of a difference.
const LABELS: (&str, &str) = ("then", "now");

/// Which part of a session to replay, and with which plugins.
pub struct Replay {
    /// The store with the session. Replay writes nothing to it.
    pub store: Arc<dyn Store>,
    /// The sandbox that runs the plugins.
    pub sandbox: Sandbox,
    /// The session to replay.
    pub session: SessionSummary,
    /// Plugins to use instead of the recorded ones, by name. If it is empty, each recorded plugin is replayed in its
    /// recorded version.
    pub with: BTreeMap<String, Arc<LoadedPlugin>>,
    /// Access and limits of the plugins in addition to what was recorded, by plugin name.
    pub allowances: BTreeMap<String, PluginAllowance>,
    /// Access and limits of all other plugins.
    pub otherwise: PluginAllowance,
    /// The turn to replay; None for all turns.
    pub turn: Option<u32>,
}

/// The reason why a session cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Part of the session cannot be replayed.
    #[error(transparent)]
    Session(#[from] agent_runtime::replay::ReplayError),
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Number of plugin calls with the recorded result.
    pub same: usize,
    /// The differences, in the order of the session.
    pub differences: Vec<Difference>,
    /// Messages about plugin calls that were not replayed or compared, with the reason.
    pub skipped: Vec<String>,
    /// Number of plugin calls that were not replayed. Their results are unknown.
    pub not_replayed: usize,
}

/// A plugin call with a different result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Turn, step and plugin call.
    pub place: String,
    /// The plugin that made the call when it was recorded, and the one that was used now.
    pub plugin: String,
    /// The differences of the result, line by line; empty if only `unrecorded` or `effects` differ.
    pub diff: String,
    /// Access that the plugin requested now and that was not recorded.
    pub unrecorded: Vec<String>,
    /// Different effects: stored values, files and requests.
    pub effects: Vec<String>,
}

/// When to stop a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// Stop at the first difference.
    FirstDifference,
    /// Replay to the end. Each call is replayed on its own, based on what was recorded before it.
    End,
}

impl Replay {
    /// Runs the replay.
    pub async fn run(&self, stop_at: StopAt) -> Result<ReplayReport, ReplayError> {
        let mut session = RecordedSession::read(self.store.clone(), self.sandbox.clone(), self.session.clone()).await?;
        let (mut report, mut compared_tools) = (ReplayReport::default(), Vec::new());
        while let Some(turn) = session.next_turn().await? {
            let is_selected = |action: &&PluginAction| {
                let is_replaced = self.with.is_empty() || self.with.contains_key(&action.plugin);
                is_replaced && self.turn.is_none_or(|turn| action.turn == turn)
            };
            for action in turn.actions.iter().filter(is_selected) {
                self.repeat((&session, &turn), (action, stop_at), &mut compared_tools, &mut report).await?;
                if stop_at == StopAt::FirstDifference && !report.differences.is_empty() {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    /// Replays one plugin call. `compared_tools` lists the plugins whose tool definitions were already compared.
    async fn repeat(
        &self,
        (session, turn): (&RecordedSession, &RecordedTurn),
        (action, stop_at): (&PluginAction, StopAt),
        compared_tools: &mut Vec<(String, String)>,
        report: &mut ReplayReport,
    ) -> Result<(), ReplayError> {
        let place = place(action);
        let mut skip = |why: &str| {
            report.not_replayed += 1;
            report.skipped.push(format!("{place} by {}: {why}", action.plugin));
        };
        if let PluginActionKind::NotReplayable(_, why) = action.kind {
            skip(why);
            return Ok(());
        }
        let then = self.recorded(action).await;
        let now = match (self.with.get(&action.plugin), &then) {
            (Some(plugin), _) => plugin.clone(),
            (None, Ok(plugin)) => plugin.clone(),
            (None, Err(why)) => {
                skip(why);
                return Ok(());
            }
        };
        let key = (action.plugin.clone(), action.digest.clone());
        if !compared_tools.contains(&key) {
            compared_tools.push(key);
            match then.map(|then| tool_difference(action, &then, &now)) {
                Ok(None) => {}
                Ok(Some(difference)) => {
                    report.differences.push(difference);
                    if stop_at == StopAt::FirstDifference {
                        return Ok(());
                    }
                }
                // The prompt's tool definitions come from the recorded version, which is known only by its digest.
                Err(why) => report.skipped.push(format!("{}: {why}", of_prompt(action))),
            }
        }
        let allowance = self.allowances.get(&action.plugin).unwrap_or(&self.otherwise);
        let Some(replayed) = session.replay(turn, &now, action, allowance).await? else { return Ok(()) };
        match difference(action, &replayed, &now) {
            None => report.same += 1,
            Some(difference) => report.differences.push(difference),
        }
        Ok(())
    }

    /// Loads the recorded version of the plugin from the plugin store.
    async fn recorded(&self, action: &PluginAction) -> Result<Arc<LoadedPlugin>, String> {
        let digest = match Digest::parse(&action.digest) {
            Ok(digest) => digest,
            Err(_) => self.full_digest(action).ok_or("the plugin store no longer has the recorded version")?,
        };
        let pinned = [(action.plugin.clone(), digest)];
        let generation = Generation::from_digests(&self.sandbox, &pinned).await.map_err(|error| error.to_string())?;
        generation.plugins().next().cloned().ok_or_else(|| "the recorded version cannot be loaded".to_owned())
    }

    /// The digest in the plugin store that starts with the recorded short digest.
    fn full_digest(&self, action: &PluginAction) -> Option<Digest> {
        let stored = self.sandbox.store()?.list().ok()?;
        stored.into_iter().map(|stored| stored.digest).find(|digest| digest.short() == action.digest)
    }
}

fn place(action: &PluginAction) -> String {
    let what = match &action.kind {
        PluginActionKind::Call(call) => of_call(call),
        PluginActionKind::Request(request) => of_call(&request.0),
        PluginActionKind::Verdict(_) => "the verdict on the output".to_owned(),
        PluginActionKind::Decision(_) => "the decision on media".to_owned(),
        PluginActionKind::Context(_) => "the turn's context".to_owned(),
        PluginActionKind::Step(_) => "the step's context".to_owned(),
        PluginActionKind::NotReplayable(what, _) => (*what).to_owned(),
    };
    format!("turn {}, step {}: {what}", action.turn, action.step)
}

fn of_call(call: &CallRecord) -> String {
    let arguments = call.effective_arguments().to_string();
    format!("{} {}", call.name, arguments.chars().take(200).collect::<String>())
}

fn of_prompt(action: &PluginAction) -> String {
    format!("turn {}: the tool definitions of {} in the prompt", action.turn, action.plugin)
}

/// Compares the recorded and the current tool definitions of a plugin, which are part of each prompt.
fn tool_difference(action: &PluginAction, then: &LoadedPlugin, now: &LoadedPlugin) -> Option<Difference> {
    if then.digest() == now.digest() || then.tools() == now.tools() {
        return None;
    }
    let definitions = |plugin: &LoadedPlugin| {
        let tools = plugin.tools().iter().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
                "output_schema": tool.output_schema,
                "traits": tool.traits,
                "priority": tool.priority,
            })
        });
        tools.map(|tool| format!("{tool:#}\n")).collect::<String>()
    };
    Some(Difference {
        place: of_prompt(action),
        plugin: between(&then.identity().to_string(), now),
        diff: labelled(LABELS, &definitions(then), &definitions(now)),
        unrecorded: Vec::new(),
        effects: Vec::new(),
    })
}

fn difference(action: &PluginAction, replayed: &Replayed, now: &LoadedPlugin) -> Option<Difference> {
    let (then, now_text) = (recorded_text(&action.kind), outcome_text(&replayed.outcome, &action.kind));
    let effects = replayed.effects.clone();
    let unrecorded: Vec<String> = replayed.unrecorded.iter().map(|Denial { thing, .. }| thing.clone()).collect();
    if then == now_text && unrecorded.is_empty() && effects.is_empty() {
        return None;
    }
    let short = action.digest.strip_prefix("sha256:").unwrap_or(&action.digest);
    let then_by = format!("{}@{}", action.plugin, short.chars().take(12).collect::<String>());
    let diff = if then == now_text { String::new() } else { labelled(LABELS, &then, &now_text) };
    Some(Difference { place: place(action), plugin: between(&then_by, now), diff, unrecorded, effects })
}

fn between(then: &str, now: &LoadedPlugin) -> String {
    let now = now.identity().to_string();
    if then == now { now } else { format!("{then} → {now}") }
}

fn recorded_text(kind: &PluginActionKind) -> String {
    match kind {
        PluginActionKind::Call(call) => call.result.as_ref().map(result).unwrap_or_default(),
        PluginActionKind::Request(request) => match &request.1 {
            RecordedRequest::Whole(request) => request_text(request),
            RecordedRequest::Type(event_type) => of_type(event_type),
        },
        PluginActionKind::Verdict(verdict) => format!("{:#}\n", json!(verdict.1)),
        PluginActionKind::Decision(decision) => format!("{:#}\n", json!(decision.1)),
        PluginActionKind::Context(built) => of_prompt_part(&built.answer),
        PluginActionKind::Step(built) => of_prompt_part(&built.answer),
        PluginActionKind::NotReplayable(..) => String::new(),
    }
}

fn outcome_text(outcome: &ReplayedOutcome, recorded: &PluginActionKind) -> String {
    match outcome {
        ReplayedOutcome::Result(new) => result(new),
        ReplayedOutcome::Request(request) => match recorded {
            PluginActionKind::Request(recorded) if matches!(recorded.1, RecordedRequest::Type(_)) => {
                of_type(request.event_type.as_str())
            }
            _ => request_text(request),
        },
        ReplayedOutcome::Verdict(verdict) => format!("{:#}\n", json!(verdict)),
        ReplayedOutcome::Decision(decision) => format!("{:#}\n", json!(decision)),
        ReplayedOutcome::Built(answer) => of_prompt_part(answer),
        ReplayedOutcome::Failed(reason) => format!("failed: {reason}\n"),
    }
}

/// The request as the service receives it.
fn request_text(request: &ServiceRequest) -> String {
    format!("{}{:#}\n", of_type(request.event_type.as_str()), json!(request))
}

fn of_type(event_type: &str) -> String {
    format!("requests the service {event_type}\n")
}

/// The answer of a context builder. Its opaque state is shown as a digest.
fn of_prompt_part(answer: &Value) -> String {
    let mut answer = answer.clone();
    if let Some(state) = answer.get_mut("state")
        && let Ok(bytes) = Vec::<u8>::deserialize(&*state)
    {
        *state = json!(format!("{} bytes, {}", bytes.len(), agent_plugins::digest_of(&bytes)));
    }
    format!("{answer:#}\n")
}

/// The visible parts of a result, without its cost.
fn result(result: &CallResult) -> String {
    let mut text = String::new();
    text.push_str(if result.is_error { "error\n" } else { "result\n" });
    text.push_str(result_text(&result.content).trim_end_matches('\n'));
    text.push('\n');
    for item in &result.content {
        if let Content::Media(media) = item {
            text.push_str(&format!("{}\n", json!(media)));
        }
    }
    if let Some(structured) = &result.structured {
        text.push_str(&format!("{structured:#}\n"));
    }
    text
}
