//! Decides from the approval rules and from earlier approvals whether a call needs an approval. An earlier approval
//! counts only if the tool, and in some cases the arguments, are those for which the approval was given.

use super::{ApprovalError, digest_of_arguments, remember_grants};
use crate::agent::Agent;
use crate::host::SessionServices;
use crate::tools::registry::RegisteredTool;
use agent_core::approval::{
    ApprovalPolicy, ApprovalScope, ApprovalVerdict, GrantScope, LastingGrant, Ruling, ScopedGrant,
};
use agent_core::change::CallRecord;
use agent_core::message::CallId;
use agent_core::run::{Approval, Disposition, ResolvedCall, Run, UnapprovedRequest};
use agent_core::tool::ServiceRequest;
use agent_store::StoreError;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Service requests that plugins have made in this process and that still wait for an approval. The key is the id of
/// the call during which the plugin made the request.
pub(crate) type HeldRequests = HashMap<CallId, (UnapprovedRequest, ServiceRequest)>;

/// The data that decisions about approvals depend on.
#[derive(Clone, Copy)]
pub(crate) struct ApprovalContext<'a> {
    pub(crate) services: &'a SessionServices,
    pub(crate) run: &'a Run,
    pub(crate) held_requests: &'a HeldRequests,
    /// Calls that were loaded from the store. The arguments of such a call are checked again against the tool's schema
    /// before the call runs.
    pub(crate) unverified: &'a HashSet<CallId>,
}

