//! Approvals (L17): which calls somebody must allow, what they answer, and whether that still holds when a call runs.

mod events;
mod requests;
mod scope;

pub use events::{APPROVAL_REQUESTED, APPROVAL_RESOLVED};
use requests::Standing;

use crate::agent::Agent;
use crate::builtins::loop_break;
use crate::outbox::{self, OutboxConfig, OutboxError};
use crate::registry::{Availability, RegisteredTool};
use crate::session::{Session, SessionError, Shared};
use agent_core::approval::{
    ApprovalAnswer, ApprovalPolicy, ApprovalRules, ApprovalScope, ApprovalVerdict, AskedAgain, GrantScope,
    LastingGrant, Leave, Ruling, ScopedGrant, canonical_json, edit_note,
};
use agent_core::change::{CallChange, CallRecord, Change, Denial};
use agent_core::event::{ApprovalDetails, ApprovalItem, EventKind};
use agent_core::message::{CallId, Content, Digest};
use agent_core::run::{Approval, Dispatch, Disposition, Input, Refused, ResolvedCall};
use agent_core::tool::{ToolDefinition, ToolError, ToolSource, Violation};
use agent_store::{Store, StoreError, digest_of};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Characters of a reason that the model is given.
const REASON_CHARACTERS: usize = 2_000;

/// What somebody says about one call that waits for an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalDecision {
    /// Which.
    pub call: CallId,
    /// What they say.
    pub verdict: Verdict,
}

/// Yes or no.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It runs.
    Allow {
        /// How long that is remembered for calls like it.
        scope: GrantScope,
        /// With these arguments instead of the model's. A grant that is remembered then holds for these only.
        edited: Option<Value>,
    },
    /// It does not run.
    Deny {
        /// For the model.
        reason: Option<String>,
    },
}

/// A decision that cannot be taken. Nothing of what was decided with it has been stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The changed arguments violate the tool's schema (L8).
    #[error("the changed arguments of {call} are not what `{tool}` takes: {}", shown(violations))]
    Arguments {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// What is wrong.
        violations: Vec<Violation>,
    },
    /// The configuration forbids the tool.
    #[error("{call} cannot be allowed: `{because}` denies `{tool}`; deny the call, or change the configuration")]
    Forbidden {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
        /// The key that says so.
        because: String,
    },
    /// What a plugin asks of a service cannot be changed.
    #[error(
        "the request of {call} to the service `{tool}` can be allowed or denied, and not changed: a plugin made it and has \
         run already"
    )]
    RequestEdited {
        /// The call.
        call: CallId,
        /// The service's tool.
        tool: String,
    },
    /// The tool is not there.
    #[error("{call} cannot be allowed: the agent has no tool `{tool}` now; deny the call, or bring the tool back")]
    Gone {
        /// The call.
        call: CallId,
        /// Its tool.
        tool: String,
    },
}

