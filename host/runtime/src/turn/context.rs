//! Builds the first prompt of a turn. If the agent has a context builder, the context builder is called (L2, L22).

use super::action::{ActionContext, ActionResult, plugin_answer, store_failed};
use super::plan_step::plan_budgets;
use super::tool_selection::{SelectedTools, SelectionBasis, select_tools, tool_tokens};
use crate::records::{
    BuilderCallRecord, BuilderQuestion, BuilderSurroundings, CommitNotes, ContextRecord, Question, StepRecordBody,
};
use crate::tools::registry::tokens_of;
use crate::tools::results::denials_in;
use crate::waiting::ask_about_builder;
use agent_core::plugin::{BuilderMemory, BuilderRequest, BuilderTool, BuiltPrompt, Lifecycle, Recollection};
use agent_core::prompt::{TurnMode, preface, record, system_sections, texts};
use agent_core::run::{Input, PromptBudget, TurnContext, TurnError};
use agent_core::tokens;
use agent_core::trace::SpanKey;
use agent_plugins::PluginSetup;
use agent_store::digest_of;
use serde_json::json;

/// Maximum number of facts from long-term memory in the first prompt of a turn.
const MAX_RECOLLECTIONS: usize = 5;
/// Maximum number of characters of each fact from long-term memory.
const MAX_RECOLLECTION_CHARACTERS: usize = 400;
/// Maximum total number of tokens of the facts from long-term memory in one prompt. The limit is low, because these
/// facts remain in the history after the turn that recalled them.
const MAX_RECOLLECTION_TOKENS: u32 = 600;
/// The recalled facts may use at most the tokens that are available for messages, divided by this number. This limit
/// takes effect if the context window is small.
const RECOLLECTIONS_DIVISOR: u32 = 8;

/// The answer of a context builder, and the data to record about the builder's call.
struct BuilderReply {
    built: BuiltPrompt,
    /// The recorded input of the context builder. As in the records of prompts, texts and messages are stored as
    /// references (D1).
    record: BuilderCallRecord<BuilderQuestion>,
    /// Texts that the recorded input refers to.
    texts: Vec<String>,
}

/// Builds the first prompt of the turn.
pub(super) async fn build_context(context: &mut ActionContext<'_>) -> ActionResult {
    ask_about_builder(context.services).await;
    let agent = context.agent();
    let query = context.run.turn.as_ref().map(|turn| turn.input.message().plain_text()).unwrap_or_default();
    let ids: Vec<_> = context.run.sent().map(|entry| entry.id).collect();
    let earlier = context.history.load(&ids).await.map_err(store_failed)?;
    let SelectedTools { offered, embedding } =
        select_tools(context.services, &SelectionBasis::new(query, &earlier)).await;
    let budget = context.budget_of(context.model(), tool_tokens(context.services, offered.as_deref()));
    let recollections = recollections(context, budget.remaining(0)).await;
    let reply = match agent.context_builder().map(|builder| context.services.current_setup(builder).into_owned()) {
        Some(builder) => Some(ask_builder(context, &builder, &recollections, (&offered, budget)).await?),
        None => None,
    };
    let (built, builder, referenced_texts) = match reply {
        Some(BuilderReply { built, record, texts }) => (built, Some(record), texts),
        None => Default::default(),
    };
    let sections = system_sections(&agent.config().prompt, agent.config().bounds.finish, built.system);
    let plan = plan_budgets(context);
    let mode = if plan.is_some() { TurnMode::Plan } else { TurnMode::Loop };
    let preface = preface(&agent.config().prompt, mode, &recollections);
    let texts = texts(&sections);
    let system = texts.iter().fold(0, |sum: u32, text| sum.saturating_add(tokens::of_text(text)));
    let budget = PromptBudget { system, ..budget };
    let recalled = recollections.iter().map(|memory| memory.id.clone()).collect();
    let record = ContextRecord {
        builder,
        recollections,
        plugins: context.run.turn.as_ref().map(|turn| turn.plugins.clone()),
        servers: agent.server_digests(),
        configuration: agent.fingerprint().to_owned(),
        offered: offered.clone(),
    };
    let texts = texts.into_iter().chain(referenced_texts).collect();
    let mut notes = CommitNotes { texts, ..CommitNotes::default() };
    notes.records.extend(embedding.map(|record| StepRecordBody::Embedding(record).into_record(context.run.turns, 0)));
    notes.add(context.run, 0, StepRecordBody::Context(Box::new(record)));
    let context = TurnContext {
        sections,
        preface,
        history: built.history,
        messages: built.messages,
        state: built.state,
        budget,
        offered,
        plan,
        recalled,
    };
    Ok((Input::Context { context }, notes))
}

