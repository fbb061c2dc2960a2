//! A context builder for work in a project: its notes and its tree, and before each step what has changed on disk.

mod changes;
mod notes;
mod tree;

use agent_host_sdk::context_builder::{Budget, Prompt, Request, Section};
use agent_host_sdk::prelude::*;
use agent_host_sdk::{log, step_context, trees};
use changes::Stamps;
use std::path::PathBuf;
use tree::Tree;

/// Notes and tree together take at most one part in so many of the available tokens.
const SHARE: u32 = 4;
/// And at most so many tokens.
const MOST_TOKENS: u32 = 8_000;
/// Bytes per token: text has more, so that the share is never exceeded.
const BYTES_PER_TOKEN: usize = 3;

/// The plugin.
pub struct ProjectContext;

impl ContextBuilder for ProjectContext {
    fn init(request: Request) -> Result<Prompt, Failure> {
        let Some(root) = project() else {
            log::info("no file tree is granted, so nothing is said about the project");
            return Ok(Prompt::new());
        };
        let room = room(&request.budget);
        let tree = Tree::read(&root).map_err(|error| Failure::failed(format!("`{}`: {error}", root.display())))?;
        let mut prompt = Prompt::new();
        // Two thirds at most for the notes; the tree gets the rest and what the notes leave.
        let notes = notes::gather(&root, room / 3 * 2);
        let left = room.saturating_sub(notes.as_ref().map_or(0, String::len));
        if let Some(notes) = notes {
            prompt = prompt.section(Section::fixed("project-notes", notes));
        }
        if let Some(drawing) = tree.draw(left) {
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
        let changes = before.compare(&tree, room(&request.budget));
        Ok(changes.map(|text| Section::dynamic("project-changes", text)).into_iter().collect())
    }
}

agent_host_sdk::export_step_context!(ProjectContext);

/// The project's root: the granted tree `.`, or else the first.
fn project() -> Option<PathBuf> {
    let granted = trees::granted();
    let root = granted.iter().find(|tree| *tree == ".").or(granted.first())?;
    Some(PathBuf::from(root))
}

/// Bytes of text that may be added.
fn room(budget: &Budget) -> usize {
    (budget.available / SHARE).min(MOST_TOKENS) as usize * BYTES_PER_TOKEN
}
