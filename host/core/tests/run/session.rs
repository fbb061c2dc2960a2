//! A run together with a simulated store, and helpers that create and apply inputs.

use crate::ledger::Ledger;
use agent_core::approval::LastingGrant;
use agent_core::change::{CallResult, Change};
use agent_core::event::{EventKind, WaitCause};
use agent_core::message::{CallId, Content, Digest, TurnInput};
use agent_core::model::Usage;
use agent_core::outgoing_event::{EventAttributes, OutgoingEvent};
use agent_core::plugin::{OutputData, TraceContext};
use agent_core::run::{
    Action, Answerer, Approval, Awaited, Decision, DispatchedCall, Disposition, Input, InputError, LoopConfig, Output,
    OutputVerdict, PromptBudget, ResolvedCall, ResolvedReply, Run, TurnContext, TurnEnd, TurnError,
};
use agent_core::tool::{ToolError, ToolSource, Violation};
use serde_json::{Value, json};

/// A token budget with a large context window, for tests that do not fill the window.
pub(crate) const WIDE: PromptBudget = PromptBudget { window: 100_000, system: 100, tools: 200, reserved: 1_000 };

/// The time of every transition, in milliseconds since the Unix epoch.
pub(crate) const NOW: u64 = 1_000_000;

pub(crate) struct Session {
    pub(crate) run: Run,
    pub(crate) ledger: Ledger,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self { run: Run::new("subject", "agent"), ledger: Ledger::default() }
    }

    /// Returns a session whose first turn waits for the model.
    pub(crate) fn calling(config: LoopConfig) -> Self {
        let mut session = Self::new();
        session.begin(config);
        session
    }

    /// Applies an input and checks three invariants: the same state and input lead to the same change, a refused input
    /// does not change the state, and the snapshot contains the whole state.
    pub(crate) fn apply(&mut self, input: Input) -> Result<Change, InputError> {
        let before = self.run.clone();
        let mut again = restored(&before);
        let result = self.run.apply_at(input.clone(), NOW);
        assert_eq!(again.apply_at(input.clone(), NOW), result, "the same state and input lead to the same change");
        assert_eq!(again, self.run, "the same state and input lead to the same state");
        let change = match result {
            Ok(change) => change,
            Err(refused) => {
                assert_eq!(self.run, before, "a refused input does not change the state");
                return Err(refused);
            }
        };
        let restored = restored(&self.run);
        assert_eq!(restored, self.run, "the snapshot contains the whole state");
        assert_eq!(restored.action(), self.run.action());
        self.ledger.commit(&before, &input, &change);
        Ledger::check_order(&self.run, &change);
        self.ledger.check(&self.run);
        Ok(change)
    }

    /// Applies an input, and fails the test if the input is refused.
    pub(crate) fn must(&mut self, input: Input) -> Change {
        let shown = format!("{input:?}");
        self.apply(input).unwrap_or_else(|refused| panic!("{refused}: {shown}"))
    }

    pub(crate) fn start(&mut self, input: TurnInput, config: LoopConfig) -> Change {
        let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
        let trace = TraceContext { traceparent, tracestate: None };
        self.must(Input::Start { input, config, plugins: Vec::new(), pinned: None, trace })
    }

    pub(crate) fn context(&mut self, context: TurnContext) -> Change {
        self.must(Input::Context { context })
    }

    /// Begins a turn with a text input and without a context builder, up to the first model call.
    pub(crate) fn begin(&mut self, config: LoopConfig) -> Change {
        self.start(TurnInput::Text("How many?".into()), config);
        self.context(TurnContext { budget: WIDE, ..Default::default() })
    }

    pub(crate) fn reply(&mut self, text: &str, calls: Vec<ResolvedCall>) -> Change {
        self.must(Input::Reply(reply(text, calls)))
    }

    /// Dispatches all calls that may run, and returns their ids.
    pub(crate) fn dispatch(&mut self) -> Vec<CallId> {
        let Action::Dispatch(dispatches) = self.run.action() else { panic!("{:?}", self.run.action()) };
        let calls: Vec<CallId> = dispatches.into_iter().map(|dispatch| dispatch.call).collect();
        self.must(dispatched(&calls));
        calls
    }

    pub(crate) fn outcome(&mut self, call: &str, text: &str) -> Change {
        self.must(outcome(call, text))
    }

    /// Dispatches calls, each with the result `ok`, until no call of the batch can be dispatched. Returns the
    /// last change.
    pub(crate) fn run_batch(&mut self) -> Change {
        let mut change = Change::default();
        while let Action::Dispatch(_) = self.run.action() {
            for call in self.dispatch() {
                change = self.outcome(&call.0, "ok");
            }
        }
        change
    }

    /// Dispatches the calls that may run now, and records the result `ok` for each of them. A loop-breaking
    /// call that must wait for other calls is not dispatched.
    pub(crate) fn run_others(&mut self) {
        for call in self.dispatch() {
            self.outcome(&call.0, "ok");
        }
    }

    pub(crate) fn accept(&mut self, data: OutputData) -> Change {
        self.must(Input::Verdict(OutputVerdict::Accepted(data)))
    }

    pub(crate) fn reject(&mut self, message: &str) -> Change {
        self.must(rejected(message))
    }

    /// Replies with an answer that is accepted unchanged.
    pub(crate) fn answer(&mut self, text: &str) -> Change {
        self.reply(text, Vec::new());
        self.accept(OutputData::Text(text.into()))
    }

    pub(crate) fn resolve(&mut self, call: &str, decision: Decision) -> Change {
        self.must(Input::Resolve { call: CallId(call.into()), decision })
    }

    /// Simulates a crash: another host restores the state.
    pub(crate) fn crash(&mut self) -> Change {
        self.run = restored(&self.run);
        self.must(Input::Recover)
    }

    /// Returns, for each message in the view, the number of model calls whose prompt contained the message. The oldest
    /// message comes first.
    pub(crate) fn seen_counts(&self) -> Vec<u32> {
        self.run.view.iter().map(|entry| self.run.seen_count(entry)).collect()
    }

    pub(crate) fn output(&self) -> Output {
        match self.run.turn.as_ref().and_then(|turn| turn.end()) {
            Some(TurnEnd::Finished(output)) => output.clone(),
            other => panic!("no output: {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> TurnError {
        match self.run.turn.as_ref().and_then(|turn| turn.end()) {
            Some(TurnEnd::Failed(error)) => error.clone(),
            other => panic!("no error: {other:?}"),
        }
    }
}

/// Restores the run from its serialized state, as a host does from its store.
pub(crate) fn restored(run: &Run) -> Run {
    Run::restore(Some(&run.snapshot())).expect("the state can be restored")
}

pub(crate) fn reply(text: &str, calls: Vec<ResolvedCall>) -> ResolvedReply {
    ResolvedReply {
        text: text.into(),
        calls,
        stop: agent_core::model::StopReason::Stop,
        model: "scripted/one".into(),
        usage: Usage::new(100, 10),
        replay: None,
        masks: Vec::new(),
        saved_tokens: 0,
        unreadable: Vec::new(),
        written: String::new(),
        plan: None,
    }
}

pub(crate) fn dispatched(calls: &[CallId]) -> Input {
    let calls = calls.iter().map(|call| DispatchedCall::running(call.clone(), json!({})));
    Input::Dispatched { calls: calls.collect() }
}

/// Returns the input that reports that these calls were sent to a service.
pub(crate) fn sent_to_service(calls: &[CallId]) -> Input {
    let service = || WaitCause::Service { event_type: "com.example.work".into(), expires_at: None, emits: None };
    let dispatched_call = |call: &CallId| {
        let awaits = Some(waiting_for(call, service()));
        DispatchedCall { awaits, ..DispatchedCall::running(call.clone(), json!({})) }
    };
    Input::Dispatched { calls: calls.iter().map(dispatched_call).collect() }
}

/// Returns a wait with this cause, together with the event that requests the response for which the call waits.
pub(crate) fn waiting_for(call: &CallId, cause: WaitCause) -> Awaited {
    let attributes = EventAttributes {
        id: call.0.clone(),
        source: "agent-host/agent".into(),
        subject: "subject".into(),
        time: None,
        domain: None,
        trace: TraceContext { traceparent: "00-a-b-01".into(), tracestate: None },
    };
    let event =
        OutgoingEvent::to_service(&"com.example.work".parse().expect("the type is valid"), attributes, json!({}));
    Awaited { cause, event: Some(event) }
}

/// Returns a response from the sender for which the call waits, or from a service if the call is not waiting.
pub(crate) fn respond_to(run: &Run, call: CallId, result: CallResult) -> Input {
    let cause = run.waits().into_iter().find(|wait| wait.call == call).map(|wait| wait.cause);
    let from = match cause {
        Some(WaitCause::Agent { .. }) => Answerer::Agent,
        Some(WaitCause::Answer { .. }) => Answerer::User,
        Some(WaitCause::Client) => Answerer::Client,
        _ => Answerer::Service,
    };
    Input::Respond { call, from, result }
}

/// Returns a grant that allows calls to the tool with this name.
pub(crate) fn grant(tool: &str) -> LastingGrant {
    let digest = Digest::from_sha256([7; 32]);
    LastingGrant { agent: "agent".into(), tool: tool.into(), digest, arguments: None, scope: None }
}

pub(crate) fn outcome(call: &str, text: &str) -> Input {
    Input::Outcome { call: CallId(call.into()), result: result(text) }
}

pub(crate) fn rejected(message: &str) -> Input {
    let problem = Violation { pointer: "/n".into(), rule: Some("type".into()), message: message.into() };
    Input::Verdict(OutputVerdict::Rejected { by: "output schema".into(), problems: vec![problem] })
}

pub(crate) fn result(text: &str) -> CallResult {
    let content = vec![Content::Text(text.into())];
    CallResult { content, ..Default::default() }
}

pub(crate) fn call(name: &str, disposition: Disposition) -> ResolvedCall {
    let arguments: Value = json!({"of": name});
    let (source, approval) = (Some(ToolSource::BuiltIn), Approval::NotNeeded);
    ResolvedCall { name: name.into(), arguments, source, disposition, approval }
}

/// Returns a call that may run in parallel, has priority 0, and must not be repeated without asking the user.
pub(crate) fn plain(name: &str) -> ResolvedCall {
    call(name, Disposition::Ready { priority: 0, sequential: false, repeatable: false })
}

/// Returns a call that does not run and whose result is an error with this message.
pub(crate) fn refused(name: &str, message: &str) -> ResolvedCall {
    call(name, Disposition::Refused(ToolError::Failed { message: message.into() }))
}

pub(crate) fn repeatable(name: &str) -> ResolvedCall {
    call(name, Disposition::Ready { priority: 0, sequential: false, repeatable: true })
}

pub(crate) fn sequential(name: &str) -> ResolvedCall {
    call(name, Disposition::Ready { priority: 0, sequential: true, repeatable: false })
}

pub(crate) fn of_priority(name: &str, priority: i32) -> ResolvedCall {
    call(name, Disposition::Ready { priority, sequential: false, repeatable: false })
}

/// Returns the text of a call's result, and whether the result is an error.
pub(crate) fn text_of(session: &Session, call: &str) -> (String, bool) {
    let result = session.ledger.call(&CallId(call.into())).record.result.clone().expect("the call has a result");
    let texts = result.content.iter().map(|content| match content {
        Content::Text(text) => text.as_str(),
        other => panic!("{other:?}"),
    });
    (texts.collect::<Vec<_>>().join("\n"), result.is_error)
}

/// Returns the `type` of each event in a change, as the type is written in JSON.
pub(crate) fn kinds(change: &Change) -> Vec<String> {
    change.events.iter().map(|event| kind(&event.kind)).collect()
}

pub(crate) fn kind(kind: &EventKind) -> String {
    let json = serde_json::to_value(kind).expect("the event can be serialized");
    json["type"].as_str().expect("events are tagged with their type").to_owned()
}
