//! Starts and continues turns of a session.

use super::driver::drive;
use crate::agent::{UserName, pinned};
use crate::host::SessionServices;
use crate::records::{CommitNotes, StepRecordBody, TraceRecord};
use crate::session::{Session, SessionError, TurnResult};
use agent_core::message::TurnInput;
use agent_core::plugin::TraceContext;
use agent_core::run::{Input, InputError, LoopConfig, Run};
use agent_core::trace::TurnName;
use futures::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Target of the tracing spans of turns, which have the fields `agent`, `session`, `turn` and `trace_id`.
pub const TURN_SPANS: &str = "agent_host::turn";

/// Where the limits of a turn come from.
#[expect(clippy::large_enum_variant, reason = "each turn has one value, which is consumed when the turn begins")]
pub(super) enum TurnBounds {
    /// The limits come from the configuration of the turn's agent.
    OfAgent,
    /// The turn does the work of a call that another turn has delegated. The limits come from the turn's agent, but the
    /// delegating turn may have lowered the maximum depth of delegation.
    OfParent(LoopConfig),
}

impl Session {
    /// Starts a turn with the input, or continues the open turn if there is no input. Returns when the turn ends
    /// or waits.
    ///
    /// Cancellation stops the turn within 100 ms and leaves a session that can continue (L29). When the process shuts
    /// down ([`Host::leaving`](crate::Host::leaving)), the turn also stops within 100 ms, but the turn stays open. MCP
    /// servers are connected for the duration of the call and released when the turn ends, fails or waits (I5).
    pub async fn run(
        &mut self,
        input: Option<TurnInput>,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        if let Some(input) = input {
            let parent = self.incoming_trace(&input);
            // The future of a turn is large, so it is not kept on the stack of the caller.
            return self.begin((input, None), TurnBounds::OfAgent, parent, cancel).boxed().await;
        }
        self.require_stored_state()?;
        // Dropping `_servers` releases the servers. `_servers` is dropped when the turn ends or waits, when an error
        // occurs, and when the caller drops the future.
        let _servers = match self.run.is_open() {
            true => self.connect(self.services.agent.clone(), &cancel).await?,
            false => None,
        };
        self.held_servers = None;
        if self.was_interrupted {
            self.recover().await?;
        }
        self.services.ledger.begin(&self.run);
        prepare_plugins(&self.services, &cancel).await;
        let result = self.drive_in_span(&cancel).await;
        self.release_turn();
        result
    }

    /// Starts a turn that works for the given user instead of the user in the agent's configuration. The turn keeps
    /// this user even if another process continues the turn (D4).
    pub async fn run_for(
        &mut self,
        user: UserName,
        input: TurnInput,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        let parent = self.incoming_trace(&input);
        self.begin((input, Some(user)), TurnBounds::OfAgent, parent, cancel).boxed().await
    }

    /// Starts a turn that has the limits `bounds`. The turn belongs to the trace of `parent`, or begins a trace.
    pub(super) async fn begin(
        &mut self,
        (input, user): (TurnInput, Option<UserName>),
        bounds: TurnBounds,
        parent: Option<TraceContext>,
        cancel: CancellationToken,
    ) -> Result<TurnResult, SessionError> {
        let client_tools = std::mem::take(&mut self.client_tools);
        if self.run.is_open() {
            return Err(InputError::TurnOpen(self.run.turns).into());
        }
        // The current agent is read only once, so that the turn never mixes the plugins of two generations.
        let _servers = self.connect(self.services.live.current(), &cancel).await?;
        if let Some(user) = user {
            self.use_agent(self.services.agent.for_user(Some(user.as_str()))?);
        }
        self.use_agent(self.services.agent.for_input(&input)?);
        self.use_agent(self.services.agent.with_client_tools(client_tools)?);
        let (plugins, pinned) = (self.services.agent.pins(), Some(pinned::pins_of(&self.services.agent)));
        let components = plugins.iter().map(|pin| (pin.name.clone(), pin.digest.clone())).collect();
        // The list of the turn's components is stored before the turn itself. If the turn is never stored, this list
        // has no effect (row 38).
        self.services.store.record_turn_plugins(&self.services.agent.config().record_name(), components).await?;
        self.approvals().bind_rules().await?;
        let config = match bounds {
            TurnBounds::OfAgent => self.services.agent.bounds(),
            TurnBounds::OfParent(config) => LoopConfig { user: self.services.agent.config().user.clone(), ..config },
        };
        let (trace, notes) = self.turn_trace(parent);
        self.apply(Input::Start { input, config, plugins, pinned, trace }, notes).await?;
        self.services.ledger.begin(&self.run);
        prepare_plugins(&self.services, &cancel).await;
        let result = self.drive_in_span(&cancel).await;
        self.release_turn();
        result
    }

    /// Drives the open turn. The lines that the host logs meanwhile name the turn and its trace.
    async fn drive_in_span(&mut self, cancel: &CancellationToken) -> Result<TurnResult, SessionError> {
        let (agent, session, turn) = (self.services.agent.config().name.clone(), &self.run.session, self.run.turns);
        let trace = self.run.turn.as_ref().and_then(|turn| turn.trace.trace_id());
        let trace_id = trace.map(|id| format!("{:032x}", u128::from_be_bytes(id))).unwrap_or_default();
        let span = tracing::error_span!(target: TURN_SPANS, "turn", agent, session, turn, trace_id);
        drive(self, cancel).instrument(span).await
    }

    /// Returns the trace context of the next turn, and the record of it that is committed with the turn's input (O1).
    fn turn_trace(&self, parent: Option<TraceContext>) -> (TraceContext, CommitNotes) {
        let Run { session, id_ending, turns, next_message, .. } = &self.run;
        let number = turns.saturating_add(1);
        let trace = TraceContext::of_turn(TurnName { session, id_ending, turn: number }, parent.as_ref());
        let parent = parent.filter(TraceContext::is_valid).map(|parent| parent.traceparent);
        let record = TraceRecord { turn: trace.clone(), parent, first_message: *next_message };
        let record = StepRecordBody::Trace(record).into_record(number, 0);
        (trace, CommitNotes { records: vec![record], ..CommitNotes::default() })
    }

    /// If the turn has ended, releases its resources, including its generation of plugins.
    fn release_turn(&mut self) {
        if !self.run.is_open() {
            self.held_requests.clear();
            self.use_agent(self.services.live.current());
        }
    }
}

/// Loads the compiled code that counts fuel, for those plugins whose fuel is limited. The code is loaded before the
/// plugins are called, so that the time for compiling does not count towards the time limits of the calls. If compiling
/// fails, the failure is only logged here as a warning, because a later call of the plugin reports the reason to
/// the session.
async fn prepare_plugins(services: &SessionServices, cancel: &CancellationToken) {
    for setup in services.agent.setups().values() {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            prepared = services.sandbox.prepare(setup) => {
                if let Err(problem) = prepared {
                    tracing::warn!("{problem}");
                }
            }
        }
    }
}
