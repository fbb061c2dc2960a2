//! Checks calls immediately before they run, against the current rules and approvals (L17).

use super::context::ApprovalContext;
use super::service_requests::{HeldRequestStatus, RefusedRequest};
use crate::tools::builtins::loop_break;
use crate::tools::registry::{Availability, RegisteredTool};
use crate::tools::rules::{advice_to_allow, denial_message};
use agent_core::approval::{ApprovalPolicy, ApprovalScope, Authorization, LastingGrant, ReapprovalRequest};
use agent_core::change::{CallRecord, Denial};
use agent_core::message::CallId;
use agent_core::run::{Dispatch, Input};
use agent_core::tool::{ToolError, ToolSource};
use agent_store::StoreError;
use serde_json::Value;

/// A call that the host refuses to dispatch. The run receives `input` instead of the dispatch, and `denial` is recorded
/// in the audit log (O3).
pub(crate) struct BlockedDispatch {
    pub(crate) input: Input,
    pub(crate) denial: Option<(Option<CallId>, Denial)>,
}

/// The result of checking whether one call may run now.
enum CallCheck {
    MayRun,
    /// The call has no approval that is still valid, so a user must approve the call again.
    NeedsApproval(ReapprovalRequest),
    Blocked(Box<BlockedDispatch>),
}

/// Who decides whether a call may run: a user, or the approval rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DecidedBy {
    User,
    Rules,
}

/// Returns the error for a call whose MCP server has changed the tool's definition since the model called it. During a
/// turn, the definition can change only if another process continues the turn (P10). If a user decides about the call
/// and the arguments satisfy the current definition, the result is `None`, and the user is asked about the call with
/// the current definition (row 19).
fn changed_since(record: &CallRecord, tool: &RegisteredTool, decided_by: DecidedBy) -> Option<ToolError> {
    let Some(ToolSource::Mcp { server, definition: Some(called) }) = &record.source else { return None };
    if *called == tool.digest {
        return None;
    }
    match (decided_by, tool.check_arguments(record.effective_arguments())) {
        (_, Err(violations)) => Some(ToolError::InvalidArguments { violations }),
        (DecidedBy::User, Ok(())) => None,
        (DecidedBy::Rules, Ok(())) => {
            let name = &record.name;
            let advice = match tool.availability {
                Availability::Renewed { .. } => "continue without it; the next turn can call it",
                _ => "read its current definition, and call it again if you still want to",
            };
            let message = format!(
                "MCP server {server} has changed `{name}` since it was called, so the call was not run: {advice}"
            );
            Some(ToolError::Failed { message })
        }
    }
}

