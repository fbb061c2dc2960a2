//! Replays the plugin calls of a stored session, and reports the calls for which another plugin version returns a
//! different result (S6).
//!
//! The agent's loop depends only on its inputs. Until the first difference, all inputs are equal to the recorded
//! inputs, so a complete run with the other version would reach the same call.

use super::{
    PluginAction, PluginActionKind, RecordedRequest, RecordedSession, RecordedTurn, ReplayError, Replayed,
    ReplayedOutcome,
};
use crate::agent::PluginAllowance;
use crate::text_difference::unified_diff;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::message::{Content, Digest};
use agent_core::tool::ServiceRequest;
use agent_core::view::result_text;
use agent_plugins::{Generation, LoadedPlugin, Sandbox};
use agent_store::{SessionSummary, Store, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The labels of the recorded text and of the replayed text in a diff.
const LABELS: (&str, &str) = ("then", "now");

/// A replay: the part of a session to replay, and the plugins to use.
pub struct Replay {
    /// The store that contains the session. The replay does not write to the store.
    pub store: Arc<dyn Store>,
    /// The sandbox that runs the plugins.
    pub sandbox: Sandbox,
    /// The session to replay.
    pub session: SessionSummary,
    /// Plugins to use instead of the recorded plugins. The keys are the names of the plugins. Only the calls of
    /// these plugins are replayed. If the map is empty, the calls of all plugins are replayed with the recorded
    /// versions of the plugins.
    pub with: BTreeMap<String, Arc<LoadedPlugin>>,
    /// Grants and limits that the plugins have in the replay, in addition to the grants that the record shows. The
    /// keys are the names of the plugins.
    pub allowances: BTreeMap<String, PluginAllowance>,
    /// Grants and limits of the plugins that are not in `allowances`.
    pub otherwise: PluginAllowance,
    /// If only one turn is replayed, the number of this turn. `None` means that all turns are replayed.
    pub turn: Option<u32>,
}

/// The reason why the replay of a session ended early.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An action of a plugin cannot be replayed.
    #[error(transparent)]
    Action(#[from] ReplayError),
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Number of plugin calls whose result is equal to the recorded result.
    pub same: usize,
    /// The differences, in the order of the session.
    pub differences: Vec<Difference>,
    /// Messages about plugin calls that were not replayed or not compared. Each message contains the reason.
    pub skipped: Vec<String>,
    /// Number of plugin calls that were not replayed, so that their results with the other version are unknown.
    pub not_replayed: usize,
}

/// A plugin call whose replayed result differs from the recorded result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Description of the turn, the step and the plugin call.
    pub place: String,
    /// The recorded version and the replayed version of the plugin. If the recorded version
    /// equals the replayed version, the text contains the version once.
    pub plugin: String,
    /// A unified diff of the recorded result and the replayed result. The diff is empty if the results are equal
    /// and the difference is in `unrecorded` or `effects`.
    pub diff: String,
    /// Access that the plugin requested in the replay, but not in the recorded session.
    pub unrecorded: Vec<String>,
    /// Descriptions of the plugin's effects that differ from the recorded effects: stored values, files and requests.
    pub effects: Vec<String>,
}

/// The point at which a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAt {
    /// The replay stops at the first difference.
    FirstDifference,
    /// All calls are replayed. Each call is replayed independently, with the inputs that were recorded before the call.
    End,
}

impl Replay {
    /// Replays the selected plugin calls of the session.
    pub async fn run(&self, stop_at: StopAt) -> Result<ReplayReport, ComparisonError> {
        let mut session = RecordedSession::read(self.store.clone(), self.sandbox.clone(), self.session.clone()).await?;
        let (mut report, mut compared_tools) = (ReplayReport::default(), Vec::new());
        if let Some(turn) = self.turn {
            session.begin_at(turn).await?;
        }
        while let Some(turn) = session.next_turn().await? {
            let is_selected = |action: &&PluginAction| {
                let is_replaced = self.with.is_empty() || self.with.contains_key(&action.plugin);
                is_replaced && self.turn.is_none_or(|turn| action.turn == turn)
            };
            for action in turn.actions.iter().filter(is_selected) {
                self.replay_action((&session, &turn), (action, stop_at), &mut compared_tools, &mut report).await?;
                if stop_at == StopAt::FirstDifference && !report.differences.is_empty() {
                    return Ok(report);
                }
            }
            if self.turn.is_some() {
                break;
            }
        }
        Ok(report)
    }

