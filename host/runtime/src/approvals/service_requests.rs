//! Service requests of plugins (P2). A tool of a plugin returns `pending` to request that the host sends an event to a
//! service. The plugin must have a grant for the event type. In all other respects, the request is checked like a call
//! that the model makes to the service: the service's schema and approval rules apply (L17, row 51).

use super::context::ApprovalContext;
use super::{ApprovalError, REASON_CHARACTERS, Verdict, digest_of_arguments};
use crate::agent::ServiceConfig;
use crate::outbox::{ForwardedCall, ServiceContract, forward};
use crate::tools::registry::RegisteredTool;
use crate::tools::reserved::reserved_key;
use crate::tools::rules::{advice_to_allow, denial_message};
use agent_core::approval::{
    ApprovalPolicy, ApprovalScope, ApprovalVerdict, Authorization, GrantScope, LastingGrant, ReapprovalRequest,
    ScopedGrant,
};
use agent_core::change::{CallRecord, Denial};
use agent_core::cloud_event::MAX_EVENT_BYTES;
use agent_core::event::{ApprovalDetails, ApprovalItem};
use agent_core::message::{CallId, Digest};
use agent_core::run::{Dispatch, UnapprovedRequest};
use agent_core::schema::Schema;
use agent_core::tool::{ServiceRequest, ToolError, ToolSource};
use agent_core::trace::SpanKey;
use agent_plugins::event_denied;
use agent_store::StoreError;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of schema violations in an error message.
const MAX_LISTED_VIOLATIONS: usize = 8;
/// Maximum size of a request's data, in bytes. It is less than [`MAX_EVENT_BYTES`], because the event
/// also contains attributes.
const MAX_DATA_BYTES: usize = MAX_EVENT_BYTES - (64 << 10);
/// Maximum number of characters that a denial quotes from a text that a plugin has chosen, for example
/// a requested domain.
const MAX_QUOTED_CHARACTERS: usize = 80;

/// A service request that the plugin is allowed to make: the outgoing event, and the service whose rules apply to
/// the event.
#[derive(Debug)]
pub(crate) struct PermittedRequest {
    pub(crate) forwarded: ForwardedCall,
    /// The service whose rules apply to the request. If no service of the agent has this event type, this field is
    /// `None`, and only the plugin's grant is checked.
    pub(crate) service: Option<Arc<RegisteredTool>>,
    /// A denial to record if the host ignores the domain that the plugin requested. `None` if the plugin did
    /// not request a domain, or requested the domain that the host sets.
    pub(crate) denial: Option<Denial>,
}

/// A request that the plugin is allowed to make. If a user must approve the request before it is sent, `needs_approval`
/// contains the identity to which the approval will be bound ([`LastingGrant::identity`]).
#[derive(Debug)]
pub(crate) struct JudgedRequest {
    pub(crate) permitted: PermittedRequest,
    pub(crate) needs_approval: Option<Digest>,
}

/// A request that must not be sent.
#[derive(Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) error: ToolError,
    /// Denial that is recorded in the audit log for the refused request.
    pub(crate) denial: Denial,
}

/// Whether a request that was waiting for an approval can be sent now.
pub(super) enum HeldRequestStatus {
    /// The request may be sent.
    Allowed,
    /// A user must approve the request before it can be sent.
    NeedsApproval(ReapprovalRequest),
    /// The request must not be sent.
    Forbidden(Box<RefusedRequest>),
}

