//! Which tools a model is offered: all of them, or the nearest to what is to be done (L25).

use crate::agent::Agent;
use crate::builtins;
use crate::session::Session;
use agent_core::message::Digest;
use agent_core::model::OfferedTool;
use agent_core::offer::{nearest_by_meaning, nearest_by_words};
use agent_core::plan::PlanStep;
use agent_core::run::PlannedStep;
use agent_core::text_dialect::{ToolDialect, schema_sections};
use agent_core::tool::ToolSource;
use agent_core::{prompt, tokens};
use agent_models::Embedder;
use agent_store::{Bucket, Store, StoreError, digest_of};
use std::sync::Arc;

/// Built-in tools that are tools like any other. All others belong to the loop, which tells the model to call them.
const LIKE_ANY_OTHER: [&str; 2] = [builtins::name::LIST_DIRECTORY, builtins::name::READ_FILE];
/// Those of the loop's that a step of a plan may be, too.
const PLANNED: [&str; 2] = [builtins::name::READ_RESULT, builtins::name::MEMORY_SEARCH];

/// What tools mean to an embedding model, by tool. An agent has the same tools as long as it lives, so that they are
/// embedded at most once; the store keeps them for the agents after it.
#[derive(Default)]
pub(crate) struct ToolVectors(tokio::sync::OnceCell<Vec<Vec<f32>>>);

impl Session {
    /// The tools that the open turn offers, by their authors' names and in their order; none: all of them.
    pub(crate) async fn offered_for(&self, query: &str) -> Option<Vec<String>> {
        let agent = &self.shared.agent;
        let tools = agent.registry().offered();
        let is_kept = |place: &usize| self.belongs_to_loop(&tools[*place].author_name);
        let (kept, others): (Vec<usize>, Vec<usize>) = (0..tools.len()).partition(is_kept);
        let count = agent.config().offered_tools as usize;
        if others.len() <= count {
            return None;
        }
        let order = self.nearest(&[query.to_owned()]).await.pop().unwrap_or_default();
        let nearest = order.into_iter().filter(|place| !is_kept(place)).take(count);
        Some(self.names_at(nearest.chain(kept).collect()))
    }

    /// The steps with the tools that the executor is offered for each: that which the planner named, and those nearest to
    /// the task.
    pub(crate) async fn with_tools(&self, steps: Vec<PlanStep>) -> Vec<PlannedStep> {
        let tools = self.shared.agent.registry().offered();
        let count = self.shared.agent.config().offered_tools as usize;
        let queries: Vec<String> = steps.iter().map(|step| format!("{} {}", step.tool, step.task)).collect();
        let orders = self.nearest(&queries).await;
        let planned = steps.into_iter().zip(orders).map(|(step, order)| {
            let is_named = |tool: &OfferedTool| tool.author_name == step.tool || tool.name == step.tool;
            let named = tools.iter().position(|tool| is_named(tool) && self.may_be_planned(tool));
            let others = order.into_iter().filter(|place| Some(*place) != named && self.may_be_planned(&tools[*place]));
            let offered = self.names_at(named.into_iter().chain(others).take(count).collect());
            let tokens = self.tool_tokens(Some(&offered));
            PlannedStep { step, offered, tokens }
        });
        planned.collect()
    }

    /// Whether a step of a plan may be a call of this tool: the loop goes by the plan, so that its own tools are no part of
    /// it, but for those that read what is not shown.
    pub(crate) fn may_be_planned(&self, tool: &OfferedTool) -> bool {
        PLANNED.contains(&tool.author_name.as_str()) || !self.belongs_to_loop(&tool.author_name)
    }

    fn belongs_to_loop(&self, name: &str) -> bool {
        let source = self.shared.agent.registry().source_of(name);
        source == Some(&ToolSource::BuiltIn) && !LIKE_ANY_OTHER.contains(&name)
    }