    /// Replays one plugin call. `compared_tools` contains the names and digests of the plugins whose tool definitions
    /// were already compared.
    async fn replay_action(
        &self,
        (session, turn): (&RecordedSession, &RecordedTurn),
        (action, stop_at): (&PluginAction, StopAt),
        compared_tools: &mut Vec<(String, String)>,
        report: &mut ReplayReport,
    ) -> Result<(), ComparisonError> {
        let place = description_of(action);
        let mut skip = |why: &str| {
            report.not_replayed += 1;
            report.skipped.push(format!("{place} by {}: {why}", action.plugin));
        };
        if let PluginActionKind::NotReplayable(_, why) = action.kind {
            skip(why);
            return Ok(());
        }
        let recorded = self.recorded_plugin(action).await;
        let replaying = match (self.with.get(&action.plugin), &recorded) {
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
            match recorded.map(|recorded| tool_difference(action, &recorded, &replaying)) {
                Ok(None) => {}
                Ok(Some(difference)) => {
                    report.differences.push(difference);
                    if stop_at == StopAt::FirstDifference {
                        return Ok(());
                    }
                }
                // The recorded tool definitions cannot be compared, because the recorded version is not available.
                Err(why) => report.skipped.push(format!("{}: {why}", tool_definitions_of(action))),
            }
        }
        let allowance = self.allowances.get(&action.plugin).unwrap_or(&self.otherwise);
        let Some(replayed) = session.replay(turn, &replaying, action, allowance).await? else { return Ok(()) };
        match difference(action, &replayed, &replaying) {
            None => report.same += 1,
            Some(difference) => report.differences.push(difference),
        }
        Ok(())
    }

    /// Loads the recorded version of the plugin from the plugin store.
    async fn recorded_plugin(&self, action: &PluginAction) -> Result<Arc<LoadedPlugin>, String> {
        let digest = match Digest::parse(&action.digest) {
            Ok(digest) => digest,
            Err(_) => self.full_digest(action).ok_or("the plugin store no longer has the recorded version")?,
        };
        let pinned = [(action.plugin.clone(), digest)];
        let generation = Generation::from_digests(&self.sandbox, &pinned).await.map_err(|error| error.to_string())?;
        generation.plugins().next().cloned().ok_or_else(|| "the recorded version cannot be loaded".to_owned())
    }

    /// Returns the full digest of the recorded version, which is found in the plugin store by the
    /// recorded short digest.
    fn full_digest(&self, action: &PluginAction) -> Option<Digest> {
        let stored = self.sandbox.store()?.list().ok()?;
        stored.into_iter().map(|stored| stored.digest).find(|digest| digest.short() == action.digest)
    }
}

fn description_of(action: &PluginAction) -> String {
    let action_text = match &action.kind {
        PluginActionKind::Call(call) => call_text(call),
        PluginActionKind::Request(request) => call_text(&request.0),
        PluginActionKind::Verdict(_) => "the verdict on the output".to_owned(),
        PluginActionKind::Decision(_) => "the decision on media".to_owned(),
        PluginActionKind::Context(_) => "the turn's context".to_owned(),
        PluginActionKind::Step(_) => "the step's context".to_owned(),
        PluginActionKind::NotReplayable(description, _) => (*description).to_owned(),
    };
    format!("turn {}, step {}: {action_text}", action.turn, action.step)
}

fn call_text(call: &CallRecord) -> String {
    let arguments = call.effective_arguments().to_string();
    format!("{} {}", call.name, arguments.chars().take(200).collect::<String>())
}

fn tool_definitions_of(action: &PluginAction) -> String {
    format!("turn {}: the tool definitions of {} in the prompt", action.turn, action.plugin)
}