impl ApprovalContext<'_> {
    /// Checks the calls that are about to run (L17). Returns `None` if all calls may run. If one of the calls is not
    /// allowed to run, none of the calls runs, and the returned input must be applied to the run.
    pub(crate) async fn check_dispatch(
        &self,
        records: &[CallRecord],
        dispatches: &[Dispatch],
    ) -> Result<Option<BlockedDispatch>, StoreError> {
        let (mut lasting, mut ask_again) = (None, Vec::new());
        for (record, dispatch) in records.iter().zip(dispatches) {
            let check = match dispatch.request {
                Some(_) => self.check_held_request(record, dispatch).await?,
                None => self.check_call(record, dispatch, &mut lasting).await?,
            };
            match check {
                CallCheck::MayRun => {}
                CallCheck::NeedsApproval(request) => ask_again.push(request),
                CallCheck::Blocked(blocked) => return Ok(Some(*blocked)),
            }
        }
        Ok((!ask_again.is_empty())
            .then_some(BlockedDispatch { input: Input::RequestReapproval { calls: ask_again }, denial: None }))
    }

    /// Checks a service request that a plugin has made during a call and that waited for an approval. The plugin's tool
    /// has already run.
    async fn check_held_request(&self, record: &CallRecord, dispatch: &Dispatch) -> Result<CallCheck, StoreError> {
        Ok(match self.held_request_status(record, dispatch).await? {
            HeldRequestStatus::Allowed => CallCheck::MayRun,
            HeldRequestStatus::NeedsApproval(request) => CallCheck::NeedsApproval(request),
            HeldRequestStatus::Forbidden(refused) => {
                let RefusedRequest { error, denial } = *refused;
                let (call, denial) = (record.id.clone(), Some((Some(record.id.clone()), denial)));
                CallCheck::Blocked(Box::new(BlockedDispatch { input: Input::Forbidden { call, error }, denial }))
            }
        })
    }

    async fn check_call(
        &self,
        record: &CallRecord,
        dispatch: &Dispatch,
        lasting: &mut Option<Vec<LastingGrant>>,
    ) -> Result<CallCheck, StoreError> {
        // If the agent no longer has the tool, the call needs no check here, because it fails when it is executed.
        let Some(tool) = self.services.agent.registry().get(&record.name) else { return Ok(CallCheck::MayRun) };
        // A call of a tool that ends the turn never needs an approval.
        if loop_break(&tool.definition, &tool.source).is_some() {
            return Ok(CallCheck::MayRun);
        }
        let is_changed = changed_since(record, tool, DecidedBy::Rules).is_some();
        let is_renewed = is_changed && matches!(tool.availability, Availability::Renewed { .. });
        if let Some((message, _)) = tool.withheld().filter(|_| !is_renewed) {
            return Ok(self.forbidden(record, ToolError::Denied { message }));
        }
        if self.unverified.contains(&record.id)
            && let Err(violations) = tool.check_arguments(record.effective_arguments())
        {
            return Ok(self.forbidden(record, ToolError::InvalidArguments { violations }));
        }
        let ruling = self.ruling(tool).await?;
        let decided_by = if ruling.policy == ApprovalPolicy::Ask { DecidedBy::User } else { DecidedBy::Rules };
        if let Some(error) = changed_since(record, tool, decided_by) {
            return Ok(self.forbidden(record, error));
        }
        match ruling.policy {
            ApprovalPolicy::Allow => return Ok(CallCheck::MayRun),
            ApprovalPolicy::Ask => {}
            ApprovalPolicy::Deny => {
                let error = ToolError::Denied { message: denial_message(&record.name, &ruling.because) };
                return Ok(self.forbidden(record, error));
            }
        }
        let scope = self.approval_scope(tool);
        if self
            .is_still_valid(dispatch.authorization.as_ref(), (tool, &scope), record.effective_arguments(), lasting)
            .await?
        {
            return Ok(CallCheck::MayRun);
        }
        Ok(CallCheck::NeedsApproval(ReapprovalRequest { call: record.id.clone(), digest: scope.identity }))
    }

    /// Whether the approval of a call is still valid for the tool and the arguments that would run now.
    async fn is_still_valid(
        &self,
        granted: Option<&Authorization>,
        (tool, scope): (&RegisteredTool, &ApprovalScope),
        arguments: &Value,
        lasting: &mut Option<Vec<LastingGrant>>,
    ) -> Result<bool, StoreError> {
        Ok(match granted {
            None => false,
            Some(Authorization::Answered(grant)) => self.is_bound_to(grant, (tool, scope), arguments),
            Some(Authorization::Remembered(grant)) if !self.is_remembered_for(grant, (tool, scope), arguments) => false,
            Some(Authorization::Remembered(grant)) if self.run.grants.contains(grant) => true,
            Some(Authorization::Remembered(grant)) => {
                let lasting = match lasting {
                    Some(lasting) => lasting,
                    none => none.insert(self.lasting_grants().await?),
                };
                lasting.contains(grant)
            }
        })
    }

    /// Returns the check result that blocks a call with this error. If the error is a denial, the denial is recorded in
    /// the audit log (O3).
    fn forbidden(&self, record: &CallRecord, error: ToolError) -> CallCheck {
        let denial = matches!(error, ToolError::Denied { .. }).then(|| self.denial_of(record)).flatten();
        let input = Input::Forbidden { call: record.id.clone(), error };
        CallCheck::Blocked(Box::new(BlockedDispatch { input, denial }))
    }

    fn denial_of(&self, record: &CallRecord) -> Option<(Option<CallId>, Denial)> {
        let tool = self.services.agent.registry().get(&record.name)?;
        let denial = match tool.withheld() {
            Some((_, denial)) => denial,
            None => {
                let because = self.services.agent.config().approvals.ruling(&tool.definition, &tool.source).because;
                let (plugin, thing) = (tool.source.to_string(), format!("`{}`", record.name));
                Denial { plugin, thing, grant: advice_to_allow(&because) }
            }
        };
        Some((Some(record.id.clone()), denial))
    }
}
