//! The context and result of a turn's actions. An action does not change the session, but returns the input that the
//! caller applies to the session. Therefore, a cancelled action leaves the session unchanged.

use crate::agent::Agent;
use crate::approvals::{ApprovalContext, HeldRequests};
use crate::events::Watchers;
use crate::history::LoadedHistory;
use crate::host::{Account, BudgetRefusal, Reservation, SessionServices, estimate};
use crate::open_sessions::Inbox;
use crate::outbox::DeferredDelivery;
use crate::records::{CommitNotes, MessagePositions};
use crate::requests::RequestReply;
use crate::session::{LogWriter, ModelRetry, Session};
use crate::tools::results::denials_in;
use agent_core::change::Denial;
use agent_core::event::Event;
use agent_core::message::{CallId, Digest, Message};
use agent_core::model::ModelRequest;
use agent_core::plugin::{PluginFailure, Scope};
use agent_core::run::{Input, PromptBudget, Run, TurnError, ViewEntry};
use agent_core::trace::SpanKey;
use agent_models::Provider;
use agent_plugins::{CallFailure, CallReport, PluginSetup};
use agent_store::StoreError;
use std::collections::HashSet;
use std::sync::Arc;

/// The outcome of an action: an input for the run and the notes that are committed with it, or the error that ends
/// the turn.
pub(super) type ActionResult = Result<(Input, CommitNotes), TurnError>;

/// The parts of the session that an action borrows.
pub(super) struct ActionContext<'t> {
    pub(super) services: &'t SessionServices,
    /// The session's state. Only a commit changes the state.
    pub(super) run: &'t Run,
    /// A cache of the session's messages and calls. An action may load more of them from the store into the cache.
    pub(super) history: &'t mut LoadedHistory,
    pub(super) watchers: &'t Watchers,
    pub(super) last_event: Option<&'t Event>,
    pub(super) model_retry: &'t mut ModelRetry,
    /// What the action's model call has reserved of its budgets. The reservation ends after the next commit.
    pub(super) reservation: &'t mut Option<Reservation>,
    /// Digests of the texts that this process has stored for the session.
    pub(super) stored_texts: &'t HashSet<Digest>,
    /// Denials that are committed together with the next input.
    denied: &'t mut Vec<(Option<CallId>, Denial)>,
    pub(super) held_requests: &'t mut HeldRequests,
    unverified: &'t HashSet<CallId>,
}

impl<'t> ActionContext<'t> {
    pub(super) fn new(session: &'t mut Session) -> Self {
        Self::split(session).0
    }

    /// Returns the context of an action, and the parts of the session that the action does not use. With these parts, the
    /// session accepts prompts while the action runs.
    pub(super) fn split(session: &'t mut Session) -> (Self, UnusedParts<'t>) {
        let Session { services, run, inbox, log, cancel_replies, deferred, .. } = session;
        let (services, run): (&SessionServices, &Run) = (services, run);
        let unused = UnusedParts { services, run, inbox, log, cancel_replies, deferred };
        let context = Self {
            services,
            run,
            history: &mut session.history,
            watchers: &session.watchers,
            last_event: session.last_event.as_ref(),
            model_retry: &mut session.model_retry,
            reservation: &mut session.reservation,
            stored_texts: &session.stored_texts,
            denied: &mut session.denied,
            held_requests: &mut session.held_requests,
            unverified: &session.unverified,
        };
        (context, unused)
    }

