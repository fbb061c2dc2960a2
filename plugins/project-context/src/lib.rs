//! A context builder for agents that work in a project folder. At the start of a turn, the context builder adds the
//! project's notes and file tree to the prompt. Before each later step, the context builder adds the names of files
//! that have changed.

mod changes;
mod notes;
mod tree;

use agent_host_sdk::context_builder::{Budget, Prompt, Request, Section};
use agent_host_sdk::prelude::*;
use agent_host_sdk::{log, step_context, trees};
use changes::Stamps;
use std::path::PathBuf;
use tree::Tree;

/// The notes and the tree together use at most the tokens that are available in the turn, divided by this number.
const TOKEN_DIVISOR: u32 = 4;
/// Maximum number of tokens of the notes and the tree together.
const MAX_TOKENS: u32 = 8_000;
/// Assumed number of bytes per token. Text usually has more than three bytes per token, so the sections do not exceed
/// the limit.
const BYTES_PER_TOKEN: usize = 3;

/// The plugin, which is a context builder that adds sections at the start of the turn and before steps.
pub struct ProjectContext;

impl ContextBuilder for ProjectContext {
    fn init(request: Request) -> Result<Prompt, Failure> {
        let Some(root) = project() else {
            log::info("no file tree is granted, so the prompt contains nothing about the project");
            return Ok(Prompt::new());
        };
        let limit = byte_limit(&request.budget);
        let tree = Tree::read(&root).map_err(|error| Failure::failed(format!("`{}`: {error}", root.display())))?;
        let mut prompt = Prompt::new();
        // The notes use at most two thirds of the limit. The tree uses the bytes that the notes do not use.
        let notes = notes::gather(&root, limit / 3 * 2);
        let tree_limit = limit.saturating_sub(notes.as_ref().map_or(0, String::len));
        if let Some(notes) = notes {
            prompt = prompt.section(Section::fixed("project-notes", notes));
        }
        if let Some(drawing) = tree.draw(tree_limit) {
            prompt = prompt.section(Section::fixed("project-tree", drawing));
        }
        Ok(prompt.state(Stamps::of(&tree).encode()))
    }
}

impl StepContext for ProjectContext {
    fn step(request: step_context::Request) -> Result<Vec<Section>, Failure> {
        let (Some(root), Some(state)) = (project(), request.state) else {
            return Ok(Vec::new());
        };
        if request.step == 0 {
            return Ok(Vec::new());
        }
        let before = Stamps::decode(&state)
            .map_err(|error| Failure::invalid_input(format!("the state is not what `init` wrote: {error}")))?;
        let tree = Tree::read(&root).map_err(|error| Failure::failed(format!("`{}`: {error}", root.display())))?;
        let changes = before.compare(&tree, byte_limit(&request.budget));
        Ok(changes.map(|text| Section::dynamic("project-changes", text)).into_iter().collect())
    }
}

agent_host_sdk::export_step_context!(ProjectContext);

/// Returns the root of the project: the granted tree `.`, or the first granted tree. Returns None if the agent grants
/// no tree.
fn project() -> Option<PathBuf> {
    let granted = trees::granted();
    let root = granted.iter().find(|tree| *tree == ".").or(granted.first())?;
    Some(PathBuf::from(root))
}

/// Returns the maximum number of bytes of the notes and the tree together.
fn byte_limit(budget: &Budget) -> usize {
    (budget.available / TOKEN_DIVISOR).min(MAX_TOKENS) as usize * BYTES_PER_TOKEN
}
