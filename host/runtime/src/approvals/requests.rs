//! Requests of plugins to services (P2). A tool that returns `pending` is treated as if the model had called the service:
//! the type must be granted, the service's own schema holds, and its approval rules decide (L17, row 51).

use super::{ApprovalError, Verdict, allowing, denied, digest_of_arguments};
use crate::calls::PendingCall;
use crate::drive::Deed;
use crate::registry::RegisteredTool;
use crate::services::{HandedOn, ServiceConfig, ServiceContract, hand_on, reserved_key};
use crate::session::{Notes, Session, SessionError};
use agent_core::approval::{
    ApprovalPolicy, ApprovalScope, ApprovalVerdict, AskedAgain, GrantScope, LastingGrant, Leave, ScopedGrant,
};
use agent_core::change::{CallRecord, Denial};
use agent_core::cloud_event::MAX_EVENT_BYTES;
use agent_core::event::{ApprovalDetails, ApprovalItem};
use agent_core::message::{CallId, Digest};
use agent_core::run::{Dispatch, HeldRequest, Input};
use agent_core::schema::Schema;
use agent_core::tool::{ServiceRequest, ToolError, ToolSource};
use agent_plugins::event_denied;
use agent_store::{StoreError, digest_of};
use serde_json::Value;
use std::sync::Arc;

/// Violations of a service's schema that an error names.
const NAMED_VIOLATIONS: usize = 8;
/// Bytes of a request's data: the event around it must stay within what readers take.
const MAX_DATA_BYTES: usize = MAX_EVENT_BYTES - (64 << 10);
/// Characters of a plugin's own words that a denial shows.
const NAMED_CHARACTERS: usize = 80;

/// A request that a plugin may make: what goes out, and the service whose rules decide about it.
#[derive(Debug)]
struct Permitted {
    handed_on: HandedOn,
    /// None: no service of the agent has this type, and the grant alone decides.
    service: Option<Arc<RegisteredTool>>,
    /// What of the request the host does not take over.
    denial: Option<Denial>,
}

/// The same, with the identity of what somebody must be asked about first ([`LastingGrant::identity`]).
#[derive(Debug)]
struct Judged {
    permitted: Permitted,
    asks: Option<Digest>,
}

/// A request that must not go out.
#[derive(Debug)]
pub(super) struct NotPermitted {
    pub(super) error: ToolError,
    /// For the audit log.
    denial: Denial,
}

/// What an approval rule says of a request that is about to go out.
pub(super) enum Standing {
    /// It may go out.
    Holds,
    /// Somebody must allow it first.
    Asks(AskedAgain),
    /// It must not.
    Forbidden(Box<NotPermitted>),
}

impl Session {
    /// What becomes of a running call whose tool asks for a service: it waits for the service, or for somebody's leave, or
    /// has an error as its result.
    pub(crate) async fn take_request(&mut self, pending: PendingCall) -> Result<Deed, SessionError> {
        let PendingCall { call, request, cost, mut denials, answers } = pending;
        let record = self.load_calls(std::slice::from_ref(&call)).await?.pop();
        let mut notes = Notes { answers: answers.map(|answers| (call.clone(), answers)), ..Notes::default() };
        notes.request = Some((call.clone(), request.clone()));
        let judged = match &record {
            Some(record) => self.judge(record, &request).await?,
            None => Err(Box::new(gone(&call))),
        };
        let Judged { permitted, asks } = match judged {
            Ok(judged) => judged,
            Err(refused) => {
                denials.push(refused.denial);
                let result = crate::calls::failed(refused.error, cost, denials);
                return Ok(Ok((Input::Outcome { call, result }, notes)));
            }
        };
        denials.extend(permitted.denial);
        notes.denials = denials.into_iter().map(|denial| (Some(call.clone()), denial)).collect();
        let HandedOn { awaits, contract } = permitted.handed_on;
        let (Some(digest), Some(service)) = (asks, permitted.service) else {
            notes.texts.extend(contract);
            return Ok(Ok((Input::Pending { call, awaits, cost }, notes)));
        };
        let text = serde_json::to_string(&request).map_err(|error| unreadable(&call, &error))?;
        let held = HeldRequest { service: service.definition.name.clone(), request: digest_of(text.as_bytes()) };
        notes.texts.push(text);
        self.held_requests.insert(call.clone(), (held.clone(), request));
        Ok(Ok((Input::Held { call, request: held, digest, cost }, notes)))
    }

