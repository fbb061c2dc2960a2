//! Asks the user of the editor for the decisions that a suspended turn needs.

use crate::permission::{Choice, ChoiceKind};
use crate::shared::{Shared, request_error, store_error};
use crate::text::{code, plain};
use crate::tool_call::{kind, locations, proposed_diff, raw, text, title};
use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{ToolCallId, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields};
use agent_core::approval::GrantScope;
use agent_core::event::{ApprovalDetails, ApprovalItem, Wait, WaitCause};
use agent_core::message::CallId;
use agent_core::run::Decision;
use agent_core::tool::Traits;
use agent_runtime::{Accepted, ApprovalDecision, ProposedChange, SessionRequest, Verdict};
use agent_store::CallFilter;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What happens to a suspended turn after the user was asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Settled {
    /// The turn continues, or waits for these delegated sessions.
    Continues {
        /// Subjects of the delegated sessions.
        children: Vec<String>,
    },
    /// The turn waits for something that the user must know.
    Waits(Waiting),
}

/// Something for which a turn waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    /// The text for the user.
    pub(crate) text: String,
    /// The session and the call whose question the next prompt answers.
    pub(crate) question: Option<(String, CallId)>,
}

/// A suspended session, and where the user is asked about it.
#[derive(Clone)]
pub(crate) struct Suspended {
    pub(crate) shared: Arc<Shared>,
    /// The session in the editor.
    pub(crate) root: String,
    /// The suspended session: the session in the editor, or a session to which work was delegated.
    pub(crate) session: String,
    /// The approvals that the session has requested.
    pub(crate) approvals: HashMap<CallId, ApprovalItem>,
    /// Cancelled when no answer is needed any more.
    pub(crate) stop: CancellationToken,
}

impl Suspended {
    /// Asks for the approvals and decisions for which the turn waits at this moment, and stores the answers.
    pub(crate) async fn settle(self) -> Result<Settled, Error> {
        let waits = self.shared.waits(&self.session).await.map_err(store_error)?;
        let approvals = waits.iter().filter(|wait| matches!(wait.cause, WaitCause::Approval { .. }));
        let mut decisions = Vec::new();
        for wait in approvals {
            match self.ask_approval(wait).await {
                Some(verdict) => decisions.push(ApprovalDecision { call: wait.call.clone(), verdict }),
                None => return Ok(self.unanswered(wait, "your permission to run")),
            }
        }
        let mut is_decided = !decisions.is_empty();
        if is_decided {
            self.send(SessionRequest::Approve(decisions)).await?;
        }
        for wait in waits.iter().filter(|wait| wait.cause == WaitCause::OutcomeUnknown) {
            match self.ask_about_outcome(wait).await {
                Some(decision) => self.send(SessionRequest::Resolve { call: wait.call.clone(), decision }).await?,
                None => return Ok(self.unanswered(wait, "your decision about")),
            }
            is_decided = true;
        }
        let children = waits.iter().filter_map(|wait| match &wait.cause {
            WaitCause::Agent { session } => Some(session.clone()),
            _ => None,
        });
        let children: Vec<String> = children.collect();
        let waiting = waits.iter().find_map(|wait| self.described(wait));
        match waiting.filter(|waiting| !is_decided && (waiting.question.is_some() || children.is_empty())) {
            Some(waiting) => Ok(Settled::Waits(waiting)),
            None => Ok(Settled::Continues { children }),
        }
    }

    /// Describes a wait that no permission request can end.
    fn described(&self, wait: &Wait) -> Option<Waiting> {
        match &wait.cause {
            WaitCause::Answer { question, .. } => {
                let question_of = Some((self.session.clone(), wait.call.clone()));
                Some(Waiting { text: question.clone(), question: question_of })
            }
            WaitCause::Service { .. } => {
                let text = format!(
                    "The turn waits for the service {}. It continues here when the answer arrives.",
                    code(&wait.name)
                );
                Some(Waiting { text, question: None })
            }
            WaitCause::Client => {
                let text = format!(
                    "The turn waits for the program that offers the tool {}. It continues here when the result arrives.",
                    code(&wait.name)
                );
                Some(Waiting { text, question: None })
            }
            WaitCause::OutcomeUnknown | WaitCause::Approval { .. } | WaitCause::Agent { .. } => None,
        }
    }

    fn unanswered(&self, wait: &Wait, what: &str) -> Settled {
        if self.stop.is_cancelled() {
            return Settled::Continues { children: Vec::new() };
        }
        let text = format!(
            "The turn waits for {what} {}. The next prompt, or `/continue`, asks again; cancelling ends the turn.",
            code(&wait.name)
        );
        Settled::Waits(Waiting { text, question: None })
    }

    async fn send(&self, request: SessionRequest) -> Result<(), Error> {
        self.shared.supervisor().send(&self.session, request).await.map(drop).map_err(request_error)
    }