    /// What offering these tools costs, measured (L26); none: all of them.
    pub(crate) fn tool_tokens(&self, offered: Option<&[String]>) -> u32 {
        let registry = self.shared.agent.registry();
        match (self.shared.agent.config().tool_dialect, offered) {
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

    /// In the order of the registry, so that the same set makes the same prompt.
    fn names_at(&self, mut places: Vec<usize>) -> Vec<String> {
        places.sort_unstable();
        let tools = self.shared.agent.registry().offered();
        places.into_iter().map(|place| tools[place].author_name.clone()).collect()
    }

    /// For each query the places of all tools, the nearest first. An embedding model that does not answer never fails the
    /// turn: words decide then.
    async fn nearest(&self, queries: &[String]) -> Vec<Vec<usize>> {
        let agent = &self.shared.agent;
        let tools = agent.registry().offered();
        if let Some(embedder) = agent.models().embedder.as_ref().filter(|_| !queries.is_empty() && !tools.is_empty()) {
            match self.by_meaning(agent, embedder, queries).await {
                Ok(orders) => return orders,
                Err(error) => {
                    tracing::warn!(session = %self.run.session, error, "tools are chosen by their words");
                }
            }
        }
        let words = agent.registry().words();
        queries.iter().map(|query| nearest_by_words(words, query, tools.len())).collect()
    }

    async fn by_meaning(
        &self,
        agent: &Agent,
        embedder: &Embedder,
        queries: &[String],
    ) -> Result<Vec<Vec<usize>>, String> {
        let tools = agent.registry().offered();
        let index = || indexed(self.shared.store.clone(), embedder, tools);
        let vectors = agent.tool_vectors().0.get_or_try_init(index).await?;
        let queries = embedder.embed(queries).await.map_err(|error| error.to_string())?;
        Ok(queries.iter().map(|query| nearest_by_meaning(vectors, query, tools.len())).collect())
    }
}

/// The vectors of the tools: from the store, by the digest of model and definition, and for the others from the model.
async fn indexed(store: Arc<dyn Store>, embedder: &Embedder, tools: &[OfferedTool]) -> Result<Vec<Vec<f32>>, String> {
    let model = embedder.model();
    let texts: Vec<String> = tools.iter().map(|tool| format!("{}: {}", tool.author_name, tool.description)).collect();
    let keys: Vec<Digest> = texts.iter().map(|text| digest_of(format!("{model}\n{text}").as_bytes())).collect();
    let mut vectors = Vec::with_capacity(tools.len());
    for key in &keys {
        vectors.push(stored(&*store, key).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a tool's embedding was not read");
            None
        }));
    }
    let missing: Vec<usize> = (0..tools.len()).filter(|place| vectors[*place].is_none()).collect();
    let wanted: Vec<String> = missing.iter().map(|place| texts[*place].clone()).collect();
    let made = embedder.embed(&wanted).await.map_err(|error| error.to_string())?;
    for (place, vector) in missing.into_iter().zip(made) {
        let bytes = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        // Without it, it is made anew the next time.
        if let Err(error) = store.set(&bucket(), keys[place].as_str(), bytes).await {
            tracing::warn!(%error, "a tool's embedding was not kept");
        }
        vectors[place] = Some(vector);
    }
    Ok(vectors.into_iter().map(Option::unwrap_or_default).collect())
}

async fn stored(store: &dyn Store, key: &Digest) -> Result<Option<Vec<f32>>, StoreError> {
    let bytes = store.get(&bucket(), key.as_str()).await?;
    let numbers = |bytes: Vec<u8>| {
        let (numbers, rest) = bytes.as_chunks::<4>();
        (rest.is_empty() && !numbers.is_empty())
            .then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    Ok(bytes.and_then(numbers))
}

/// The host's own: no agent and no plugin has an empty name.
fn bucket() -> Bucket {
    Bucket { agent: String::new(), plugin: String::new(), name: "tool-embeddings".to_owned(), quota: u64::MAX }
}
