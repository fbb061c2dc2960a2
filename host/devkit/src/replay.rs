//! Has plugins do again what they did in a stored session, and finds where another version does otherwise (S6). All before the
//! first difference is as it was recorded, so what follows from it would be, too: the loop is a function of its inputs.

use crate::diff::named;
use agent_core::change::{CallRecord, CallResult, Denial};
use agent_core::message::{Content, Digest};
use agent_core::tool::ServiceRequest;
use agent_core::view::result_text;
use agent_plugins::{Generation, LoadedPlugin, Sandbox};
use agent_runtime::PluginAllowance;
use agent_runtime::replay::{Again, AskedFor, Came, Deed, DeedKind, Past, PastError, PastTurn};
use agent_store::{SessionSummary, Store, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the two sides of a difference are called.
const NAMES: (&str, &str) = ("then", "now");

/// Which part of a session is done again, and by whom.
pub struct Replay {
    /// Where the session is. Nothing is written.
    pub store: Arc<dyn Store>,
    /// Where plugins run.
    pub sandbox: Sandbox,
    /// Which.
    pub session: SessionSummary,
    /// Those that stand for the recorded ones, by name. Empty: each recorded plugin, as it was.
    pub with: BTreeMap<String, Arc<LoadedPlugin>>,
    /// What they may reach beside what was recorded, and within which limits, by name.
    pub allowances: BTreeMap<String, PluginAllowance>,
    /// The same for all others.
    pub otherwise: PluginAllowance,
    /// Only this one. None: all.
    pub turn: Option<u32>,
}

/// A session that cannot be done again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something of it cannot be done again.
    #[error(transparent)]
    Past(#[from] PastError),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Deeds that came out as they did then.
    pub same: usize,
    /// In the order of the session.
    pub differences: Vec<Difference>,
    /// What could not be done again or compared, and why not.
    pub skipped: Vec<String>,
    /// Deeds among them: nobody knows how they would come out.
    pub undone: usize,
}

/// Something that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where: the turn, the step, and what was done.
    pub place: String,
    /// Which plugin did it then, and which one now.
    pub plugin: String,
    /// What has changed, line by line.
    pub diff: String,
    /// What the plugin wanted that was not recorded.
    pub unrecorded: Vec<String>,
    /// What it changes otherwise: kept values, files, requests.
    pub effects: Vec<String>,
}

/// Until when to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The first difference.
    First,
    /// The end: each deed stands for itself, on what was recorded before it.
    End,
}