    /// Whether a request may be made at all, and whether somebody must be asked about it first.
    async fn judge(
        &self,
        record: &CallRecord,
        request: &ServiceRequest,
    ) -> Result<Result<Judged, Box<NotPermitted>>, StoreError> {
        let permitted = match self.permitted(record, request) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut asks = None;
        if let Some(service) = &permitted.service
            && self.ruling(service).await?.policy == ApprovalPolicy::Ask
        {
            let scope = self.shared.request_scope(service, record);
            if !self.is_allowed_already((service, &scope), &request.data).await? {
                asks = Some(scope.identity);
            }
        }
        Ok(Ok(Judged { permitted, asks }))
    }

    async fn is_allowed_already(
        &self,
        (service, scope): (&RegisteredTool, &ApprovalScope),
        data: &Value,
    ) -> Result<bool, StoreError> {
        let lasting = self.lasting().await?;
        Ok(self.run.grants.iter().chain(&lasting).any(|grant| self.is_remembered_for(grant, (service, scope), data)))
    }

    /// Whether a request that somebody was asked about may go out now.
    pub(super) async fn standing(&self, record: &CallRecord, dispatch: &Dispatch) -> Result<Standing, StoreError> {
        let Some((_, request)) = self.request_held_for(&record.id).await? else {
            return Ok(Standing::Forbidden(Box::new(gone(&record.id))));
        };
        let permitted = match self.permitted(record, &request) {
            Ok(permitted) => permitted,
            Err(refused) => return Ok(Standing::Forbidden(refused)),
        };
        let Some(service) = permitted.service else { return Ok(Standing::Holds) };
        if self.ruling(&service).await?.policy != ApprovalPolicy::Ask {
            return Ok(Standing::Holds);
        }
        let scope = self.shared.request_scope(&service, record);
        let holds = match &dispatch.granted {
            Some(Leave::Answered(grant)) => self.is_bound_to(grant, (&service, &scope), &request.data),
            Some(Leave::Remembered(_)) | None => false,
        };
        if holds || self.is_allowed_already((&service, &scope), &request.data).await? {
            return Ok(Standing::Holds);
        }
        Ok(Standing::Asks(AskedAgain { call: record.id.clone(), digest: scope.identity }))
    }

    /// What an allowed request is handed on as. Everything is checked again: grants and rules may have changed meanwhile.
    pub(crate) async fn handed_on_held(&self, record: &CallRecord) -> Result<Option<HandedOn>, StoreError> {
        let Some((_, request)) = self.request_held_for(&record.id).await? else { return Ok(None) };
        Ok(self.permitted(record, &request).ok().map(|permitted| permitted.handed_on))
    }

    /// What a plugin has asked for, where somebody must allow it first.
    pub(super) async fn request_held_for(
        &self,
        call: &CallId,
    ) -> Result<Option<(HeldRequest, ServiceRequest)>, StoreError> {
        if let Some(held) = self.held_requests.get(call) {
            return Ok(Some(held.clone()));
        }
        let Some(held) = self.run.held_request(call) else { return Ok(None) };
        let text = self.shared.store.text(&held.request).await?;
        let request = serde_json::from_str(&text).map_err(|error| unreadable(call, &error))?;
        Ok(Some((held.clone(), request)))
    }

    /// What a person is told of a held request, instead of the call's own tool and arguments.
    pub(super) async fn held_details(
        &self,
        item: &ApprovalItem,
        record: &CallRecord,
    ) -> Result<Option<ApprovalDetails>, StoreError> {
        let Some((held, request)) = self.request_held_for(&item.call).await? else { return Ok(None) };
        let Some(service) = self.shared.agent.registry().get(&held.service) else { return Ok(None) };
        let (asker, because) = (who(record), self.ruling(service).await?.because);
        Ok(Some(ApprovalDetails {
            source: service.source.clone(),
            arguments: request.data,
            traits: service.definition.traits,
            because: format!("{because}; `{}` of {asker} asks for it", record.name),
        }))
    }

