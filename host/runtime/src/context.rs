//! The beginning of a turn: the context builder's answer, or the host's own prompt assembly (L2, L22).

use crate::calls::denials_in;
use crate::drive::Deed;
use crate::places::Places;
use crate::registry::tokens_of;
use crate::session::{Notes, Session};
use crate::trace;
use agent_core::change::Denial;
use agent_core::message::CallId;
use agent_core::plugin::{
    BuilderMemory, BuilderRequest, BuilderTool, BuiltPrompt, Lifecycle, PluginFailure, Recollection, Scope,
};
use agent_core::prompt::{Course, preface, record, system_sections, texts};
use agent_core::run::{Input, PromptBudget, TurnContext, TurnError};
use agent_core::tokens;
use agent_core::tool::CallCost;
use agent_plugins::{CallFailure, CallReport, HostAnswers, PluginSetup, Ports};
use agent_store::{StepRecord, StoreError, digest_of};
use serde_json::{Value, json};

/// Facts from long-term memory that a turn begins with, at most.
const RECOLLECTIONS: usize = 5;
/// Characters of each.
const RECOLLECTION_CHARACTERS: usize = 400;
/// Tokens of all of them: they stay in the history with their turn. In small windows less, by the part of what the window
/// leaves for messages.
const RECOLLECTED_TOKENS: u32 = 600;
const RECOLLECTED_PART: u32 = 8;

/// What a context builder answered.
struct AskedBuilder {
    /// `name@digest`.
    plugin: String,
    built: BuiltPrompt,
    cost: CallCost,
    /// The question by reference, as prompts are recorded (D1), with the texts that it refers to.
    asked: Value,
    texts: Vec<String>,
    /// What the host answered it.
    answers: Option<Box<HostAnswers>>,
    denials: Vec<Denial>,
}

/// The store's failure, as the end of a turn.
pub(crate) fn store_failed(error: StoreError) -> TurnError {
    TurnError::HostFailed { message: error.to_string() }
}

/// The answer of a plugin that is not a tool. Its failure ends the turn: nothing goes on as if it had not been asked
/// (row 22).
pub(crate) fn answer<T>(setup: &PluginSetup, report: CallReport<Result<T, PluginFailure>>) -> Result<T, TurnError> {
    let plugin = setup.plugin().identity().to_string();
    match report.result {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(TurnError::PluginFailed { plugin, message: failure.to_string() }),
        Err(failure @ CallFailure::Host { .. }) => Err(TurnError::HostFailed { message: failure.to_string() }),
        Err(failure) => Err(TurnError::PluginFailed { plugin, message: failure.to_string() }),
    }
}

impl Session {
    /// For whom the plugins of the open turn work, with a span of its own for each call.
    pub(crate) fn scope(&self) -> Scope {
        let trace = self.run.turn.as_ref().map_or_else(trace::root, |turn| trace::child(&turn.trace));
        Scope {
            agent: self.run.agent.clone(),
            session: self.run.session.clone(),
            delegated_by: self.run.delegated_by.clone(),
            user: self.shared.agent.config().user.clone(),
            turn: self.run.turns,
            trace,
        }
    }

    /// What was refused to a plugin that no call has asked is told with the next thing that is committed (O3).
    pub(crate) fn note_denials(&mut self, denials: &[agent_plugins::Denial]) {
        self.denied.extend(denials_in(denials).into_iter().map(|denial| (None, denial)));
    }

    /// The same for calls that were stopped before they could report it.
    pub(crate) fn note_denials_of_stopped_calls(&mut self) {
        let denials = self.shared.ports.stopped.as_ref().map(|stopped| stopped.take()).unwrap_or_default();
        for (call, denial) in denials {
            // Validators and context builders run under names that are no calls of the turn.
            let call = CallId(call);
            let is_call = self.run.claimed_calls().any(|(open, ..)| *open == call);
            self.denied.push((is_call.then_some(call), denial));
        }
    }

    pub(crate) fn ports(&self) -> Ports {
        self.shared.ports.clone()
    }

    /// Builds what the turn begins with.
    pub(crate) async fn build_context(&mut self) -> Deed {
        self.ask_about_builder().await;
        let agent = self.shared.agent.clone();
        let query = self.run.turn.as_ref().map(|turn| turn.input.message().plain_text()).unwrap_or_default();
        let offered = self.offered_for(&query).await;
        let budget = self.budget_of(self.model(), self.tool_tokens(offered.as_deref()));
        let recollections = self.recollections(budget.remaining(0)).await;
        let built = match agent.context_builder().map(|builder| self.shared.setup(builder).into_owned()) {
            Some(builder) => Some(self.ask_builder(&builder, &recollections, (&offered, budget)).await?),
            None => None,
        };
        let answer = built.as_ref().map(|builder| {
            let AskedBuilder { plugin, built, cost, asked, answers, denials, .. } = builder;
            let host = json!({"answers": answers, "denials": denials});
            json!({"plugin": plugin, "asked": asked, "host": host, "answer": built, "cost": cost})
        });
        let (built, referred) = built.map(|asked| (asked.built, asked.texts)).unwrap_or_default();
        let sections = system_sections(&agent.config().prompt, agent.config().bounds.finish, built.system);
        let plan = self.plan_budgets();
        let course = if plan.is_some() { Course::Plan } else { Course::Loop };
        let preface = preface(&agent.config().prompt, course, &recollections);
        let texts = texts(&sections);
        let system = texts.iter().fold(0, |sum: u32, text| sum.saturating_add(tokens::of_text(text)));
        let budget = PromptBudget { system, ..budget };
        let body = json!({
            "builder": answer,
            "recollections": recollections,
            "plugins": self.run.turn.as_ref().map(|turn| &turn.plugins),
            "servers": agent.server_digests(),
            "configuration": agent.fingerprint(),
            "offered": offered,
        });
        let records = vec![StepRecord { turn: self.run.turns, step: 0, kind: "context".to_owned(), body }];
        let texts = texts.into_iter().chain(referred).collect();
        let context = TurnContext {
            sections,
            preface,
            history: built.history,
            messages: built.messages,
            state: built.state,
            budget,
            offered,
            plan,
        };
        Ok((Input::Context { context }, Notes { records, texts, ..Notes::default() }))
    }

