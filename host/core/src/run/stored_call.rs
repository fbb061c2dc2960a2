//! The stored form of a call in its batch. In the stored form, all fields are at the same level, as in the first
//! version of the format. In memory, the fields that are only valid in one state of the call are part of that
//! state's variant.

use super::batch::{BatchCall, CallProgress};
use super::input::UnapprovedRequest;
use super::repetition::CallEnd;
use crate::approval::Authorization;
use crate::event::WaitCause;
use crate::loop_break::LoopBreak;
use crate::message::{CallId, Digest};
use crate::tool::CallCost;
use serde::{Deserialize, Serialize};

/// The form in which a [`BatchCall`] is stored.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredCall {
    id: CallId,
    name: String,
    sequential: bool,
    repeatable: bool,
    attempt: u32,
    state: StoredProgress,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    awaits: Option<WaitCause>,
    #[serde(default)]
    answered: bool,
    #[serde(default, rename = "asked_about", skip_serializing_if = "Option::is_none")]
    approval_identity: Option<Digest>,
    #[serde(default, rename = "granted", skip_serializing_if = "Option::is_none")]
    authorization: Option<Authorization>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<UnapprovedRequest>,
    #[serde(default, rename = "spent")]
    spent_cost: CallCost,
    #[serde(default)]
    arguments: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<CallEnd>,
    #[serde(default, rename = "breaks", skip_serializing_if = "Option::is_none")]
    loop_break: Option<LoopBreak>,
}

/// The form in which a [`CallProgress`] is stored.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredProgress {
    Waiting,
    #[serde(rename = "asking")]
    AwaitingApproval,
    Running,
    Outstanding,
    #[serde(rename = "unknown")]
    OutcomeUnknown,
    Checking,
    #[serde(rename = "done")]
    Finished {
        tokens: u32,
    },
}

/// Why a stored call cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the stored call {0} is waiting, but does not state what it waits for")]
pub(super) struct NoWaitCause(CallId);

impl TryFrom<StoredCall> for BatchCall {
    type Error = NoWaitCause;

    fn try_from(stored: StoredCall) -> Result<Self, NoWaitCause> {
        let state = match stored.state {
            StoredProgress::Waiting => CallProgress::Waiting,
            StoredProgress::AwaitingApproval => CallProgress::AwaitingApproval { identity: stored.approval_identity },
            StoredProgress::Running => CallProgress::Running,
            StoredProgress::Outstanding => match stored.awaits {
                Some(awaits) => CallProgress::Outstanding { awaits },
                None => return Err(NoWaitCause(stored.id)),
            },
            StoredProgress::OutcomeUnknown => CallProgress::OutcomeUnknown,
            StoredProgress::Checking => CallProgress::Checking,
            StoredProgress::Finished { tokens } => {
                CallProgress::Finished { tokens, end: stored.end, answered: stored.answered }
            }
        };
        Ok(Self {
            id: stored.id,
            name: stored.name,
            sequential: stored.sequential,
            repeatable: stored.repeatable,
            attempt: stored.attempt,
            state,
            authorization: stored.authorization,
            request: stored.request,
            spent_cost: stored.spent_cost,
            arguments: stored.arguments,
            loop_break: stored.loop_break,
        })
    }
}

impl From<BatchCall> for StoredCall {
    fn from(call: BatchCall) -> Self {
        let (mut awaits, mut approval_identity, mut end, mut answered) = (None, None, None, false);
        let state = match call.state {
            CallProgress::Waiting => StoredProgress::Waiting,
            CallProgress::AwaitingApproval { identity } => {
                approval_identity = identity;
                StoredProgress::AwaitingApproval
            }
            CallProgress::Running => StoredProgress::Running,
            CallProgress::Outstanding { awaits: cause } => {
                awaits = Some(cause);
                StoredProgress::Outstanding
            }
            CallProgress::OutcomeUnknown => StoredProgress::OutcomeUnknown,
            CallProgress::Checking => StoredProgress::Checking,
            CallProgress::Finished { tokens, end: call_end, answered: was_answered } => {
                (end, answered) = (call_end, was_answered);
                StoredProgress::Finished { tokens }
            }
        };
        Self {
            id: call.id,
            name: call.name,
            sequential: call.sequential,
            repeatable: call.repeatable,
            attempt: call.attempt,
            state,
            awaits,
            answered,
            approval_identity,
            authorization: call.authorization,
            request: call.request,
            spent_cost: call.spent_cost,
            arguments: call.arguments,
            end,
            loop_break: call.loop_break,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(state: serde_json::Value) -> serde_json::Value {
        let mut call = json!({
            "id": "call_1_1_1", "name": "a", "sequential": false, "repeatable": false, "attempt": 1,
            "answered": false, "spent": CallCost::default(), "arguments": 7,
        });
        call.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
        call
    }

    // L1: in every state of a call, its stored form is the same as in the first version of the format.
    #[test]
    fn l1_each_state_is_stored_as_it_was_read() {
        for state in [
            json!({"state": "waiting", "breaks": "ask"}),
            json!({"state": "asking", "asked_about": Digest::from_sha256([7; 32])}),
            json!({"state": "asking"}),
            json!({"state": "running"}),
            json!({"state": "outstanding", "awaits": {"cause": "agent", "session": "s"}}),
            json!({"state": "unknown"}),
            json!({"state": "checking"}),
            json!({"state": {"done": {"tokens": 3}}, "end": "succeeded", "answered": true}),
            json!({"state": {"done": {"tokens": 3}}}),
        ] {
            let stored = call(state);
            let read: BatchCall = serde_json::from_value(stored.clone()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), stored);
        }
    }

    // L1, D3: a state that no transition produces is refused.
    #[test]
    fn l1_an_outstanding_call_without_a_cause_is_refused() {
        let error = serde_json::from_value::<BatchCall>(call(json!({"state": "outstanding"}))).unwrap_err();
        assert_eq!(error.to_string(), "the stored call call_1_1_1 is waiting, but does not state what it waits for");
    }
}
