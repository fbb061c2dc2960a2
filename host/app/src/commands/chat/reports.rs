//! The slash commands that report what happened: `/result`, `/cost` and `/memory`.

use super::Chat;
use crate::commands::{memory, stored_sessions};
use crate::exit::Failure;
use crate::terminal::spending::spending;
use crate::terminal::{budget, text};
use agent_core::change::CallRecord;
use agent_core::tool::errors_as_sentences;
use agent_core::view::result_text;
use agent_runtime::{BudgetUse, MemoryUse};
use agent_store::{CallFilter, StoredMemory};

/// Number of memories that `/memory` shows.
const LISTED_MEMORIES: usize = 10;
/// Maximum number of pages of memories that are read to find those to show.
const SEARCHED_PAGES: usize = 10;
/// Number of memories of such a page.
const MEMORIES_PER_PAGE: usize = 200;

impl Chat<'_> {
    /// Shows the full result of one of the last calls, of which the last has the number 1.
    pub(super) async fn show_result(&self, number: usize) -> Result<(), Failure> {
        let Some(call) = self.last_call(number).await? else {
            self.note(match number {
                1 => "no tool was called in this session".to_owned(),
                _ => format!("fewer than {number} tools were called in this session"),
            });
            return Ok(());
        };
        self.hint(text::one_line(&call.name, 100));
        match call.result {
            Some(result) => {
                let whole = result_text(&result.content);
                self.note(text::harmless(&if result.is_error { errors_as_sentences(&whole) } else { whole }));
            }
            None => self.note("the call has no result yet"),
        }
        Ok(())
    }

    async fn last_call(&self, number: usize) -> Result<Option<CallRecord>, Failure> {
        let (store, session) = (&self.host.store, self.session.subject());
        let mut later = 0;
        for turn in (1..=self.session.state().turns).rev() {
            let mut calls = store.calls(session, CallFilter::Turn(turn)).await.map_err(Failure::failed)?;
            if let Some(index) = (later + calls.len()).checked_sub(number) {
                return Ok(Some(calls.swap_remove(index)));
            }
            later += calls.len();
        }
        Ok(None)
    }

    /// Shows the model calls, tokens and costs of all turns of the session, and what was used of the budgets (O4).
    pub(super) async fn show_cost(&self) -> Result<(), Failure> {
        let id = Some(self.session.subject());
        let found = match self.session.revision() {
            0 => None,
            _ => Some(stored_sessions::find(&*self.host.store, &self.storage.data, id).await?),
        };
        let (turns, usage) = found.map(|found| (found.turns, found.usage)).unwrap_or_default();
        let turns = text::count(turns as usize, "turn");
        self.note(format!("{turns}: {}", spending(usage.model_calls, usage.usage)));
        if usage.model_calls > 0 && usage.usage.cost.is_none() {
            self.hint(
                "the prices of these models are not known; `prompt_price` and `completion_price` in \
                 `[providers.NAME.models.\"MODEL\"]` set them",
            );
        }
        for BudgetUse { scope, limits, used } in self.session.budget_use().await.map_err(Failure::failed)? {
            self.note(format!("budget of the {}: {}", budget::owner(scope), budget::used(&limits, &used)));
        }
        Ok(())
    }

    /// Lists the memories that were recalled for the last turn, and then the latest memories about the user, which the
    /// agent may recall.
    pub(super) async fn list_memories(&self) -> Result<(), Failure> {
        let user = self.remembered_user()?;
        let recalled = self.recalled_memories(&user).await?;
        if !recalled.is_empty() {
            self.hint("recalled for the last turn:");
            recalled.iter().for_each(|memory| self.entry(&memory::list_entry(memory)));
            self.hint("the latest memories:");
        }
        let project = self.recalled_project();
        let is_of_project = |memory: &StoredMemory| {
            project.is_none() || memory.memory.project.is_none() || memory.memory.project == project
        };
        let found = self.memories(&user, is_of_project, LISTED_MEMORIES).await?;
        let place =
            project.as_deref().map(|project| format!(" in {}", text::one_line(project, 200))).unwrap_or_default();
        if found.is_empty() {
            self.prose(format!("there are no memories about `{}`{place}", text::one_line(&user, 100)));
            return Ok(());
        }
        found.iter().for_each(|memory| self.entry(&memory::list_entry(memory)));
        if project.is_some() {
            self.hint(format!("these are the memories{place}; `memory = \"user\"` recalls those of all projects"));
        }
        self.hint("/memory forget ID deletes a memory; `agent-host memory list` shows all");
        Ok(())
    }

    /// Returns the project folder to which recall is limited, if it is limited.
    fn recalled_project(&self) -> Option<String> {
        let agent = self.session.agent();
        let config = agent.config();
        config.project.clone().filter(|_| config.memory == MemoryUse::Project)
    }

    /// Returns up to `limit` of the latest memories that `is_wanted` selects. Memories older than the searched ones are
    /// left out.
    async fn memories(
        &self,
        user: &str,
        is_wanted: impl Fn(&StoredMemory) -> bool,
        limit: usize,
    ) -> Result<Vec<StoredMemory>, Failure> {
        let (mut found, mut after) = (Vec::new(), String::new());
        for _ in 0..SEARCHED_PAGES {
            if found.len() >= limit {
                break;
            }
            let page = self.host.store.list(user, &after, MEMORIES_PER_PAGE).await.map_err(Failure::failed)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.id);
            found.extend(page.into_iter().filter(&is_wanted));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Finds the memories that were recalled for the last turn, the best match first. A memory that was deleted since then,
    /// or that is older than the searched memories, is left out.
    async fn recalled_memories(&self, user: &str) -> Result<Vec<StoredMemory>, Failure> {
        let ids = self.view.recalled();
        let mut found = self.memories(user, |memory| ids.contains(&memory.id), ids.len()).await?;
        found.sort_by_key(|memory| ids.iter().position(|id| *id == memory.id));
        Ok(found)
    }

    /// Deletes a memory about the user.
    pub(super) async fn forget_memory(&self, id: &str) -> Result<(), Failure> {
        match self.host.store.forget(&self.remembered_user()?, id).await.map_err(Failure::failed)? {
            true => self.note(format!("forgot {}", text::one_line(id, 200))),
            false => self.note(format!("there is no memory `{}`", text::one_line(id, 200))),
        }
        Ok(())
    }

    fn remembered_user(&self) -> Result<String, Failure> {
        let user = self.session.agent().config().user.clone();
        user.ok_or_else(|| Failure::refused("the agent works for no known user, so it remembers nothing"))
    }
}