impl Replay {
    /// Does it again.
    pub async fn run(&self, until: Until) -> Result<Found, ReplayError> {
        let mut past = Past::read(self.store.clone(), self.sandbox.clone(), self.session.clone()).await?;
        let (mut found, mut told) = (Found::default(), Vec::new());
        while let Some(turn) = past.next_turn().await? {
            let mine = |deed: &&Deed| {
                let is_asked = self.with.is_empty() || self.with.contains_key(&deed.plugin);
                is_asked && self.turn.is_none_or(|turn| deed.turn == turn)
            };
            for deed in turn.deeds.iter().filter(mine) {
                self.repeat((&past, &turn), (deed, until), &mut told, &mut found).await?;
                if until == Until::First && !found.differences.is_empty() {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Does one thing again. `told` are the plugins whose tools were compared.
    async fn repeat(
        &self,
        (past, turn): (&Past, &PastTurn),
        (deed, until): (&Deed, Until),
        told: &mut Vec<(String, String)>,
        found: &mut Found,
    ) -> Result<(), ReplayError> {
        let place = place(deed);
        let mut undone = |why: &str| {
            found.undone += 1;
            found.skipped.push(format!("{place} by {}: {why}", deed.plugin));
        };
        if let DeedKind::Unrepeatable(_, why) = deed.kind {
            undone(why);
            return Ok(());
        }
        let then = self.recorded(deed).await;
        let now = match (self.with.get(&deed.plugin), &then) {
            (Some(plugin), _) => plugin.clone(),
            (None, Ok(plugin)) => plugin.clone(),
            (None, Err(why)) => {
                undone(why);
                return Ok(());
            }
        };
        let key = (deed.plugin.clone(), deed.digest.clone());
        if !told.contains(&key) {
            told.push(key);
            match then.map(|then| offered(deed, &then, &now)) {
                Ok(None) => {}
                Ok(Some(difference)) => {
                    found.differences.push(difference);
                    if until == Until::First {
                        return Ok(());
                    }
                }
                // Those of the session's prompts that name its tools are known by its digest alone.
                Err(why) => found.skipped.push(format!("{}: {why}", of_prompt(deed))),
            }
        }
        let allowance = self.allowances.get(&deed.plugin).unwrap_or(&self.otherwise);
        let Some(again) = past.again(turn, &now, deed, allowance).await? else { return Ok(()) };
        match compared(deed, &again, &now) {
            None => found.same += 1,
            Some(difference) => found.differences.push(difference),
        }
        Ok(())
    }

    /// The version that did it.
    async fn recorded(&self, deed: &Deed) -> Result<Arc<LoadedPlugin>, String> {
        let digest = match Digest::parse(&deed.digest) {
            Ok(digest) => digest,
            Err(_) => self.whole(deed).ok_or("the plugin store no longer has the version that did it")?,
        };
        let pinned = [(deed.plugin.clone(), digest)];
        let generation = Generation::from_digests(&self.sandbox, &pinned).await.map_err(|error| error.to_string())?;
        generation.plugins().next().cloned().ok_or_else(|| "it cannot be loaded".to_owned())
    }

    /// The digest that begins so, of those in the plugin store.
    fn whole(&self, deed: &Deed) -> Option<Digest> {
        let stored = self.sandbox.store()?.list().ok()?;
        stored.into_iter().map(|stored| stored.digest).find(|digest| digest.short() == deed.digest)
    }
}

fn place(deed: &Deed) -> String {
    let what = match &deed.kind {
        DeedKind::Call(call) => of_call(call),
        DeedKind::Request(asked) => of_call(&asked.0),
        DeedKind::Verdict(_) => "the verdict on the output".to_owned(),
        DeedKind::Decision(_) => "the decision on media".to_owned(),
        DeedKind::Context(_) => "the turn's context".to_owned(),
        DeedKind::Step(_) => "the step's context".to_owned(),
        DeedKind::Unrepeatable(what, _) => (*what).to_owned(),
    };
    format!("turn {}, step {}: {what}", deed.turn, deed.step)
}

fn of_call(call: &CallRecord) -> String {
    let arguments = call.effective_arguments().to_string();
    format!("{} {}", call.name, arguments.chars().take(200).collect::<String>())
}

fn of_prompt(deed: &Deed) -> String {
    format!("turn {}: the prompt, in what it says of the tools of {}", deed.turn, deed.plugin)
}

/// What the model was told of the plugin's tools, and would be told now: a part of each prompt.
fn offered(deed: &Deed, then: &LoadedPlugin, now: &LoadedPlugin) -> Option<Difference> {
    if then.digest() == now.digest() || then.tools() == now.tools() {
        return None;
    }
    let told = |plugin: &LoadedPlugin| {
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
        place: of_prompt(deed),
        plugin: between(&then.identity().to_string(), now),
        diff: named(NAMES, &told(then), &told(now)),
        unrecorded: Vec::new(),
        effects: Vec::new(),
    })
}

fn compared(deed: &Deed, again: &Again, now: &LoadedPlugin) -> Option<Difference> {
    let (then, came) = (recorded(&deed.kind), came(&again.came, &deed.kind));
    let effects = again.effects.clone();
    let unrecorded: Vec<String> = again.unrecorded.iter().map(|Denial { thing, .. }| thing.clone()).collect();
    if then == came && unrecorded.is_empty() && effects.is_empty() {
        return None;
    }
    let short = deed.digest.strip_prefix("sha256:").unwrap_or(&deed.digest);
    let then_by = format!("{}@{}", deed.plugin, short.chars().take(12).collect::<String>());
    let diff = if then == came { String::new() } else { named(NAMES, &then, &came) };
    Some(Difference { place: place(deed), plugin: between(&then_by, now), diff, unrecorded, effects })
}

fn between(then: &str, now: &LoadedPlugin) -> String {
    let now = now.identity().to_string();
    if then == now { now } else { format!("{then} → {now}") }
}

fn recorded(kind: &DeedKind) -> String {
    match kind {
        DeedKind::Call(call) => call.result.as_ref().map(result).unwrap_or_default(),
        DeedKind::Request(asked) => match &asked.1 {
            AskedFor::Whole(request) => whole(request),
            AskedFor::Type(event_type) => of_type(event_type),
        },
        DeedKind::Verdict(verdict) => format!("{:#}\n", json!(verdict.1)),
        DeedKind::Decision(decision) => format!("{:#}\n", json!(decision.1)),
        DeedKind::Context(built) => of_prompt_part(&built.answer),
        DeedKind::Step(built) => of_prompt_part(&built.answer),
        DeedKind::Unrepeatable(..) => String::new(),
    }
}

fn came(came: &Came, then: &DeedKind) -> String {
    match came {
        Came::Result(new) => result(new),
        Came::Request(request) => match then {
            DeedKind::Request(asked) if matches!(asked.1, AskedFor::Type(_)) => of_type(request.event_type.as_str()),
            _ => whole(request),
        },
        Came::Verdict(verdict) => format!("{:#}\n", json!(verdict)),
        Came::Decision(decision) => format!("{:#}\n", json!(decision)),
        Came::Built(answer) => of_prompt_part(answer),
        Came::Failed(reason) => format!("failed: {reason}\n"),
    }
}

/// All that a service is told.
fn whole(request: &ServiceRequest) -> String {
    format!("{}{:#}\n", of_type(request.event_type.as_str()), json!(request))
}

fn of_type(event_type: &str) -> String {
    format!("asks for the service {event_type}\n")
}

/// What a builder answers; its state, which only it can read, as a digest.
fn of_prompt_part(answer: &Value) -> String {
    let mut answer = answer.clone();
    if let Some(state) = answer.get_mut("state")
        && let Ok(bytes) = Vec::<u8>::deserialize(&*state)
    {
        *state = json!(format!("{} bytes, {}", bytes.len(), agent_plugins::digest_of(&bytes)));
    }
    format!("{answer:#}\n")
}

/// All of a result that somebody sees; what it cost is no part of it.
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