    async fn ask_builder(
        &mut self,
        builder: &PluginSetup,
        recollections: &[Recollection],
        (offered, budget): (&Option<Vec<String>>, PromptBudget),
    ) -> Result<AskedBuilder, TurnError> {
        let history = self.shown(|_| true).await.map_err(store_failed)?;
        let (places, blocks) = Places::new(&self.places(|_| true), self.run.model_calls);
        let agent = self.shared.agent.clone();
        let tools = agent.registry().offered_among(offered.as_deref()).into_iter().map(|tool| BuilderTool {
            name: tool.author_name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            tokens: tokens_of(tool),
        });
        let Some(turn) = &self.run.turn else {
            return Err(TurnError::HostFailed { message: "no turn is open".to_owned() });
        };
        let hidden = self.run.next_message - 1 - self.run.view.len() as u64;
        let request = BuilderRequest {
            lifecycle: Lifecycle::Init,
            scope: self.scope(),
            model: self.model().facts().model.clone(),
            input: turn.input.clone(),
            tools: tools.collect(),
            memory: BuilderMemory {
                history,
                hidden: u32::try_from(hidden).unwrap_or(u32::MAX),
                summary: self.run.summary.as_ref().map(|summary| summary.section().text),
                recollections: recollections.to_vec(),
            },
            budget: budget.for_plugins(),
        };
        let tools = json!(request.tools).to_string();
        let digest = |text: &str| digest_of(text.as_bytes()).to_string();
        let asked = json!({
            "model": request.model,
            "input": request.input,
            "tools": digest(&tools),
            "messages": places,
            "result_characters": agent.config().bounds.result_characters,
            "hidden": request.memory.hidden,
            "summary": request.memory.summary.as_deref().map(digest),
            "budget": request.budget,
        });
        let texts = request.memory.summary.iter().cloned().chain([tools]).chain(blocks).collect();
        let mut report = self.shared.sandbox.build_context(builder, &request, &self.ports()).await;
        self.note_denials(&report.denials);
        let (plugin, cost, answers) = (builder.plugin().identity().to_string(), report.cost, report.answers.take());
        let denials = denials_in(&report.denials);
        Ok(AskedBuilder { plugin, built: answer(builder, report)?, cost, asked, texts, answers, denials })
    }

    /// What is nearest to the input in long-term memory, as far as this session may recall it (D4): short pieces, a small part
    /// of the `room` for messages. A failed search never fails the turn.
    async fn recollections(&self, room: u32) -> Vec<Recollection> {
        let (Some(filter), Some(turn)) = (self.shared.recalls(), &self.run.turn) else { return Vec::new() };
        let query = turn.input.message().plain_text();
        match self.shared.store.search(&filter, &query, RECOLLECTIONS).await {
            Ok(found) => bounded(found, RECOLLECTED_TOKENS.min(room / RECOLLECTED_PART)),
            Err(error) => {
                tracing::warn!(session = %self.run.session, %error, "long-term memory was not searched");
                Vec::new()
            }
        }
    }
}

/// The beginnings of the nearest memories, as many as have room together.
fn bounded(found: Vec<Recollection>, limit: u32) -> Vec<Recollection> {
    let mut left = limit;
    let shortened = found.into_iter().map(|fact| Recollection { text: shortened(&fact.text), ..fact });
    let has_room = |fact: &Recollection| {
        let rest = left.checked_sub(tokens::of_text(&record(fact)));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    shortened.filter(has_room).collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(RECOLLECTION_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: what is recalled is short, cut between characters, and in a small room less.
    #[test]
    fn d4_what_is_recalled_is_bounded() {
        let fact = |text: String| Recollection { id: "m".into(), text, written: "2026-01-01".into(), score: 0.1 };
        let long = || vec![fact("ä".repeat(4_000)), fact("short".into()), fact("\n".repeat(4_000))];
        let all = bounded(long(), u32::MAX);
        assert_eq!(all[0].text, format!("{}…", "ä".repeat(400)));
        assert_eq!((all.len(), all[1].text.as_str()), (3, "short"));
        let few = bounded(long(), 60);
        assert!(few.iter().map(|fact| fact.text.as_str()).eq(["short"]), "{few:?}");
        let tokens: u32 = all.iter().map(|fact| tokens::of_text(&record(fact))).sum();
        let kept = bounded(long(), tokens - 1);
        assert_eq!(kept.len(), 2, "what is added to show it counts, too");
        assert_eq!(bounded(long(), 0), []);
    }
}