/// Compares the tool definitions of the recorded version and of the replayed version of a plugin. Tool definitions are
/// part of each prompt.
fn tool_difference(action: &PluginAction, recorded: &LoadedPlugin, replaying: &LoadedPlugin) -> Option<Difference> {
    if recorded.digest() == replaying.digest() || recorded.tools() == replaying.tools() {
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
        place: tool_definitions_of(action),
        plugin: version_change(&recorded.identity().to_string(), replaying),
        diff: unified_diff(LABELS, &definitions(recorded), &definitions(replaying)),
        unrecorded: Vec::new(),
        effects: Vec::new(),
    })
}

fn difference(action: &PluginAction, replayed: &Replayed, replaying: &LoadedPlugin) -> Option<Difference> {
    let (recorded_text, replayed_text) = (recorded_text(&action.kind), outcome_text(&replayed.outcome, &action.kind));
    let effects = replayed.effects.clone();
    let unrecorded: Vec<String> = replayed.unrecorded.iter().map(|Denial { thing, .. }| thing.clone()).collect();
    if recorded_text == replayed_text && unrecorded.is_empty() && effects.is_empty() {
        return None;
    }
    let short = action.digest.strip_prefix("sha256:").unwrap_or(&action.digest);
    let recorded_version = format!("{}@{}", action.plugin, short.chars().take(12).collect::<String>());
    let diff = if recorded_text == replayed_text {
        String::new()
    } else {
        unified_diff(LABELS, &recorded_text, &replayed_text)
    };
    Some(Difference {
        place: description_of(action),
        plugin: version_change(&recorded_version, replaying),
        diff,
        unrecorded,
        effects,
    })
}

fn version_change(recorded: &str, replaying: &LoadedPlugin) -> String {
    let replaying = replaying.identity().to_string();
    if recorded == replaying { replaying } else { format!("{recorded} → {replaying}") }
}

fn recorded_text(kind: &PluginActionKind) -> String {
    match kind {
        PluginActionKind::Call(call) => call.result.as_ref().map(call_result_text).unwrap_or_default(),
        PluginActionKind::Request(request) => match &request.1 {
            RecordedRequest::Whole(request) => request_text(request),
            RecordedRequest::Type(event_type) => event_type_text(event_type),
        },
        PluginActionKind::Verdict(verdict) => format!("{:#}\n", json!(verdict.1)),
        PluginActionKind::Decision(decision) => format!("{:#}\n", json!(decision.1)),
        PluginActionKind::Context(built) => context_text(&built.answer),
        PluginActionKind::Step(built) => context_text(&built.answer),
        PluginActionKind::NotReplayable(..) => String::new(),
    }
}

fn outcome_text(outcome: &ReplayedOutcome, recorded: &PluginActionKind) -> String {
    match outcome {
        ReplayedOutcome::Result(result) => call_result_text(result),
        ReplayedOutcome::Request(request) => match recorded {
            PluginActionKind::Request(recorded) if matches!(recorded.1, RecordedRequest::Type(_)) => {
                event_type_text(request.event_type.as_str())
            }
            _ => request_text(request),
        },
        ReplayedOutcome::Verdict(verdict) => format!("{:#}\n", json!(verdict)),
        ReplayedOutcome::Decision(decision) => format!("{:#}\n", json!(decision)),
        ReplayedOutcome::Built(answer) => context_text(answer),
        ReplayedOutcome::Failed(reason) => format!("failed: {reason}\n"),
    }
}

/// Formats the request that the service receives.
fn request_text(request: &ServiceRequest) -> String {
    format!("{}{:#}\n", event_type_text(request.event_type.as_str()), json!(request))
}

fn event_type_text(event_type: &str) -> String {
    format!("requests the service {event_type}\n")
}

/// Formats the answer of a context builder. The opaque state in the answer is replaced by its size and digest.
fn context_text(answer: &Value) -> String {
    let mut answer = answer.clone();
    if let Some(state) = answer.get_mut("state")
        && let Ok(bytes) = Vec::<u8>::deserialize(&*state)
    {
        *state = json!(format!("{} bytes, {}", bytes.len(), agent_plugins::digest_of(&bytes)));
    }
    format!("{answer:#}\n")
}

/// Formats the result of a call, without the cost of the call.
fn call_result_text(result: &CallResult) -> String {
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