    /// Somebody's yes or no about a held request. It is bound to the service and to the request's data, which cannot be
    /// changed: the plugin's tool has run already.
    pub(super) async fn decided_about_request(
        &self,
        (held, request): (HeldRequest, ServiceRequest),
        record: &CallRecord,
        verdict: Verdict,
    ) -> Result<ApprovalVerdict, SessionError> {
        let call = record.id.clone();
        let (scope, edited) = match verdict {
            Verdict::Deny { reason } => {
                let reason = reason.map(|reason| reason.chars().take(super::REASON_CHARACTERS).collect());
                return Ok(ApprovalVerdict::Denied { reason });
            }
            Verdict::Allow { scope, edited } => (scope, edited),
        };
        let tool = held.service;
        if edited.is_some_and(|edited| edited != request.data) {
            return Err(ApprovalError::RequestEdited { call, tool }.into());
        }
        let Some(service) = self.shared.agent.registry().get(&tool) else {
            return Err(ApprovalError::Gone { call, tool }.into());
        };
        let ruling = self.ruling(service).await?;
        if ruling.policy == ApprovalPolicy::Deny {
            return Err(ApprovalError::Forbidden { call, tool, because: ruling.because }.into());
        }
        let is_bound = scope == GrantScope::Once || self.shared.binds_arguments(&tool);
        let arguments = is_bound.then(|| digest_of_arguments(&request.data));
        let (agent, digest) = (self.shared.agent.config().name.clone(), service.digest.clone());
        let about = Some(self.shared.request_scope(service, record));
        let grant = ScopedGrant { scope, grant: LastingGrant { agent, tool, digest, arguments, scope: about } };
        Ok(ApprovalVerdict::Granted { edited: None, grant })
    }

    /// Checks a request against all that does not need a person: the grant as it is now, the keys that the host reserves,
    /// and the service's schema and rules.
    fn permitted(&self, record: &CallRecord, request: &ServiceRequest) -> Result<Permitted, Box<NotPermitted>> {
        let Some(ToolSource::Plugin { plugin, .. }) = &record.source else { return Err(Box::new(gone(&record.id))) };
        let refused = |message: String| Box::new(self.not_permitted(record, request, message));
        let granted = self.shared.agent.setups().get(plugin.as_str()).map(|setup| self.shared.setup(setup));
        if !granted.is_some_and(|setup| setup.grants().events.contains(&request.event_type)) {
            let (thing, advice) = event_denied(plugin, request.event_type.as_str());
            let denial = Denial { plugin: who(record), thing, grant: advice.to_string() };
            let message = Denial::in_error(&denial.thing, &denial.grant);
            return Err(Box::new(NotPermitted { error: ToolError::Denied { message }, denial }));
        }
        if let Some(pointer) = reserved_key(&request.data) {
            return Err(refused(format!(
                "its data has the key {pointer}: keys that end with `$$` are the host's own, which fills them in itself"
            )));
        }
        let bytes = request.data.to_string().len();
        if bytes > MAX_DATA_BYTES {
            return Err(refused(format!("its data has {bytes} bytes; at most {MAX_DATA_BYTES} are sent")));
        }
        if let Some(schema) = &request.answer_schema {
            Schema::compile(schema)
                .map_err(|error| refused(format!("the schema of its answer cannot be used: {error}")))?;
        }
        match self.service_of(request).map_err(refused)? {
            None => {
                let contract = ServiceContract::of_request(request);
                let handed_on = hand_on(&self.scope(), &record.id, (request.clone(), None), contract);
                Ok(Permitted { handed_on, service: None, denial: self.domain_denied(record, request, None) })
            }
            Some((name, config)) => {
                let service = self.checked_service((name, config), record, request)?;
                let data = service.outgoing(&request.data, &self.run.session).into_owned();
                let outgoing = ServiceRequest { data, ..request.clone() };
                let contract = ServiceContract::of_service(config, Some(request));
                let handed_on = hand_on(&self.scope(), &record.id, (outgoing, config.domain.clone()), contract);
                let denial = self.domain_denied(record, request, config.domain.as_deref());
                Ok(Permitted { handed_on, service: Some(service), denial })
            }
        }
    }

