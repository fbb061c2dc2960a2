//! Tells the embedder what happens in the sessions of a process, so that it can export traces, count metrics and write logs
//! (O1, O2).

use crate::agent::Agent;
use agent_core::event::Event;
use agent_core::plugin::TraceContext;
use agent_core::tool::ToolSource;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that has happened.
#[derive(Clone, Copy)]
pub enum Observation<'a> {
    /// A session has committed a change. The events are stored.
    Committed(CommittedEvents<'a>),
    /// An attempt to call a model has ended.
    ModelCall(ObservedModelCall<'a>),
    /// A request was refused because of its sender. Refused requests of the same kind are observed one by one, although they
    /// share entries of the audit log.
    Refused {
        /// The protocol of the request, such as `http`.
        protocol: &'static str,
        /// Code for the reason, such as `unauthorized`.
        code: &'static str,
    },
}

/// The events of a commit.
#[derive(Clone, Copy)]
pub struct CommittedEvents<'a> {
    /// Configured name of the agent.
    pub agent: &'a str,
    /// Subject of the session.
    pub session: &'a str,
    /// The trace of the open turn, or of the turn that the commit has ended. `None` if the session has no turn.
    pub trace: Option<&'a TraceContext>,
    /// The durable events of the commit, in order.
    pub events: &'a [Event],
    pub(crate) tools: &'a Agent,
}

/// An attempt to call a model.
#[derive(Clone, Copy, Debug)]
pub struct ObservedModelCall<'a> {
    /// Configured name of the agent.
    pub agent: &'a str,
    /// The model, as `provider/model`.
    pub model: &'a str,
    /// How the attempt ended.
    pub ending: ModelCallEnding,
    /// Time from the request until the reply was complete or the attempt failed.
    pub time: Duration,
    /// Time from the request until the first piece of the reply. `None` if the reply was not streamed.
    pub first_piece: Option<Duration>,
}

/// How an attempt to call a model ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelCallEnding {
    /// The reply is complete.
    Replied,
    /// The attempt failed. It may succeed if it is repeated.
    FailedTemporarily,
    /// The attempt failed, and would fail again.
    FailedPermanently,
}

impl CommittedEvents<'_> {
    /// Returns where a tool comes from. `None` if the tool does not exist.
    pub fn source_of(&self, tool: &str) -> Option<ToolSource> {
        self.tools.registry().source_of(tool).cloned()
    }
}

/// A function that is called when something has happened. It must return immediately, because the turn waits for it.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Observation<'_>) + Send + Sync>);

impl Observer {
    /// Creates an observer that calls this function.
    pub fn new(observe: impl Fn(&Observation<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn observe(&self, observation: &Observation<'_>) {
        (self.0)(observation);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Observer")
    }
}