fn shown(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|violation| match violation.pointer.as_str() {
        "" => violation.message.clone(),
        pointer => format!("{pointer}: {}", violation.message),
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// Digest of arguments, whatever the order of their keys.
pub fn digest_of_arguments(arguments: &Value) -> Digest {
    digest_of(canonical_json(arguments).as_bytes())
}

/// What an approval of a tool is bound to: its component, or all that it says of itself where it comes from elsewhere.
pub(crate) fn digest_of_tool(definition: &ToolDefinition, source: &ToolSource) -> Digest {
    if let ToolSource::Plugin { digest, .. } = source {
        return digest.clone();
    }
    let said = serde_json::to_value((definition, source)).expect("definitions have only string keys");
    digest_of(canonical_json(&said).as_bytes())
}

/// A tool that the configuration denies is not offered, and its calls are told why.
pub(crate) fn availability(
    rules: &ApprovalRules,
    (definition, source): (&ToolDefinition, &ToolSource),
    otherwise: Availability,
) -> Availability {
    let ruling = rules.ruling(definition, source);
    match ruling.policy {
        ApprovalPolicy::Deny => {
            let message = denied(&definition.name, &ruling.because);
            Availability::Withheld { message, advice: allowing(&ruling.because) }
        }
        ApprovalPolicy::Allow | ApprovalPolicy::Ask => otherwise,
    }
}

/// What the run is told instead of a dispatch, and what was refused where that is known already.
pub(crate) type Instead = (Input, Option<(Option<CallId>, Denial)>);

/// Whether somebody decides about a call before it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Somebody,
    Nobody,
}

/// Why a call does not run as it was meant: its server says something else of the tool than when the model called it,
/// another process having gone on with the turn meanwhile (P10). Where somebody is asked, they are asked again about what
/// the tool is now (row 19), as long as it takes these arguments.
fn changed_since(record: &CallRecord, tool: &RegisteredTool, asked: Asked) -> Option<ToolError> {
    let Some(ToolSource::Mcp { server, definition: Some(called) }) = &record.source else { return None };
    if *called == tool.digest {
        return None;
    }
    match (asked, tool.check_arguments(record.effective_arguments())) {
        (_, Err(violations)) => Some(ToolError::InvalidArguments { violations }),
        (Asked::Somebody, Ok(())) => None,
        (Asked::Nobody, Ok(())) => {
            let name = &record.name;
            let then = match tool.availability {
                Availability::Renewed { .. } => "go on without it; the next turn can call it",
                _ => "read what it says now, and call it again if it is still what you want",
            };
            let message = format!(
                "MCP server {server} says something else of `{name}` than when it was called, so it was not run: {then}"
            );
            Some(ToolError::Failed { message })
        }
    }
}

/// Says why an earlier approval of the tool does not count.
fn warn_of_void_grants(given: &[&LastingGrant], tool: &RegisteredTool, now: &ApprovalScope) {
    let name = &tool.definition.name;
    let mut of_tool = given.iter().filter(|grant| grant.tool == *name && grant.arguments.is_none());
    let Some(earlier) = of_tool.next() else { return };
    let why = match &earlier.scope {
        None => "an earlier version of this host did not record what it was about",
        Some(about) if about.identity != now.identity => {
            "the agent's file, the user, or the plugin or server that offers the tool is another one"
        }
        Some(_) => "the grants in force are others",
    };
    tracing::warn!("an earlier approval of `{name}` does not count for this call, so the host asks again: {why}");
}

fn denied(tool: &str, because: &str) -> String {
    format!("the agent's configuration denies `{tool}`: {because} = \"deny\"")
}

/// What would allow it.
fn allowing(because: &str) -> String {
    format!("change {because} = \"deny\" in the agent's configuration")
}

/// Grants for good that commits have asked for are remembered now, also those of a process that died before it could.
pub async fn remember_grants(store: &dyn Store, session: Option<&str>) -> Result<(), StoreError> {
    // Events go nowhere without a folder, so that only the store can fail.
    match outbox::deliver(store, &OutboxConfig::default(), session, &|_| {}).await {
        Ok(()) | Err(OutboxError::File { .. }) => Ok(()),
        Err(OutboxError::Store(error)) => Err(error),
    }
}

/// Takes a grant for good back; says whether it was there. It is not given again by what was to be done before.
pub async fn revoke(store: &dyn Store, id: &str) -> Result<bool, StoreError> {
    remember_grants(store, None).await?;
    store.revoke(id).await
}

impl Shared {
    /// What is said of a tool: the strictest of what the turn began with and of what the configuration says now, so that a
    /// rule that was made stricter holds at once, and none is relaxed in mid-turn.
    fn ruling(&self, tool: &RegisteredTool) -> Ruling {
        let of = |agent: &Agent| agent.config().approvals.ruling(&tool.definition, &tool.source);
        of(&self.agent).strictest(of(&self.live.current()))
    }

    /// The same beside rules with the tool's exact name.
    fn general_ruling(&self, tool: &RegisteredTool) -> Ruling {
        let of = |agent: &Agent| agent.config().approvals.general_ruling(&tool.definition, &tool.source);
        of(&self.agent).strictest(of(&self.live.current()))
    }

    /// The same for grants that hold for the same arguments only.
    fn binds_arguments(&self, tool: &str) -> bool {
        [&self.agent, &self.live.current()].iter().any(|agent| agent.config().approvals.binds_arguments(tool))
    }
}

impl Session {
    /// The calls that wait for somebody's leave, with all that is needed to decide about them.
    pub async fn asked_approvals(&mut self) -> Result<Vec<ApprovalItem>, SessionError> {
        let mut items = self.run.asking();
        let ids: Vec<CallId> = items.iter().map(|item| item.call.clone()).collect();
        let records = self.load_calls(&ids).await?;
        self.connect_for(&records, &CancellationToken::new()).await?;
        self.add_details(&mut items, &[]).await?;
        Ok(items)
    }

    /// Decides about calls that wait for an approval, about all of them or about none (L17). [`Session::run`] then goes
    /// on. Where a tool is no longer the one that somebody was asked about, the answer is void and they are asked again.
    pub async fn approve(&mut self, mut decisions: Vec<ApprovalDecision>) -> Result<(), SessionError> {
        self.has_context()?;
        for decision in &mut decisions {
            decision.call = self.run.named_call(decision.call.clone());
        }
        let ids: Vec<CallId> = decisions.iter().map(|decision| decision.call.clone()).collect();
        let records = self.load_calls(&ids).await?;
        self.connect_for(&records, &CancellationToken::new()).await?;
        let mut answers = Vec::with_capacity(decisions.len());
        for ApprovalDecision { call, verdict } in decisions {
            let record = records.iter().find(|record| record.id == call);
            let record = record.ok_or_else(|| Refused::UnknownCall(call.clone()))?;
            if let Some(held) = self.request_held_for(&call).await? {
                let verdict = self.decided_about_request(held, record, verdict).await?;
                answers.push(ApprovalAnswer { call, verdict });
                continue;
            }
            let verdict = match verdict {
                Verdict::Allow { scope, edited } => self.granted(record, scope, edited).await?,
                Verdict::Deny { reason } => {
                    let reason = reason.map(|reason| reason.chars().take(REASON_CHARACTERS).collect());
                    ApprovalVerdict::Denied { reason }
                }
            };
            answers.push(ApprovalAnswer { call, verdict });
        }
        self.apply(Input::Approval { answers }, Default::default()).await
    }

    /// Whether arguments that somebody wrote are what a tool takes (L8); also where there is no such tool.
    pub fn check_edited(&self, tool: &str, edited: &Value) -> Result<(), Vec<Violation>> {
        self.shared.agent.registry().get(tool).map_or(Ok(()), |tool| tool.check_arguments(edited))
    }

    async fn granted(
        &self,
        record: &CallRecord,
        scope: GrantScope,
        edited: Option<Value>,
    ) -> Result<ApprovalVerdict, SessionError> {
        let (call, name) = (record.id.clone(), record.name.clone());
        let agent = self.shared.agent.clone();
        let Some(tool) = agent.registry().get(&name) else {
            return Err(ApprovalError::Gone { call, tool: name }.into());
        };
        let ruling = self.ruling(tool).await?;
        if ruling.policy == ApprovalPolicy::Deny {
            return Err(ApprovalError::Forbidden { call, tool: name, because: ruling.because }.into());
        }
        let edited = edited.filter(|edited| *edited != record.arguments);
        if let Some(Err(violations)) = edited.as_ref().map(|edited| tool.check_arguments(edited)) {
            return Err(ApprovalError::Arguments { call, tool: name, violations }.into());
        }
        let is_bound = edited.is_some() || scope == GrantScope::Once || self.shared.binds_arguments(&name);
        let arguments = is_bound.then(|| digest_of_arguments(edited.as_ref().unwrap_or(&record.arguments)));
        let (about, digest) = (Some(self.approval_scope(tool)), tool.digest.clone());
        let agent = agent.config().name.clone();
        let grant = LastingGrant { agent, tool: name, digest, arguments, scope: about };
        Ok(ApprovalVerdict::Granted { edited, grant: ScopedGrant { scope, grant } })
    }

    /// Says of each call of a reply whether somebody must allow it.
    pub(crate) async fn ask_where_needed(&self, mut calls: Vec<ResolvedCall>) -> Result<Vec<ResolvedCall>, StoreError> {
        let mut lasting = None;
        for call in calls.iter_mut().filter(|call| matches!(call.disposition, Disposition::Ready { .. })) {
            let Some(tool) = self.shared.agent.registry().get(&call.name) else { continue };
            if self.ruling(tool).await?.policy != ApprovalPolicy::Ask {
                continue;
            }
            let lasting = match &mut lasting {
                Some(lasting) => lasting,
                none => none.insert(self.lasting().await?),
            };
            let scope = self.approval_scope(tool);
            let given: Vec<_> = self.run.grants.iter().chain(lasting.iter()).collect();
            let remembered = given.iter().find(|grant| self.is_remembered_for(grant, (tool, &scope), &call.arguments));
            call.approval = match remembered {
                Some(grant) => Approval::Remembered((*grant).clone()),
                None => {
                    warn_of_void_grants(&given, tool, &scope);
                    Approval::Needed(scope.identity)
                }
            };
        }
        Ok(calls)
    }

    /// Whether calls that are about to run may, by what holds now (L17): what the run shall be told instead of their
    /// dispatch; nothing where all may run.
    pub(crate) async fn stopped(
        &self,
        records: &[CallRecord],
        dispatches: &[Dispatch],
    ) -> Result<Option<Instead>, StoreError> {
        let (mut lasting, mut again) = (None, Vec::new());
        for (record, dispatch) in records.iter().zip(dispatches) {
            if dispatch.request.is_some() {
                match self.standing(record, dispatch).await? {
                    Standing::Holds => {}
                    Standing::Asks(asked) => again.push(asked),
                    Standing::Forbidden(refused) => {
                        let (instead, denial) = refused.forbidden(record.id.clone());
                        return Ok(Some((instead, Some((Some(record.id.clone()), denial)))));
                    }
                }
                continue;
            }
            // Without its tool a call fails by itself.
            let Some(tool) = self.shared.agent.registry().get(&record.name) else { continue };
            // Ending a turn is no deed that somebody must allow.
            if loop_break(tool).is_some() {
                continue;
            }
            let was_called = changed_since(record, tool, Asked::Nobody).is_some();
            let is_renewed = was_called && matches!(tool.availability, Availability::Renewed { .. });
            if let Some((message, _)) = tool.withheld().filter(|_| !is_renewed) {
                let error = ToolError::Denied { message };
                return Ok(Some((Input::Forbidden { call: record.id.clone(), error }, None)));
            }
            if self.unverified.contains(&record.id)
                && let Err(violations) = tool.check_arguments(record.effective_arguments())
            {
                let error = ToolError::InvalidArguments { violations };
                return Ok(Some((Input::Forbidden { call: record.id.clone(), error }, None)));
            }
            let ruling = self.ruling(tool).await?;
            let asked = if ruling.policy == ApprovalPolicy::Ask { Asked::Somebody } else { Asked::Nobody };
            if let Some(error) = changed_since(record, tool, asked) {
                return Ok(Some((Input::Forbidden { call: record.id.clone(), error }, None)));
            }
            match ruling.policy {
                ApprovalPolicy::Allow => continue,
                ApprovalPolicy::Ask => {}
                ApprovalPolicy::Deny => {
                    let error = ToolError::Denied { message: denied(&record.name, &ruling.because) };
                    return Ok(Some((Input::Forbidden { call: record.id.clone(), error }, None)));
                }
            }
            let (arguments, scope) = (record.effective_arguments(), self.approval_scope(tool));
            let holds = match &dispatch.granted {
                None => false,
                Some(Leave::Answered(grant)) => self.is_bound_to(grant, (tool, &scope), arguments),
                Some(Leave::Remembered(grant)) if !self.is_remembered_for(grant, (tool, &scope), arguments) => false,
                Some(Leave::Remembered(grant)) if self.run.grants.contains(grant) => true,
                Some(Leave::Remembered(grant)) => {
                    let lasting: &mut Vec<LastingGrant> = match &mut lasting {
                        Some(lasting) => lasting,
                        none => none.insert(self.lasting().await?),
                    };
                    lasting.contains(grant)
                }
            };
            if !holds {
                again.push(AskedAgain { call: record.id.clone(), digest: scope.identity });
            }
        }
        Ok((!again.is_empty()).then_some((Input::AskAgain { calls: again }, None)))
    }

    /// What is told beside a call that is forbidden at the last moment: who was denied what (O3).
    pub(crate) fn denial_of(&self, instead: &Input, records: &[CallRecord]) -> Option<(Option<CallId>, Denial)> {
        let Input::Forbidden { call, error: ToolError::Denied { .. } } = instead else { return None };
        let record = records.iter().find(|record| record.id == *call)?;
        let tool = self.shared.agent.registry().get(&record.name)?;
        let denial = match tool.withheld() {
            Some((_, denial)) => denial,
            None => {
                let because = self.shared.agent.config().approvals.ruling(&tool.definition, &tool.source).because;
                let (plugin, thing) = (tool.source.to_string(), format!("`{}`", record.name));
                Denial { plugin, thing, grant: allowing(&because) }
            }
        };
        Some((Some(call.clone()), denial))
    }

    async fn lasting(&self) -> Result<Vec<LastingGrant>, StoreError> {
        let store = &*self.shared.store;
        remember_grants(store, None).await?;
        let allowed = store.allowed(&self.shared.agent.config().name).await?;
        Ok(allowed.into_iter().map(|stored| stored.grant).collect())
    }

    /// Whether a person's answer about this call is about what would run now.
    fn is_bound_to(
        &self,
        grant: &LastingGrant,
        (tool, scope): (&RegisteredTool, &ApprovalScope),
        arguments: &Value,
    ) -> bool {
        grant.agent == self.shared.agent.config().name
            && grant.tool == tool.definition.name
            && grant.digest == tool.digest
            && grant.scope.as_ref().is_some_and(|about| about.identity == scope.identity)
            && grant.arguments.as_ref().is_none_or(|digest| *digest == digest_of_arguments(arguments))
    }

    /// The same for a grant that was given for another call: it holds for the grants that were in force then, and the
    /// configuration may ask for the same arguments (row 52).
    fn is_remembered_for(
        &self,
        grant: &LastingGrant,
        (tool, scope): (&RegisteredTool, &ApprovalScope),
        arguments: &Value,
    ) -> bool {
        let may_differ = !self.shared.binds_arguments(&tool.definition.name);
        (may_differ || grant.arguments.is_some())
            && grant.scope.as_ref() == Some(scope)
            && self.is_bound_to(grant, (tool, scope), arguments)
    }

    /// Completes approval requests with what stands in the calls' records: who answers must know what they allow.
    pub(crate) async fn explain(&mut self, change: &mut Change) -> Result<(), StoreError> {
        let requested = |call: &CallChange| match call {
            CallChange::Requested(record) => Some(record.clone()),
            _ => None,
        };
        let new: Vec<CallRecord> = change.calls.iter().filter_map(requested).collect();
        for event in &mut change.events {
            match &mut event.kind {
                EventKind::ApprovalRequested { calls } => self.add_details(calls, &new).await?,
                // The run does not keep arguments: of a call that never ran they stand in its record.
                EventKind::ToolCall { call, arguments, attempt: 0, .. } if *arguments == Value::Null => {
                    let stored = self.load_calls(std::slice::from_ref(call)).await?;
                    let record = new.iter().chain(&stored).find(|record| record.id == *call);
                    *arguments = record.map(|record| record.effective_arguments().clone()).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn add_details(&mut self, items: &mut [ApprovalItem], new: &[CallRecord]) -> Result<(), StoreError> {
        let is_new = |item: &&ApprovalItem| new.iter().any(|record| record.id == item.call);
        let stored: Vec<CallId> = items.iter().filter(|item| !is_new(item)).map(|item| item.call.clone()).collect();
        let stored = self.load_calls(&stored).await?;
        for item in items {
            let record = new.iter().chain(&stored).find(|record| record.id == item.call);
            let Some(record) = record else { continue };
            if let Some(details) = self.held_details(item, record).await? {
                item.details = Some(details);
                continue;
            }
            let Some(tool) = self.shared.agent.registry().get(&item.name) else { continue };
            item.details = Some(ApprovalDetails {
                source: tool.source.clone(),
                arguments: record.effective_arguments().clone(),
                traits: tool.definition.traits,
                because: self.ruling(tool).await?.because,
            });
        }
        Ok(())
    }

    /// The result of a call that ran with changed arguments says so, since the model sees what it wrote itself (L17).
    pub(crate) async fn with_edit_told(&mut self, mut input: Input) -> Result<Input, StoreError> {
        let (Input::Outcome { call, result } | Input::Respond { call, result, .. }) = &mut input else {
            return Ok(input);
        };
        let record = self.load_calls(std::slice::from_ref(call)).await?.pop();
        if let Some(CallRecord { arguments, edited: Some(edited), .. }) = record {
            result.content.insert(0, Content::Text(edit_note(&arguments, &edited)));
        }
        Ok(input)
    }
}

/// The content of a call's result as whoever answered gave it, without what the host said before it about changed arguments.
pub(crate) fn without_edit_note<'c>(record: &CallRecord, content: &'c [Content]) -> &'c [Content] {
    let CallRecord { arguments, edited: Some(edited), .. } = record else { return content };
    match content.split_first() {
        Some((Content::Text(note), rest)) if *note == edit_note(arguments, edited) => rest,
        _ => content,
    }
}
