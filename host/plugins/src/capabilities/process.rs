//! The process environment of a plugin call: variables, arguments, standard streams, clocks and random numbers.

mod clock;
mod environment;
mod linker;
pub(crate) mod program;
mod random;
pub(crate) mod stdio;

pub(crate) use linker::add_to_linker;

use super::{CallContext, CapabilityView};
use crate::grants::Grants;
use crate::identity::Authority;
use crate::recording::guest_log::Source;
use crate::recording::replay_inputs::ReplayInputs;
use agent_core::plugin::TraceContext;
use clock::{CallClock, StoppedClock};
use program::Program;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, OnceLock};
use stdio::GuestStream;
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};

/// Bytes that replace random bytes in calls without authority. The guest receives this sequence over and over.
const REPEATED_BYTES: [u8; 8] = *b"repeated";

/// The process environment of one call.
pub(crate) struct ProcessState {
    /// The WASI context. The context is created when the guest first needs it, because most guests never need a
    /// WASI context.
    context: Option<Box<WasiCtx>>,
    inputs: ProcessInputs,
    /// Number of random bytes that the call may still read.
    random_left: u64,
    /// Number of recorded random bytes that a replayed call has read so far.
    random_replayed: usize,
}

/// The inputs from which the process environment is created.
pub(crate) struct ProcessInputs {
    /// The grants at the start of the call.
    pub(crate) granted: Arc<Grants>,
    /// The command-line program that the call runs. `None` means that the call runs a function.
    pub(crate) program: Option<Arc<Program>>,
    pub(crate) trace: Trace,
    /// The recorded inputs of a replay. `None` means that the call is not a replay.
    pub(crate) replay: Option<Arc<ReplayInputs>>,
}

type ProcessView<'a> = CapabilityView<'a, ProcessState>;

/// The W3C trace context of a call (P5), and the way in which the guest receives it. If the call has a trace context,
/// the host adds the trace context to all HTTP requests of the guest.
#[derive(Clone, Debug, Default)]
pub(crate) enum Trace {
    /// The call has no trace context.
    #[default]
    None,
    /// The guest receives the trace context in the request, as the plugin contract defines it.
    InRequest(TraceContext),
    /// The guest is a generic function or a program, and receives the trace context in the environment variables
    /// `TRACEPARENT` and `TRACESTATE`.
    InEnvironment(TraceContext),
}

impl Trace {
    pub(crate) fn context(&self) -> Option<&TraceContext> {
        match self {
            Trace::None => None,
            Trace::InRequest(context) | Trace::InEnvironment(context) => Some(context),
        }
    }

    fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let context = if let Trace::InEnvironment(context) = self { Some(context) } else { None };
        let parent = context.map(|context| ("TRACEPARENT", context.traceparent.as_str()));
        let state = context.and_then(|context| Some(("TRACESTATE", context.tracestate.as_deref()?)));
        parent.into_iter().chain(state).filter(|(_, value)| !value.is_empty())
    }
}

impl ProcessState {
    pub(crate) fn new(call: &CallContext, inputs: ProcessInputs) -> Self {
        Self { context: None, inputs, random_left: call.record.limits.random, random_replayed: 0 }
    }

    /// The trace context of the call, which is added to the call's HTTP requests.
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        self.inputs.trace.context()
    }

    /// The context that the functions of wasmtime-wasi use.
    pub(crate) fn context(&mut self, call: &CallContext) -> &mut WasiCtx {
        let inputs = &self.inputs;
        self.context.get_or_insert_with(|| Box::new(wasi_context(call, inputs)))
    }
}

/// Builds a WASI context without preopened directories, because the capability `files` provides the
/// granted directories.
fn wasi_context(call: &CallContext, inputs: &ProcessInputs) -> WasiCtx {
    let ProcessInputs { granted, program, trace, replay } = inputs;
    let record = &call.record;
    let mut builder = WasiCtxBuilder::new();
    let stream = |source| GuestStream { record: Arc::clone(record), source };
    builder
        .stdout(stream(Source::Stdout))
        .stderr(stream(Source::Stderr))
        .max_random_size(record.limits.random)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    match call.authority {
        Authority::Granted => {
            let recorded_start = replay.as_ref().and_then(|replay| replay.time);
            builder.wall_clock(CallClock { record: Arc::clone(record), recorded_start, first_read: OnceLock::new() });
            builder.insecure_random_seed(seed_of(&call.session, &record.call));
            for (name, value) in &granted.env {
                builder.env(name, value);
            }
            for (name, value) in trace.variables().filter(|(name, _)| !granted.env.contains_key(*name)) {
                builder.env(name, value);
            }
        }
        Authority::Inert => {
            builder
                .wall_clock(StoppedClock)
                .monotonic_clock(StoppedClock)
                .secure_random(Deterministic::new(REPEATED_BYTES.to_vec()))
                .insecure_random(Deterministic::new(REPEATED_BYTES.to_vec()))
                .insecure_random_seed(0);
        }
    }
    if let Some(program) = program {
        program.connect(record, &mut builder);
    }
    builder.build()
}

/// The seed for the guest's hash maps. Each call has a different seed, but all attempts of one call have the same seed,
/// so that a retry iterates over hash maps in the same order.
fn seed_of(session: &str, call: &str) -> u128 {
    let hash = Sha256::new().chain_update(session).chain_update("/").chain_update(call).finalize();
    hash.iter().take(16).fold(0, |seed, byte| seed << 8 | u128::from(*byte))
}
