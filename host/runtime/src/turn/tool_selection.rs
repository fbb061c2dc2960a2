//! Selects the tools that a model is offered: all tools, or the tools that match the task best (L25).

use crate::agent::Agent;
use crate::host::SessionServices;
use crate::records::EmbeddingRecord;
use crate::tools::builtins;
use agent_core::loop_break::LoopBreak;
use agent_core::message::{Part, Role, StoredMessage};
use agent_core::model::OfferedTool;
use agent_core::offer::{nearest_by_meaning, nearest_by_words};
use agent_core::plan::PlanStep;
use agent_core::run::PlannedStep;
use agent_core::text_dialect::{ToolDialect, schema_sections};
use agent_core::tool::ToolSource;
use agent_core::{prompt, tokens};
use agent_models::Embedder;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The built-in tools that do not belong to the loop.
const ORDINARY_BUILTINS: [&str; 2] = [builtins::name::LIST_DIRECTORY, builtins::name::READ_FILE];
/// Maximum number of messages directly before the input that are used, together with the input, to select tools.
const QUERY_MESSAGES: usize = 4;
/// Maximum number of characters of each of these messages.
const QUERY_CHARACTERS: usize = 1000;
/// Those built-in tools of the loop that a step of a plan may use.
const PLANNABLE_BUILTINS: [&str; 2] = [builtins::name::READ_RESULT, builtins::name::MEMORY_SEARCH];

/// What the selection of tools depends on.
#[derive(Default)]
pub(super) struct SelectionBasis {
    /// The input and the text of the last messages.
    query: String,
    /// Names of the tools that were called in the messages of the prompt, as their authors spelled them.
    used: BTreeSet<String>,
}

impl SelectionBasis {
    /// Reads the messages of the session that the prompt contains. `input` is the input of the turn.
    pub(super) fn new(input: String, messages: &[Arc<StoredMessage>]) -> Self {
        let mut basis = Self { query: input, used: BTreeSet::new() };
        let parts = messages.iter().flat_map(|message| &message.parts);
        basis.used.extend(parts.filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.name.clone()),
            _ => None,
        }));
        let latest = messages.iter().rev().filter(|message| matches!(message.role, Role::User | Role::Assistant));
        for message in latest.take(QUERY_MESSAGES) {
            let texts = message.parts.iter().filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            });
            let text: String = texts.flat_map(|text| text.chars().chain(['\n'])).take(QUERY_CHARACTERS).collect();
            basis.query.push('\n');
            basis.query.push_str(&text);
        }
        basis
    }
}

/// The tools that a turn offers, and how they were selected.
#[derive(Default)]
pub(super) struct SelectedTools {
    /// Names of the tools, as their authors spelled them and in the order of the registry. `None` means that all tools are
    /// offered.
    pub(super) offered: Option<Vec<String>>,
    /// The call of the embedding model. `None` means that no embedding model was called.
    pub(super) embedding: Option<EmbeddingRecord>,
}

/// Returns the tools that the open turn offers.
///
/// The configured number of tools counts every tool except those that end a turn, which are always offered. The tool
/// `read_result` is always selected if the configured number is at least 2, because results can be cut during the turn.
/// The tools of the client are selected next, because the client chose them for this turn. The tools that were used before
/// follow, and after them the tools that are nearest to the input and the last messages.
pub(super) async fn select_tools(services: &SessionServices, basis: &SelectionBasis) -> SelectedTools {
    let agent = &services.agent;
    let tools = agent.registry().offered();
    let name = |index: &usize| tools[*index].author_name.as_str();
    let ends_turn = |index: &usize| LoopBreak::of_tool(name(index)).is_some() && belongs_to_loop(services, name(index));
    let (ending, counted): (Vec<usize>, Vec<usize>) = (0..tools.len()).partition(ends_turn);
    let count = agent.config().offered_tools as usize;
    if counted.len() <= count {
        return SelectedTools::default();
    }
    let Ranking { mut orders, embedding } = nearest(services, std::slice::from_ref(&basis.query)).await;
    let order = orders.pop().unwrap_or_default();
    let is_fixed = |index: &usize| name(index) == builtins::name::READ_RESULT && belongs_to_loop(services, name(index));
    let of_client = |index: &usize| agent.registry().source_of(name(index)) == Some(&ToolSource::Client);
    let used_program = basis.used.iter().any(|used| agent.registry().is_run_by_name(used));
    let was_called = |name: &str| basis.used.contains(name) || name == builtins::name::RUN_COMMAND && used_program;
    let is_used = |index: &usize| !is_fixed(index) && !of_client(index) && was_called(name(index));
    let by_nearness = || order.iter().copied().filter(|index| !ends_turn(index));
    // With a limit of one tool, the nearest tool is more useful than `read_result`.
    let fixed = by_nearness().filter(|index| is_fixed(index) && count > 1);
    let clients = by_nearness().filter(of_client);
    let used = by_nearness().filter(is_used);
    let others = by_nearness().filter(|index| !is_fixed(index) && !of_client(index) && !is_used(index));
    let selected: Vec<usize> = fixed.chain(clients).chain(used).chain(others).take(count).chain(ending).collect();
    SelectedTools { offered: Some(names_at(services, selected)), embedding }
}