    async fn ask_approval(&self, wait: &Wait) -> Option<Verdict> {
        let item = self.approvals.get(&wait.call);
        let details = item.and_then(|item| item.details.as_ref());
        let arguments = match details {
            Some(details) => details.arguments.clone(),
            None => self.stored_arguments(&wait.call).await,
        };
        let reason = details.map(effects).unwrap_or_default();
        let mut choices = vec![choice("allow_once", "Allow once", ChoiceKind::AllowOnce)];
        // Approvals are remembered for a tool with a certain digest.
        if item.is_some_and(|item| item.digest.is_some()) {
            choices.push(choice("allow_session", "Allow in this session", ChoiceKind::AllowAlways));
            choices.push(choice("allow_always", "Always allow", ChoiceKind::AllowAlways));
        }
        choices.push(choice("reject", "Reject", ChoiceKind::RejectOnce));
        let shown = Shown { arguments: &arguments, reason: &reason, changes: self.proposed_changes(&wait.call).await };
        let scope = match self.ask(wait, shown, &choices).await? {
            "allow_once" => GrantScope::Once,
            "allow_session" => GrantScope::Session,
            "allow_always" => GrantScope::Always,
            _ => return Some(Verdict::Deny { reason: None }),
        };
        Some(Verdict::Allow { scope, edited: None })
    }

    async fn ask_about_outcome(&self, wait: &Wait) -> Option<Decision> {
        let arguments = self.stored_arguments(&wait.call).await;
        let reason = "The host stopped while this call was running, so it may have had its effect. Running it again may \
                      repeat the effect.";
        let choices = [
            choice("retry", "Run again", ChoiceKind::AllowOnce),
            choice("failed", "Treat as failed", ChoiceKind::RejectOnce),
        ];
        match self.ask(wait, Shown { arguments: &arguments, reason, changes: Vec::new() }, &choices).await? {
            "retry" => Some(Decision::Retry),
            _ => Some(Decision::Failed("the call was interrupted and has failed".to_owned())),
        }
    }

    /// Returns the changes that the call would make to files. If they cannot be determined, the question is asked without
    /// them.
    async fn proposed_changes(&self, call: &CallId) -> Vec<ProposedChange> {
        let request = SessionRequest::Rehearse { call: call.clone() };
        match self.shared.supervisor().send(&self.session, request).await {
            Ok(Accepted::Rehearsed { changes }) => changes,
            _ => Vec::new(),
        }
    }

    async fn ask(&self, wait: &Wait, shown: Shown<'_>, choices: &[Choice]) -> Option<&'static str> {
        let agent = self.shared.agent()?;
        let Shown { arguments, reason, changes } = shown;
        let mut shown = reason.to_owned();
        if self.session != self.root {
            shown.push_str(" The agent to which the work was delegated asks for it.");
        }
        if arguments.as_object().is_some_and(|arguments| !arguments.is_empty()) {
            let arguments = serde_json::to_string_pretty(arguments).unwrap_or_else(|_| arguments.to_string());
            shown = format!("{}\n{arguments}", shown.trim());
        }
        let fields = ToolCallUpdateFields::new()
            .title(title(&agent, &wait.name, arguments))
            .kind(kind(&agent, &wait.name, arguments))
            .status(ToolCallStatus::Pending)
            .locations(locations(&agent, arguments))
            .raw_input(raw(arguments).filter(|arguments| !arguments.is_null()))
            .content(
                std::iter::once(text(shown.trim())).chain(changes.into_iter().map(proposed_diff)).collect::<Vec<_>>(),
            );
        let call = ToolCallUpdate::new(ToolCallId::new(wait.call.0.clone()), fields);
        self.shared.ask(&self.root, call, choices, &self.stop).await
    }

    async fn stored_arguments(&self, call: &CallId) -> Value {
        let stored = self.shared.store().calls(&self.session, CallFilter::Ids(vec![call.clone()])).await;
        let record = stored.ok().and_then(|calls| calls.into_iter().next());
        record.map(|record| record.effective_arguments().clone()).unwrap_or_default()
    }
}

/// What a question about a call shows.
struct Shown<'s> {
    arguments: &'s Value,
    reason: &'s str,
    /// The changes that the call would make to files.
    changes: Vec<ProposedChange>,
}

fn choice(id: &'static str, label: &str, kind: ChoiceKind) -> Choice {
    Choice { id, label: label.to_owned(), kind }
}

/// Describes where a call comes from, the effects that its tool declares, and why it needs an approval.
fn effects(details: &ApprovalDetails) -> String {
    let Traits { read_only, destructive, idempotent, open_world, .. } = details.traits;
    let effects = [
        (read_only, "changes nothing"),
        (destructive, "may delete or overwrite"),
        (idempotent, "repeating the call has no further effect"),
        (open_world, "accesses external systems"),
    ];
    let effects: Vec<_> = effects.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect();
    let effects = if effects.is_empty() { "not declared".to_owned() } else { effects.join(", ") };
    format!(
        "From {}. Declared effects: {effects}. The approval is required by {}.",
        plain(&details.source.to_string()),
        plain(&details.because)
    )
}