    pub(super) fn agent(&self) -> &'t Arc<Agent> {
        &self.services.agent
    }

    pub(super) fn approvals(&self) -> ApprovalContext<'_> {
        ApprovalContext {
            services: self.services,
            run: self.run,
            held_requests: self.held_requests,
            unverified: self.unverified,
        }
    }

    /// Returns the scope of a plugin that runs for a purpose other than a tool call. The trace context is that of the
    /// part `part` of the turn, or of the whole turn.
    pub(super) fn scope(&self, part: Option<SpanKey<'_>>) -> Scope {
        self.services.scope(self.run, part)
    }

    /// Collects the denials of a plugin that ran for a purpose other than a tool call. The denials are committed with
    /// the next input (O3).
    pub(super) fn note_denials(&mut self, denials: &[agent_plugins::Denial]) {
        self.denied.extend(denials_in(denials).into_iter().map(|denial| (None, denial)));
    }

    /// Returns the maximum length, in characters, of a tool result that is sent to a model or a plugin.
    pub(super) fn result_characters(&self) -> usize {
        self.agent().config().bounds.result_characters as usize
    }

    /// Returns the selected messages of the view, in the form in which they are sent to the model.
    pub(super) async fn shown(&mut self, filter: impl Fn(&ViewEntry) -> bool) -> Result<Vec<Message>, TurnError> {
        let limit = self.result_characters();
        self.history.shown(self.run, limit, filter).await.map_err(store_failed)
    }

    /// Returns the positions of the selected messages, by which a step record refers to the messages, and the texts to
    /// store with the record.
    pub(super) fn positions(&self, filter: impl Fn(&ViewEntry) -> bool) -> (MessagePositions, Vec<String>) {
        let entries = self.run.view.iter().filter(|entry| filter(entry));
        let seen_counts: Vec<_> = entries.map(|entry| (entry.id, self.run.seen_count(entry))).collect();
        MessagePositions::new(&seen_counts, self.run.model_calls)
    }

    /// Reserves the most that a request to a model can use, in all budgets of the turn (O4).
    pub(super) async fn reserve_budget(
        &mut self,
        model: &Arc<dyn Provider>,
        request: &ModelRequest,
    ) -> Result<(), BudgetRefusal> {
        let Some(account) = Account::of(self.run) else { return Ok(()) };
        *self.reservation = None;
        *self.reservation = Some(self.services.budget_gate.admit(&account, estimate(model, request)).await?);
        Ok(())
    }

    /// Returns the model that the next model call of the open turn uses.
    pub(super) fn model(&self) -> &'t Arc<dyn Provider> {
        let (role, index) =
            self.run.turn.as_ref().map_or_else(Default::default, |turn| (turn.model_role(), turn.model_index));
        self.agent().models().model_for(role, index)
    }

    /// Returns the token budget for a prompt to this model, before any system text is counted.
    pub(super) fn budget_of(&self, model: &Arc<dyn Provider>, tools: u32) -> PromptBudget {
        let window = model.info().model.window;
        let reserved = self.agent().config().reply_tokens.min(window / 4);
        PromptBudget { window, system: 0, tools, reserved }
    }
}

/// The parts of a session that no action uses, and its state.
pub(super) struct UnusedParts<'t> {
    pub(super) services: &'t SessionServices,
    pub(super) run: &'t Run,
    pub(super) inbox: &'t mut Inbox,
    pub(super) log: &'t mut LogWriter,
    pub(super) cancel_replies: &'t mut Vec<RequestReply>,
    pub(super) deferred: &'t mut DeferredDelivery,
}

/// Converts a failure of the store to the error that ends a turn.
pub(super) fn store_failed(error: StoreError) -> TurnError {
    TurnError::HostFailed { message: error.to_string() }
}

/// Returns the answer of a plugin that was called for a purpose other than a tool call. If the plugin has failed, the
/// result is the error that ends the turn, because a turn must not continue as if the plugin had not been called
/// (row 22).
pub(super) fn plugin_answer<T>(
    setup: &PluginSetup,
    report: CallReport<Result<T, PluginFailure>>,
) -> Result<T, TurnError> {
    let plugin = setup.plugin().identity().to_string();
    match report.result {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(TurnError::PluginFailed { plugin, message: failure.to_string() }),
        Err(failure @ CallFailure::Host { .. }) => Err(TurnError::HostFailed { message: failure.to_string() }),
        Err(failure) => Err(TurnError::PluginFailed { plugin, message: failure.to_string() }),
    }
}