impl ApprovalContext<'_> {
    /// Decides whether a plugin may make a request, and whether the request needs an approval first.
    pub(crate) async fn judge_request(
        &self,
        call: &CallId,
        record: Option<&CallRecord>,
        request: &ServiceRequest,
    ) -> Result<Result<JudgedRequest, Box<RefusedRequest>>, StoreError> {
        let Some(record) = record else { return Ok(Err(Box::new(request_not_stored(call)))) };
        let permitted = match self.check_request(record, request) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut needs_approval = None;
        if let Some(service) = &permitted.service
            && self.ruling(service).await?.policy == ApprovalPolicy::Ask
        {
            let scope = self.request_scope(service, record);
            if !self.is_allowed_already((service, &scope), &request.data).await? {
                needs_approval = Some(scope.identity);
            }
        }
        Ok(Ok(JudgedRequest { permitted, needs_approval }))
    }

    async fn is_allowed_already(
        &self,
        (service, scope): (&RegisteredTool, &ApprovalScope),
        data: &Value,
    ) -> Result<bool, StoreError> {
        let lasting = self.lasting_grants().await?;
        Ok(self.run.grants.iter().chain(&lasting).any(|grant| self.is_remembered_for(grant, (service, scope), data)))
    }

    /// Checks whether a request that waited for a user's approval may be sent now.
    pub(super) async fn held_request_status(
        &self,
        record: &CallRecord,
        dispatch: &Dispatch,
    ) -> Result<HeldRequestStatus, StoreError> {
        let Some((_, request)) = self.unapproved_request(&record.id).await? else {
            return Ok(HeldRequestStatus::Forbidden(Box::new(request_not_stored(&record.id))));
        };
        let permitted = match self.check_request(record, &request) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(HeldRequestStatus::Forbidden(refused)),
        };
        let Some(service) = permitted.service else { return Ok(HeldRequestStatus::Allowed) };
        if self.ruling(&service).await?.policy != ApprovalPolicy::Ask {
            return Ok(HeldRequestStatus::Allowed);
        }
        let scope = self.request_scope(&service, record);
        let is_approved = match &dispatch.authorization {
            Some(Authorization::Answered(grant)) => self.is_bound_to(grant, (&service, &scope), &request.data),
            Some(Authorization::Remembered(_)) | None => false,
        };
        if is_approved || self.is_allowed_already((&service, &scope), &request.data).await? {
            return Ok(HeldRequestStatus::Allowed);
        }
        Ok(HeldRequestStatus::NeedsApproval(ReapprovalRequest { call: record.id.clone(), digest: scope.identity }))
    }

    /// Returns the outgoing event of an approved request. The request is checked again, because grants and rules may
    /// have changed since the approval. Returns `None` if the request is no longer permitted.
    pub(crate) async fn forwarded_held_request(
        &self,
        record: &CallRecord,
    ) -> Result<Option<ForwardedCall>, StoreError> {
        let Some((_, request)) = self.unapproved_request(&record.id).await? else { return Ok(None) };
        Ok(self.check_request(record, &request).ok().map(|permitted| permitted.forwarded))
    }

    /// Returns the service request that a plugin made during a call, if this request waits for an approval.
    /// Otherwise, returns `None`.
    pub(crate) async fn unapproved_request(
        &self,
        call: &CallId,
    ) -> Result<Option<(UnapprovedRequest, ServiceRequest)>, StoreError> {
        if let Some(held) = self.held_requests.get(call) {
            return Ok(Some(held.clone()));
        }
        let Some(held) = self.run.unapproved_request(call) else { return Ok(None) };
        let text = self.services.store.text(&self.services.subject, &held.request).await?;
        let request = serde_json::from_str(&text).map_err(|error| unreadable_request(call, &error))?;
        Ok(Some((held.clone(), request)))
    }

    /// Returns the details of a service request that waits for an approval. The user is shown these details instead of
    /// the tool and arguments of the call during which the plugin made the request.
    pub(super) async fn held_request_details(
        &self,
        item: &ApprovalItem,
        record: &CallRecord,
    ) -> Result<Option<ApprovalDetails>, StoreError> {
        let Some((held, request)) = self.unapproved_request(&item.call).await? else { return Ok(None) };
        let Some(service) = self.services.agent.registry().get(&held.service) else { return Ok(None) };
        let (requester, because) = (source_of(record), self.ruling(service).await?.because);
        Ok(Some(ApprovalDetails {
            source: service.source.clone(),
            arguments: request.data,
            traits: service.definition.traits,
            because: format!("{because}; `{}` of {requester} requests it", record.name),
        }))
    }

    /// Converts a user's verdict on a service request to the verdict that the run receives. A user cannot change the
    /// data of the request, because the plugin's tool has already run.
    pub(crate) async fn decide_held_request(
        &self,
        (held, request): (UnapprovedRequest, ServiceRequest),
        record: &CallRecord,
        verdict: Verdict,
    ) -> Result<Result<ApprovalVerdict, ApprovalError>, StoreError> {
        let call = record.id.clone();
        let (scope, edited) = match verdict {
            Verdict::Deny { reason } => {
                let reason = reason.map(|reason| reason.chars().take(REASON_CHARACTERS).collect());
                return Ok(Ok(ApprovalVerdict::Denied { reason }));
            }
            Verdict::Allow { scope, edited } => (scope, edited),
        };
        let tool = held.service;
        if edited.is_some_and(|edited| edited != request.data) {
            return Ok(Err(ApprovalError::RequestEdited { call, tool }));
        }
        let Some(service) = self.services.agent.registry().get(&tool) else {
            return Ok(Err(ApprovalError::Gone { call, tool }));
        };
        let ruling = self.ruling(service).await?;
        if ruling.policy == ApprovalPolicy::Deny {
            return Ok(Err(ApprovalError::Forbidden { call, tool, because: ruling.because }));
        }
        let is_bound = scope == GrantScope::Once || self.binds_arguments(&tool);
        let arguments = is_bound.then(|| digest_of_arguments(&request.data));
        let (agent, digest) = (self.services.agent.config().name.clone(), service.digest.clone());
        let request_scope = Some(self.request_scope(service, record));
        let grant = ScopedGrant { scope, grant: LastingGrant { agent, tool, digest, arguments, scope: request_scope } };
        Ok(Ok(ApprovalVerdict::Granted { edited: None, grant }))
    }

    /// Checks all conditions for sending a request, except the user's approval. The plugin must currently have a grant
    /// for the event type, the data must not contain keys that are reserved for the host, and the service's schema and
    /// rules must permit the request.
    fn check_request(
        &self,
        record: &CallRecord,
        request: &ServiceRequest,
    ) -> Result<PermittedRequest, Box<RefusedRequest>> {
        let Some(ToolSource::Plugin { plugin, .. }) = &record.source else {
            return Err(Box::new(request_not_stored(&record.id)));
        };
        let refused = |message: String| Box::new(self.refused_request(record, request, message));
        let granted = self.services.agent.setups().get(plugin.as_str()).map(|setup| self.services.current_setup(setup));
        if !granted.is_some_and(|setup| setup.grants().events.contains(&request.event_type)) {
            let (thing, advice) = event_denied(plugin, request.event_type.as_str());
            let denial = Denial { plugin: source_of(record), thing, grant: advice.to_string() };
            let message = Denial::in_error(&denial.thing, &denial.grant);
            return Err(Box::new(RefusedRequest { error: ToolError::Denied { message }, denial }));
        }
        if let Some(pointer) = reserved_key(&request.data) {
            return Err(refused(format!(
                "its data has the key {pointer}: keys that end with `$$` are reserved for the host, which fills them in"
            )));
        }
        let bytes = request.data.to_string().len();
        if bytes > MAX_DATA_BYTES {
            return Err(refused(format!("its data has {bytes} bytes, but the maximum is {MAX_DATA_BYTES}")));
        }
        if let Some(schema) = &request.answer_schema {
            Schema::compile(schema)
                .map_err(|error| refused(format!("the schema of its answer cannot be used: {error}")))?;
        }
        let scope = self.services.scope(self.run, Some(SpanKey::Call(&record.id)));
        let now = self.services.now_ms();
        match self.service_of(request).map_err(refused)? {
            None => {
                let contract = ServiceContract::of_request(request);
                let forwarded = forward(&scope, &record.id, (request.clone(), None), contract, now);
                Ok(PermittedRequest { forwarded, service: None, denial: self.domain_denied(record, request, None) })
            }
            Some((name, config)) => {
                let service = self.checked_service((name, config), record, request)?;
                let data = service.outgoing(&request.data, &self.run.session).into_owned();
                let outgoing = ServiceRequest { data, ..request.clone() };
                let contract = ServiceContract::of_service(config, Some(request));
                let forwarded = forward(&scope, &record.id, (outgoing, config.domain.clone()), contract, now);
                let denial = self.domain_denied(record, request, config.domain.as_deref());
                Ok(PermittedRequest { forwarded, service: Some(service), denial })
            }
        }
    }

    /// Returns the service to which a request is sent, and the name of the service. Returns `None` if no service of the
    /// agent has the event type of the request.
    fn service_of(&self, request: &ServiceRequest) -> Result<Option<(&str, &ServiceConfig)>, String> {
        let ServiceRequest { event_type, domain, .. } = request;
        let services = &self.services.agent.config().services;
        let with_type = || services.iter().filter(|(_, service)| service.event_type == *event_type);
        let mut matching: Vec<_> =
            with_type().filter(|(_, service)| domain.is_some() && service.domain == *domain).collect();
        if matching.is_empty() {
            matching = with_type().collect();
        }
        match matching[..] {
            [] => match services.iter().find(|(_, service)| service.event_type.looks_like(event_type)) {
                None => Ok(None),
                Some((name, other)) => Err(format!(
                    "its event type looks like `{}` of the service `{name}` but is a different type: use exactly \
                     the service's type",
                    other.event_type
                )),
            },
            [(name, service)] => Ok(Some((name.as_str(), service))),
            _ => Err(
                "several of the agent's services handle the event type of this tool: the tool must name the domain \
                      of exactly one of them"
                    .to_owned(),
            ),
        }
    }

    /// Returns the denial that is recorded if a plugin requests a domain that the host does not set. The event is sent
    /// without the requested domain.
    fn domain_denied(&self, record: &CallRecord, request: &ServiceRequest, host: Option<&str>) -> Option<Denial> {
        let domain = request.domain.as_deref().filter(|domain| host != Some(domain))?;
        let domain: String = domain.chars().take(MAX_QUOTED_CHARACTERS).flat_map(char::escape_debug).collect();
        let event_type = &request.event_type;
        Some(Denial {
            plugin: source_of(record),
            thing: format!(
                "the domain \"{domain}\" for the service event {event_type}; the event was sent with the domain that the \
                 host sets"
            ),
            grant: format!("add to agent.toml:\n[services.NAME]\ntype = \"{event_type}\"\ndomain = \"…\""),
        })
    }

    /// Returns the registered tool of the service, or an error if the service's rules or its schema do not permit the
    /// request to the service.
    fn checked_service(
        &self,
        (name, _): (&str, &ServiceConfig),
        record: &CallRecord,
        request: &ServiceRequest,
    ) -> Result<Arc<RegisteredTool>, Box<RefusedRequest>> {
        let refused = |message: String| Box::new(self.refused_request(record, request, message));
        let service = self.services.agent.registry().get(name);
        let Some(service) = service.filter(|service| matches!(service.source, ToolSource::Service { .. })) else {
            return Err(refused(format!("the agent currently has no service `{name}`")));
        };
        let ruling = self.configured_ruling(service);
        if ruling.policy == ApprovalPolicy::Deny || service.withheld().is_some() {
            let thing =
                format!("sending the service event {}: {}", request.event_type, denial_message(name, &ruling.because));
            let denial = Denial { plugin: source_of(record), thing, grant: advice_to_allow(&ruling.because) };
            let message = format!("{} is not granted {}", denial.plugin, denial.thing);
            return Err(Box::new(RefusedRequest { error: ToolError::Denied { message }, denial }));
        }
        service.check_arguments(&request.data).map_err(|violations| {
            let listed =
                violations.iter().take(MAX_LISTED_VIOLATIONS).map(|violation| match violation.pointer.as_str() {
                    "" => violation.message.clone(),
                    pointer => format!("{pointer}: {}", violation.message),
                });
            let listed: Vec<String> = listed.collect();
            refused(format!("its data does not match what the service `{name}` accepts: {}", listed.join("; ")))
        })?;
        Ok(service.clone())
    }

    fn refused_request(&self, record: &CallRecord, request: &ServiceRequest, problem: String) -> RefusedRequest {
        let (plugin, event_type) = (source_of(record), &request.event_type);
        let error = ToolError::Failed {
            message: format!("{plugin} requested the service event {event_type}, which was not sent: {problem}"),
        };
        let thing = format!("sending the service event {event_type}: {problem}");
        let grant = "fix the plugin: no grant allows this".to_owned();
        RefusedRequest { error, denial: Denial { plugin, thing, grant } }
    }
}

fn source_of(record: &CallRecord) -> String {
    record.source.as_ref().map_or_else(|| format!("`{}`", record.name), ToString::to_string)
}

fn request_not_stored(call: &CallId) -> RefusedRequest {
    let message = format!("the service request of call {call} is no longer stored, so nothing was sent");
    let denial = Denial {
        plugin: call.to_string(),
        thing: "sending a service event that is no longer stored".to_owned(),
        grant: "call the tool again".to_owned(),
    };
    RefusedRequest { error: ToolError::Failed { message }, denial }
}

pub(crate) fn unreadable_request(call: &CallId, error: &serde_json::Error) -> StoreError {
    StoreError::Invalid { what: format!("the service request of call {call}"), problem: error.to_string() }
}
