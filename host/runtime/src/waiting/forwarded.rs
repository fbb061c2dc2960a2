//! Tool calls that the host does not run itself: a service, another agent, the client or the user answers them.

use super::questions::awaited_answer;
use crate::host::SessionServices;
use crate::outbox::{ForwardedCall, ServiceContract, forward};
use agent_core::change::CallRecord;
use agent_core::event::WaitCause;
use agent_core::run::{Awaited, Run};
use agent_core::tool::ToolSource;
use agent_core::trace::SpanKey;

/// Returns a description of the answer that a call waits for. Returns `None` if the host runs the call itself.
pub(crate) fn forwarded_call(services: &SessionServices, run: &Run, record: &CallRecord) -> Option<ForwardedCall> {
    if let Some(awaits) = awaited_agent(services, record).or_else(|| awaited_answer(run, record, services.now_ms())) {
        return Some(ForwardedCall { awaits, contract: None });
    }
    let tool = services.agent.registry().get(&record.name)?;
    let service = match &tool.source {
        ToolSource::Service { .. } => services.agent.config().services.get(&record.name)?,
        ToolSource::Client => {
            return Some(ForwardedCall { awaits: Awaited { cause: WaitCause::Client, event: None }, contract: None });
        }
        _ => return None,
    };
    let data = tool.outgoing(record.effective_arguments(), &run.session).into_owned();
    let contract = ServiceContract::of_service(service, None);
    let request = (service.request(data), service.domain.clone());
    let scope = services.scope(run, Some(SpanKey::Call(&record.id)));
    Some(forward(&scope, &record.id, request, contract, services.now_ms()))
}

/// Returns a description of the result that a call to another agent waits for, or `None` if the call is not to
/// another agent.
fn awaited_agent(services: &SessionServices, record: &CallRecord) -> Option<Awaited> {
    let delegate = services.agent.config().delegates.get(&record.name)?;
    let session = delegate.subject(&services.subject, &record.id);
    Some(Awaited { cause: WaitCause::Agent { session }, event: None })
}