/// Selects the tools that the executor is offered in each step of the plan: the tool that the planner chose for the
/// step, and the tools that best match the task of the step. Also returns the call of the embedding model, if there was
/// one.
pub(super) async fn add_step_tools(
    services: &SessionServices,
    steps: Vec<PlanStep>,
) -> (Vec<PlannedStep>, Option<EmbeddingRecord>) {
    let tools = services.agent.registry().offered();
    let count = services.agent.config().offered_tools as usize;
    let queries: Vec<String> = steps.iter().map(|step| format!("{} {}", step.tool, step.task)).collect();
    let Ranking { orders, embedding } = nearest(services, &queries).await;
    let planned = steps.into_iter().zip(orders).map(|(step, order)| {
        let is_named = |tool: &OfferedTool| tool.author_name == step.tool || tool.name == step.tool;
        let named = tools.iter().position(|tool| is_named(tool) && may_be_planned(services, tool));
        let others =
            order.into_iter().filter(|index| Some(*index) != named && may_be_planned(services, &tools[*index]));
        let offered = names_at(services, named.into_iter().chain(others).take(count).collect());
        let tokens = tool_tokens(services, Some(&offered));
        PlannedStep { step, offered, tokens }
    });
    (planned.collect(), embedding)
}

/// Returns whether a step of a plan may call this tool. The tools of the loop are excluded, because the loop itself
/// follows the plan. However, a step may call some tools of the loop, which read data outside the prompt.
pub(super) fn may_be_planned(services: &SessionServices, tool: &OfferedTool) -> bool {
    PLANNABLE_BUILTINS.contains(&tool.author_name.as_str()) || !belongs_to_loop(services, &tool.author_name)
}

fn belongs_to_loop(services: &SessionServices, name: &str) -> bool {
    let source = services.agent.registry().source_of(name);
    source == Some(&ToolSource::BuiltIn) && !ORDINARY_BUILTINS.contains(&name)
}

/// Returns the estimated number of tokens that the tools with these names use in a prompt (L26). `None` selects all
/// offered tools.
pub(super) fn tool_tokens(services: &SessionServices, offered: Option<&[String]>) -> u32 {
    let registry = services.agent.registry();
    match (services.agent.config().tool_dialect, offered) {
        (ToolDialect::Native, None) => registry.tokens(),
        (ToolDialect::Native, Some(names)) => registry.tokens_of(names),
        (ToolDialect::Text, offered) => {
            let tools = registry.offered_among(offered);
            let sourced = tools.iter().map(|tool| (*tool, registry.source_of(&tool.author_name)));
            let texts = prompt::texts(&schema_sections(sourced));
            texts.iter().fold(0, |sum, text| sum.saturating_add(tokens::of_text(text)))
        }
    }
}

/// Returns the names in the order of the registry, so that the same set of tools always produces the same prompt.
fn names_at(services: &SessionServices, mut indexes: Vec<usize>) -> Vec<String> {
    indexes.sort_unstable();
    let tools = services.agent.registry().offered();
    indexes.into_iter().map(|index| tools[index].author_name.clone()).collect()
}

/// The indexes of all tools, with the best match first, and how they were ranked.
struct Ranking {
    /// For each query, the indexes of the tools.
    orders: Vec<Vec<usize>>,
    embedding: Option<EmbeddingRecord>,
}

/// Ranks all tools for each query. If the embedding model fails, the tools are ranked by the words that they share with
/// the query, and the turn continues.
async fn nearest(services: &SessionServices, queries: &[String]) -> Ranking {
    let agent = &services.agent;
    let tools = agent.registry().offered();
    let mut embedding = None;
    if let Some(embedder) = agent.models().embedder.as_ref().filter(|_| !queries.is_empty() && !tools.is_empty()) {
        let begun = Instant::now();
        let ranked = rank_by_meaning(services, agent, embedder, queries).await;
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (model, error) = (embedder.model(), ranked.as_ref().err().cloned());
        embedding = Some(EmbeddingRecord { model, texts: queries.len(), took_ms, error });
        match ranked {
            Ok(orders) => return Ranking { orders, embedding },
            Err(error) => {
                tracing::warn!(
                    session = services.subject,
                    error,
                    "the embedding model failed, so tools are ranked by their words"
                );
            }
        }
    }
    let search_index = agent.registry().search_index();
    let orders = queries.iter().map(|query| nearest_by_words(search_index, query, tools.len())).collect();
    Ranking { orders, embedding }
}

async fn rank_by_meaning(
    services: &SessionServices,
    agent: &Agent,
    embedder: &Embedder,
    queries: &[String],
) -> Result<Vec<Vec<usize>>, String> {
    let tools = agent.registry().offered();
    let vectors = agent.tool_vectors().get(&services.store, embedder, tools).await?;
    let queries = embedder.embed(queries).await.map_err(|error| error.to_string())?;
    Ok(queries.iter().map(|query| nearest_by_meaning(vectors, query, tools.len())).collect())
}