    /// The service that a request is for, with its name; none where no service of the agent has the type.
    fn service_of(&self, request: &ServiceRequest) -> Result<Option<(&str, &ServiceConfig)>, String> {
        let ServiceRequest { event_type, domain, .. } = request;
        let services = &self.shared.agent.config().services;
        let of_type = || services.iter().filter(|(_, service)| service.event_type == *event_type);
        let mut fitting: Vec<_> =
            of_type().filter(|(_, service)| domain.is_some() && service.domain == *domain).collect();
        if fitting.is_empty() {
            fitting = of_type().collect();
        }
        match fitting[..] {
            [] => match services.iter().find(|(_, service)| service.event_type.looks_like(event_type)) {
                None => Ok(None),
                Some((name, other)) => Err(format!(
                    "its event type looks like `{}` of the service `{name}` and is another one: use that type exactly",
                    other.event_type
                )),
            },
            [(name, service)] => Ok(Some((name.as_str(), service))),
            _ => Err("several services of the agent have its event type: the tool must name the domain of just one"
                .to_owned()),
        }
    }

    /// A domain that a plugin names and the host does not set: the event goes out without it, and people are told.
    fn domain_denied(&self, record: &CallRecord, request: &ServiceRequest, host: Option<&str>) -> Option<Denial> {
        let asked = request.domain.as_deref().filter(|asked| host != Some(asked))?;
        let asked: String = asked.chars().take(NAMED_CHARACTERS).flat_map(char::escape_debug).collect();
        let event_type = &request.event_type;
        Some(Denial {
            plugin: who(record),
            thing: format!(
                "setting the domain \"{asked}\" of the service event {event_type}, which was sent with the host's"
            ),
            grant: format!("add to agent.toml:\n[services.NAME]\ntype = \"{event_type}\"\ndomain = \"…\""),
        })
    }

    /// The service's tool, where its rules and its schema let the request through.
    fn checked_service(
        &self,
        (name, _): (&str, &ServiceConfig),
        record: &CallRecord,
        request: &ServiceRequest,
    ) -> Result<Arc<RegisteredTool>, Box<NotPermitted>> {
        let refused = |message: String| Box::new(self.not_permitted(record, request, message));
        let service = self.shared.agent.registry().get(name);
        let Some(service) = service.filter(|service| matches!(service.source, ToolSource::Service { .. })) else {
            return Err(refused(format!("the agent has no service `{name}` now")));
        };
        let ruling = self.shared.ruling(service);
        if ruling.policy == ApprovalPolicy::Deny || service.withheld().is_some() {
            let thing = format!("sending the service event {}: {}", request.event_type, denied(name, &ruling.because));
            let denial = Denial { plugin: who(record), thing, grant: allowing(&ruling.because) };
            let message = format!("{} was refused {}", denial.plugin, denial.thing);
            return Err(Box::new(NotPermitted { error: ToolError::Denied { message }, denial }));
        }
        service.check_arguments(&request.data).map_err(|violations| {
            let named = violations.iter().take(NAMED_VIOLATIONS).map(|violation| match violation.pointer.as_str() {
                "" => violation.message.clone(),
                pointer => format!("{pointer}: {}", violation.message),
            });
            let named: Vec<String> = named.collect();
            refused(format!("its data is not what the service `{name}` accepts: {}", named.join("; ")))
        })?;
        Ok(service.clone())
    }

    fn not_permitted(&self, record: &CallRecord, request: &ServiceRequest, problem: String) -> NotPermitted {
        let (plugin, event_type) = (who(record), &request.event_type);
        let error = ToolError::Failed {
            message: format!("{plugin} asks for the service event {event_type}, which was not sent: {problem}"),
        };
        let thing = format!("sending the service event {event_type}: {problem}");
        let grant = "correct the plugin: no grant allows this".to_owned();
        NotPermitted { error, denial: Denial { plugin, thing, grant } }
    }
}

impl NotPermitted {
    /// Instead of the dispatch, with what the audit log is told.
    pub(super) fn forbidden(self, call: CallId) -> (Input, Denial) {
        (Input::Forbidden { call, error: self.error }, self.denial)
    }
}

fn who(record: &CallRecord) -> String {
    record.source.as_ref().map_or_else(|| format!("`{}`", record.name), ToString::to_string)
}

fn gone(call: &CallId) -> NotPermitted {
    let message = format!("what call {call} asked of a service is not stored any more, so that nothing was sent");
    let denial = Denial {
        plugin: call.to_string(),
        thing: "sending a service event that is not stored".to_owned(),
        grant: "call the tool again".to_owned(),
    };
    NotPermitted { error: ToolError::Failed { message }, denial }
}

fn unreadable(call: &CallId, error: &serde_json::Error) -> StoreError {
    StoreError::Invalid { what: format!("the service request of call {call}"), problem: error.to_string() }
}
