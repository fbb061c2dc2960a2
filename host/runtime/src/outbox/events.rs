//! Outgoing events about the end of a session's turns (I6).

use crate::history::{LoadedHistory, output_for_event};
use crate::host::SessionServices;
use agent_core::change::{Change, OutboxEffect, OutboxItem};
use agent_core::cost::TurnCost;
use agent_core::event_type::HostEventType;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::Scope;
use agent_core::run::{Emission, Run, TurnEnd};
use agent_store::StoreError;
use jiff::Timestamp;
use serde_json::{Value, json};

/// If the change ends a turn and the agent is configured to announce the end of turns, adds the event about the end of
/// the turn. `before` and `after` are the states of the run before and after the change.
pub(crate) async fn announce_end(
    services: &SessionServices,
    history: &mut LoadedHistory,
    (before, after): (&Run, &Run),
    change: &mut Change,
) -> Result<(), StoreError> {
    let Some(turn) = after.turn.as_ref().filter(|turn| turn.config.announced.completions == Emission::Emitted) else {
        return Ok(());
    };
    let Some(end) = turn.end().filter(|_| before.is_open()) else { return Ok(()) };
    let (event_type, data) = match end {
        TurnEnd::Finished(output) => {
            let mut output = output.clone();
            if services.agent.config().include_history {
                output.messages = Some(history.conversation(after, change).await?);
            }
            (HostEventType::TurnFinished, output_for_event(&output))
        }
        TurnEnd::Failed(error) => (HostEventType::TurnFailed, with_cost(error.details(), turn.cost())),
        TurnEnd::Cancelled => (HostEventType::TurnCancelled, with_cost(json!({}), turn.cost())),
    };
    let id = before.unique_id(&format!("turn_{}", after.turns));
    let event = OutgoingEvent::of_host(event_type, attributes(&services.scope(before, None), id.clone()), data);
    change.outbox.push(OutboxItem { id, effect: OutboxEffect::Event(event) });
    Ok(())
}

/// Adds the cost of a failed or cancelled turn to the data of the event about the turn's end. The output of a
/// finished turn already contains the cost.
fn with_cost(mut data: Value, cost: TurnCost) -> Value {
    if let (Value::Object(data), Value::Object(cost)) = (&mut data, json!(cost)) {
        data.extend(cost);
    }
    data
}

/// Returns the event attributes that the host sets on every outgoing event of a session.
pub(crate) fn attributes(scope: &Scope, id: String) -> EventAttributes {
    EventAttributes {
        id,
        source: source(&scope.agent),
        subject: scope.session.clone(),
        time: Some(Timestamp::now().to_string()),
        domain: None,
        trace: scope.trace.clone(),
    }
}

/// Returns an event's `source` attribute, which is a URI reference. Characters of the agent's name that are not allowed
/// in a URI reference are percent-encoded.
fn source(agent: &str) -> String {
    let bytes = agent.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    format!("agent-host/{}", bytes.collect::<String>())
}
