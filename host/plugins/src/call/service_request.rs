//! Checks the service events that tools ask the host to send. The plugin must have a grant for the event type, and the
//! tool must not be marked as read-only (P2, P6, row 51).

use super::plugin_setup::PluginSetup;
use crate::contract::RejectedResult;
use crate::contract::v0_1::bindings::exports::agent_host::plugin::tool as wit;
use crate::contract::v0_1::conversion::{TextBudget, json_in};
use crate::grants::{GrantAdvice, event_denied};
use crate::recording::CallRecord;
use agent_core::change::Denial;
use agent_core::event_type::ServiceEventType;
use agent_core::tool::{ServiceRequest, ToolError};

/// Converts and checks a service request. If the request is denied, records the denial and returns the error for the
/// tool call.
pub(crate) fn service_request_in(
    request: wit::ServiceRequest,
    (setup, tool): (&PluginSetup, &str),
    record: &CallRecord,
) -> Result<Result<ServiceRequest, ToolError>, RejectedResult> {
    let mut budget = TextBudget::new(record.limits.result);
    budget.take(&request.data)?;
    budget.take(&request.event_type)?;
    budget.take(request.domain.as_deref().unwrap_or_default())?;
    budget.take(request.answer_schema.as_deref().unwrap_or_default())?;
    let event_type = match check_event_type(&request.event_type, setup, tool) {
        Ok(event_type) => event_type,
        Err((thing, advice)) => {
            let message = Denial::in_error(&thing, &advice.to_string());
            record.deny(thing, advice);
            return Ok(Err(ToolError::Denied { message }));
        }
    };
    let answer_schema = request.answer_schema.map(|text| json_in(&text, "the service request's answer schema"));
    Ok(Ok(ServiceRequest {
        event_type,
        data: json_in(&request.data, "the service request's data")?,
        domain: request.domain,
        answer_schema: answer_schema.transpose()?,
        answer_within: request.answer_within,
    }))
}

/// Returns the event type if the tool may send events of this type. The error contains the description of the denial,
/// and advice on how to allow the event.
fn check_event_type(
    event_type: &str,
    setup: &PluginSetup,
    tool: &str,
) -> Result<ServiceEventType, (String, GrantAdvice)> {
    let event_type = ServiceEventType::parse(event_type).map_err(|error| {
        let advice =
            GrantAdvice::without_grant("let the plugin use another type: no grant allows this type".to_owned());
        (format!("sending a service event: {error}"), advice)
    })?;
    let reads_only = setup.plugin.tools().iter().any(|known| known.name == tool && known.traits.read_only);
    if reads_only {
        let thing = format!(
            "sending the service event {event_type} from `{tool}`, which is marked as read-only: such a tool cannot send service \
             events"
        );
        let advice = "ask the plugin's author to remove the mark `read-only`: no grant allows this".to_owned();
        return Err((thing, GrantAdvice::without_grant(advice)));
    }
    if !setup.grants.events.contains(&event_type) {
        return Err(event_denied(&setup.plugin.identity.name, event_type.as_str()));
    }
    Ok(event_type)
}