async fn ask_builder(
    context: &mut ActionContext<'_>,
    builder: &PluginSetup,
    recollections: &[Recollection],
    (offered, budget): (&Option<Vec<String>>, PromptBudget),
) -> Result<BuilderReply, TurnError> {
    let history = context.shown(|_| true).await?;
    let (positions, blocks) = context.positions(|_| true);
    let tools = context.agent().registry().offered_among(offered.as_deref()).into_iter().map(|tool| BuilderTool {
        name: tool.author_name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        tokens: tokens_of(tool),
    });
    let Some(turn) = &context.run.turn else {
        return Err(TurnError::HostFailed { message: "internal error: no turn is open".to_owned() });
    };
    let hidden = context.run.next_message - 1 - context.run.view.len() as u64;
    let request = BuilderRequest {
        lifecycle: Lifecycle::Init,
        scope: context.scope(Some(SpanKey::Context)),
        model: context.model().info().model.clone(),
        input: turn.input.clone(),
        tools: tools.collect(),
        memory: BuilderMemory {
            history,
            hidden: u32::try_from(hidden).unwrap_or(u32::MAX),
            summary: context.run.summary.as_ref().map(|summary| summary.section().text),
            recollections: recollections.to_vec(),
        },
        budget: budget.for_plugins(),
    };
    let tools = json!(request.tools).to_string();
    let digest = |text: &str| digest_of(text.as_bytes()).to_string();
    let question = BuilderQuestion {
        model: request.model.clone(),
        input: request.input.clone(),
        tools: digest(&tools),
        messages: positions,
        result_characters: context.result_characters(),
        hidden: request.memory.hidden,
        summary: request.memory.summary.as_deref().map(digest),
        budget: request.budget,
    };
    let texts = request.memory.summary.iter().cloned().chain([tools]).chain(blocks).collect();
    let mut report = context.services.sandbox.build_context(builder, &request, &context.services.ports).await;
    context.note_denials(&report.denials);
    let (plugin, cost) = (builder.plugin().identity().to_string(), report.cost);
    let host = BuilderSurroundings { answers: report.answers.take(), denials: denials_in(&report.denials) };
    let built = plugin_answer(builder, report)?;
    let record = BuilderCallRecord { plugin, asked: Question::Recorded(question), host, answer: json!(built), cost };
    Ok(BuilderReply { built, record, texts })
}

/// Searches long-term memory for facts that are related to the input and that this session may recall (D4). `available`
/// is the number of tokens for all messages. The facts are truncated and use only a small part of the `available`
/// tokens. If the search fails, the turn continues without facts.
async fn recollections(context: &ActionContext<'_>, available: u32) -> Vec<Recollection> {
    let (Some(filter), Some(turn)) = (context.services.recall_filter(), &context.run.turn) else { return Vec::new() };
    let query = turn.input.message().plain_text();
    match context.services.store.search(&filter, &query, MAX_RECOLLECTIONS).await {
        Ok(found) => bounded(found, MAX_RECOLLECTION_TOKENS.min(available / RECOLLECTIONS_DIVISOR)),
        Err(error) => {
            tracing::warn!(session = %context.run.session, %error, "the search in long-term memory failed");
            Vec::new()
        }
    }
}

/// Shortens the facts, and returns facts that together have at most `limit` tokens. Facts that do not fit are dropped.
fn bounded(found: Vec<Recollection>, limit: u32) -> Vec<Recollection> {
    let mut left = limit;
    let shortened = found.into_iter().map(|fact| Recollection { text: shortened(&fact.text), ..fact });
    let fits = |fact: &Recollection| {
        let remaining = left.checked_sub(tokens::of_text(&record(fact)));
        left = remaining.unwrap_or(left);
        remaining.is_some()
    };
    shortened.filter(fits).collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_RECOLLECTION_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: recalled facts are truncated at character boundaries, and together have at most the given number of tokens.
    #[test]
    fn d4_recalled_facts_are_bounded() {
        let fact = |text: String| Recollection { id: "m".into(), text, written: "2026-01-01".into(), score: 0.1 };
        let long = || vec![fact("ä".repeat(4_000)), fact("short".into()), fact("\n".repeat(4_000))];
        let all = bounded(long(), u32::MAX);
        assert_eq!(all[0].text, format!("{}…", "ä".repeat(400)));
        assert_eq!((all.len(), all[1].text.as_str()), (3, "short"));
        let few = bounded(long(), 60);
        assert!(few.iter().map(|fact| fact.text.as_str()).eq(["short"]), "{few:?}");
        let tokens: u32 = all.iter().map(|fact| tokens::of_text(&record(fact))).sum();
        let kept = bounded(long(), tokens - 1);
        assert_eq!(kept.len(), 2, "the tokens of the text that is added to each fact are counted too");
        assert_eq!(bounded(long(), 0), []);
    }
}