impl ApprovalContext<'_> {
    /// Returns the ruling on a tool that follows from the approval rules. The turn's configuration and the current
    /// configuration may contain different rules, and the stricter ruling is returned. A rule that becomes stricter
    /// during a turn therefore applies immediately, and a rule that becomes less strict applies from the next turn on.
    pub(super) fn configured_ruling(&self, tool: &RegisteredTool) -> Ruling {
        let ruling_in = |agent: &Agent| agent.config().approvals.ruling(&tool.definition, &tool.source);
        ruling_in(&self.services.agent).strictest(ruling_in(&self.services.live.current()))
    }

    /// Returns the same ruling as `configured_ruling`, except that rules with the tool's exact name are ignored.
    pub(super) fn general_ruling(&self, tool: &RegisteredTool) -> Ruling {
        let ruling_in = |agent: &Agent| agent.config().approvals.general_ruling(&tool.definition, &tool.source);
        ruling_in(&self.services.agent).strictest(ruling_in(&self.services.live.current()))
    }

    /// Whether an approval of a tool is valid only for the arguments for which it was given. Approvals of the tool are
    /// bound to arguments if the turn's configuration or the current configuration requires it.
    pub(super) fn binds_arguments(&self, tool: &str) -> bool {
        [&self.services.agent, &self.services.live.current()]
            .iter()
            .any(|agent| agent.config().approvals.binds_arguments(tool))
    }

    /// Converts a user's permission for a call to the verdict that the run receives. Returns an error if the call
    /// cannot be allowed.
    pub(crate) async fn grant_call(
        &self,
        record: &CallRecord,
        scope: GrantScope,
        edited: Option<Value>,
    ) -> Result<Result<ApprovalVerdict, ApprovalError>, StoreError> {
        let (call, name) = (record.id.clone(), record.name.clone());
        let agent = self.services.agent.clone();
        let Some(tool) = agent.registry().get(&name) else {
            return Ok(Err(ApprovalError::Gone { call, tool: name }));
        };
        let ruling = self.ruling(tool).await?;
        if ruling.policy == ApprovalPolicy::Deny {
            return Ok(Err(ApprovalError::Forbidden { call, tool: name, because: ruling.because }));
        }
        let edited = edited.filter(|edited| *edited != record.arguments);
        if let Some(Err(violations)) = edited.as_ref().map(|edited| tool.check_arguments(edited)) {
            return Ok(Err(ApprovalError::Arguments { call, tool: name, violations }));
        }
        let is_bound = edited.is_some() || scope == GrantScope::Once || self.binds_arguments(&name);
        let arguments = is_bound.then(|| digest_of_arguments(edited.as_ref().unwrap_or(&record.arguments)));
        let (approval_scope, digest) = (Some(self.approval_scope(tool)), tool.digest.clone());
        let agent = agent.config().name.clone();
        let grant = LastingGrant { agent, tool: name, digest, arguments, scope: approval_scope };
        Ok(Ok(ApprovalVerdict::Granted { edited, grant: ScopedGrant { scope, grant } }))
    }

    /// Finds the calls in a model's reply that need an approval, and marks each of them either as covered by an earlier
    /// approval or as waiting for a new approval.
    pub(crate) async fn mark_needed_approvals(
        &self,
        mut calls: Vec<ResolvedCall>,
    ) -> Result<Vec<ResolvedCall>, StoreError> {
        let mut lasting = None;
        for call in calls.iter_mut().filter(|call| matches!(call.disposition, Disposition::Ready { .. })) {
            let Some(tool) = self.services.agent.registry().get(&call.name) else { continue };
            if self.ruling(tool).await?.policy != ApprovalPolicy::Ask {
                continue;
            }
            let lasting = match &mut lasting {
                Some(lasting) => lasting,
                none => none.insert(self.lasting_grants().await?),
            };
            let scope = self.approval_scope(tool);
            let grants: Vec<_> = self.run.grants.iter().chain(lasting.iter()).collect();
            let remembered = grants.iter().find(|grant| self.is_remembered_for(grant, (tool, &scope), &call.arguments));
            call.approval = match remembered {
                Some(grant) => Approval::Remembered((*grant).clone()),
                None => {
                    warn_of_void_grants(&grants, tool, &scope);
                    Approval::Needed(scope.identity)
                }
            };
        }
        Ok(calls)
    }

    pub(super) async fn lasting_grants(&self) -> Result<Vec<LastingGrant>, StoreError> {
        let store = &*self.services.store;
        remember_grants(store, None).await?;
        let allowed = store.allowed(&self.services.agent.config().name).await?;
        Ok(allowed.into_iter().map(|stored| stored.grant).collect())
    }

    /// Whether an approval matches the call that would run now. The agent, the tool, the digest of the tool and the
    /// identity in the approval's scope must be those of the call. If the approval is bound to arguments, the call must
    /// also have these arguments.
    pub(super) fn is_bound_to(
        &self,
        grant: &LastingGrant,
        (tool, scope): (&RegisteredTool, &ApprovalScope),
        arguments: &Value,
    ) -> bool {
        grant.agent == self.services.agent.config().name
            && grant.tool == tool.definition.name
            && grant.digest == tool.digest
            && grant.scope.as_ref().is_some_and(|approved| approved.identity == scope.identity)
            && grant.arguments.as_ref().is_none_or(|digest| *digest == digest_of_arguments(arguments))
    }

    /// Whether an approval that was given for an earlier call also covers this call (row 52). In addition to the
    /// conditions of `is_bound_to`, the tool must have the same grants as when the approval was given. If the
    /// configuration requires that approvals are bound to arguments, the approval must also be bound to the arguments
    /// of this call.
    pub(super) fn is_remembered_for(
        &self,
        grant: &LastingGrant,
        (tool, scope): (&RegisteredTool, &ApprovalScope),
        arguments: &Value,
    ) -> bool {
        let may_differ = !self.binds_arguments(&tool.definition.name);
        (may_differ || grant.arguments.is_some())
            && grant.scope.as_ref() == Some(scope)
            && self.is_bound_to(grant, (tool, scope), arguments)
    }
}

/// Logs why an earlier approval of the tool does not cover the current call.
fn warn_of_void_grants(grants: &[&LastingGrant], tool: &RegisteredTool, current: &ApprovalScope) {
    let name = &tool.definition.name;
    let mut of_tool = grants.iter().filter(|grant| grant.tool == *name && grant.arguments.is_none());
    let Some(earlier) = of_tool.next() else { return };
    let reason = match &earlier.scope {
        None => "an older version of this host did not record the scope of the earlier approval",
        Some(scope) if scope.identity != current.identity => {
            "the agent's file, the user, or the plugin or server that offers the tool has changed"
        }
        Some(_) => "the grants in force have changed",
    };
    tracing::warn!("an earlier approval of `{name}` does not cover this call, so the host asks again: {reason}");
}
