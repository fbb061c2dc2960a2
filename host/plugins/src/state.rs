//! The data of one call's store: its authority, its limits, and the host's side of its handles.

use crate::bindings::wasi::{config, logging};
use crate::grants::{Grants, TreeGrant, config_advice, config_thing};
use crate::host_model::ModelPort;
use crate::http::{HttpPort, KnownSecrets, Network, Outgoing};
use crate::identity::Authority;
use crate::in_force::{CurrentGrants, GrantsInForce};
use crate::key_value::KeyValuePort;
use crate::limits::Limit;
use crate::logging::{GuestStream, Source};
use crate::manifest::Access;
use crate::media::{MediaPort, Then};
use crate::plain::command::Program;
use crate::record::CallRecord;
use crate::sandbox::Shared;
use crate::stopped::StoppedCalls;
use crate::trees::{CallTree, Circumstances, Handles, TreeError, TreeHost, TurnKey};
use agent_core::plugin::TraceContext;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wasmtime::ResourceLimiter;
use wasmtime::component::{Resource, ResourceTable, ResourceTableError};
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// A file tree that cannot be given to the guest.
#[derive(Debug, thiserror::Error)]
#[error("the granted directory {guest:?} ({}) cannot be opened: {reason}", host.display())]
pub struct TreeProblem {
    /// As the user wrote it.
    pub guest: String,
    /// Where it should be.
    pub host: std::path::PathBuf,
    /// The grant's line in agent.toml.
    pub line: String,
    /// What the system said.
    pub reason: String,
}

impl TreeProblem {
    pub(crate) fn new(tree: &TreeGrant, error: &TreeError) -> Self {
        let key = match tree.access {
            Access::Read => "read",
            Access::ReadWrite => "write",
        };
        Self {
            guest: tree.guest.clone(),
            host: tree.host.clone(),
            line: format!("{key} = [{:?}]", tree.guest),
            reason: error.to_string(),
        }
    }
}

pub(crate) struct CallState {
    pub(crate) record: Arc<CallRecord>,
    pub(crate) table: ResourceTable,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) media: Option<Arc<dyn MediaPort>>,
    pub(crate) key_value: Option<Arc<dyn KeyValuePort>>,
    pub(crate) model: Option<Arc<dyn ModelPort>>,
    /// Values that the guest holds for a swap.
    pub(crate) seen_values: usize,
    /// Bytes of media in the making.
    pub(crate) growing_bytes: usize,
    authority: Authority,
    program: Option<Arc<Program>>,
    trace: Trace,
    /// What the call began with. What still holds of it is `in_force`.
    begun_with: Arc<Grants>,
    pub(crate) in_force: Arc<GrantsInForce>,
    /// The granted trees, in the order of the grants.
    pub(crate) trees: Vec<Arc<CallTree>>,
    pub(crate) handles: Handles,
    network: Arc<Network>,
    http_port: Option<Arc<dyn HttpPort>>,
    then: Option<Arc<Then>>,
    http: Option<Box<(WasiHttpCtx, Outgoing)>>,
    /// Made when the guest first uses it, which most calls never do.
    wasi: Option<Box<WasiCtx>>,
    random_left: u64,
    /// Random numbers that were drawn again, in bytes.
    random_drawn: usize,
    memory: usize,
    /// The growth that the engine was allowed last, as long as it may still fail.
    growth: usize,
}

/// What a call may reach.
#[derive(Clone)]
pub(crate) struct Reach {
    pub(crate) authority: Authority,
    pub(crate) grants: Arc<Grants>,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) media: Option<Arc<dyn MediaPort>>,
    /// The command-line program that the call runs.
    pub(crate) program: Option<Arc<Program>>,
    pub(crate) key_value: Option<Arc<dyn KeyValuePort>>,
    pub(crate) model: Option<Arc<dyn ModelPort>>,
    pub(crate) http: Option<Arc<dyn HttpPort>>,
    pub(crate) then: Option<Arc<Then>>,
    /// What the agent grants at each moment, so that a revocation ends what the call may do.
    pub(crate) current: Option<Arc<dyn CurrentGrants>>,
    /// Takes the call's denials if it is stopped.
    pub(crate) stopped: Option<Arc<StoppedCalls>>,
    /// Number of the turn in its session.
    pub(crate) turn: u32,
    pub(crate) trace: Trace,
    /// What must not come back to the guest.
    pub(crate) secrets: Arc<KnownSecrets>,
}

/// The W3C trace context of a call (P5), and how the guest learns it. Its requests carry it in any case.
#[derive(Clone, Debug, Default)]
pub(crate) enum Trace {
    /// There is none.
    #[default]
    None,
    /// From the contract's records.
    Told(TraceContext),
    /// From `TRACEPARENT` and `TRACESTATE` in its environment: plain functions and programs have no records for it.
    InEnvironment(TraceContext),
}

impl Trace {
    pub(crate) fn context(&self) -> Option<&TraceContext> {
        match self {
            Trace::None => None,
            Trace::Told(context) | Trace::InEnvironment(context) => Some(context),
        }
    }

    fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let context = if let Trace::InEnvironment(context) = self { Some(context) } else { None };
        let parent = context.map(|context| ("TRACEPARENT", context.traceparent.as_str()));
        let state = context.and_then(|context| Some(("TRACESTATE", context.tracestate.as_deref()?)));
        parent.into_iter().chain(state).filter(|(_, value)| !value.is_empty())
    }
}

impl Reach {
    /// Nothing at all.
    pub(crate) fn nothing(authority: Authority) -> Self {
        Self {
            authority,
            grants: Arc::default(),
            agent: String::new(),
            session: String::new(),
            media: None,
            key_value: None,
            model: None,
            http: None,
            then: None,
            current: None,
            stopped: None,
            turn: 0,
            program: None,
            trace: Trace::None,
            secrets: Arc::default(),
        }
    }
}

impl CallState {
    /// Granted trees are opened here, so that a missing one is known before the guest runs.
    pub(crate) fn new(record: Arc<CallRecord>, reach: Reach, shared: &Shared) -> Result<Self, TreeProblem> {
        let mut table = ResourceTable::new();
        table.set_max_capacity(record.limits.handles);
        let random_left = record.limits.random;
        let turn = TurnKey { agent: reach.agent.clone(), session: reach.session.clone(), turn: reach.turn };
        let in_force = GrantsInForce::new(&record.plugin.name, Arc::clone(&reach.grants), reach.current);
        let mut state = Self {
            record,
            table,
            agent: reach.agent,
            session: reach.session,
            media: reach.media,
            key_value: reach.key_value,
            model: reach.model,
            seen_values: 0,
            growing_bytes: 0,
            authority: reach.authority,
            begun_with: reach.grants,
            in_force: Arc::new(in_force),
            trees: Vec::new(),
            handles: Handles::default(),
            program: reach.program,
            trace: reach.trace,
            network: Arc::clone(&shared.network),
            http_port: reach.http,
            then: reach.then,
            random_drawn: 0,
            http: None,
            wasi: None,
            random_left,
            memory: 0,
            growth: 0,
        };
        if state.authority == Authority::Granted && !state.begun_with.trees.is_empty() {
            state.trees = state.open_trees(&shared.trees, &turn)?;
            let replayed = state.then.as_ref().and_then(|then| then.trees.clone());
            state.record.watch_files(&state.begun_with, replayed);
        }
        Ok(state)
    }

    fn open_trees(&self, host: &TreeHost, turn: &TurnKey) -> Result<Vec<Arc<CallTree>>, TreeProblem> {
        let granted = &self.begun_with.trees;
        let circumstances = Circumstances {
            in_force: &self.in_force,
            protected: &host.protected,
            quotas: &host.quotas,
            turn,
            limits: &self.record.limits,
        };
        let opened = granted.iter().zip(host.roots.open(granted)).map(|(tree, opened)| match opened {
            Ok(root) => Ok(Arc::new(CallTree::new(tree.clone(), root, &circumstances))),
            Err(error) => Err(TreeProblem::new(tree, &error)),
        });
        opened.collect()
    }

    /// What is granted at this moment.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        self.in_force.now()
    }

    /// A new handle; too many of them are a limit.
    pub(crate) fn push<T: Send + 'static>(&mut self, entry: T) -> wasmtime::Result<Resource<T>> {
        self.table.push(entry).map_err(|error| {
            if matches!(error, ResourceTableError::Full) {
                self.record.hit(Limit::Handles(self.record.limits.handles));
            }
            error.into()
        })
    }

    fn wasi(&mut self) -> &mut WasiCtx {
        self.ctx().ctx
    }

    fn take_random(&mut self, bytes: u64) -> wasmtime::Result<()> {
        match self.random_left.checked_sub(bytes) {
            Some(left) => {
                self.random_left = left;
                Ok(())
            }
            None => {
                self.record.hit(Limit::RandomBytes(self.record.limits.random));
                Err(wasmtime::Error::msg("too many random bytes"))
            }
        }
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self { wasi, record, authority, begun_with: grants, program, trace, table, then, session, .. } = self;
        let ctx = wasi.get_or_insert_with(|| {
            let then = then.as_deref();
            let mut builder =
                wasi_builder(&Surroundings { record, session, then, authority: *authority, grants, trace });
            connect(program.as_ref(), record, &mut builder);
            Box::new(builder.build())
        });
        WasiCtxView { ctx, table }
    }
}

impl WasiHttpView for CallState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let Self { http, table, record, in_force, agent, network, http_port, trace, .. } = self;
        let (ctx, hooks) = &mut **http.get_or_insert_with(|| {
            let mut ctx = WasiHttpCtx::new();
            ctx.set_field_size_limit(record.limits.headers);
            let (record, grants) = (Arc::clone(record), Arc::clone(in_force));
            let (sender, to) = ((agent.clone(), trace.context().cloned()), (Arc::clone(network), http_port.clone()));
            Box::new((ctx, Outgoing::new(record, grants, sender, to)))
        });
        WasiHttpCtxView { hooks, table, ctx }
    }
}

impl ResourceLimiter for CallState {
    fn memory_growing(&mut self, current: usize, desired: usize, most: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let in_all = self.memory.saturating_add(growth);
        let limit = self.record.limits.memory;
        if in_all > limit {
            self.record.refuse_growth(Limit::Memory(limit));
            return Ok(false);
        }
        // Beyond its own bound it does not grow, whatever is said here.
        if most.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.growth = growth;
        self.memory = in_all;
        self.record.grow();
        self.record.use_memory(in_all);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // Only what the system refused was counted; growth that the memory's type excludes never came to `memory_growing`.
        if error.is::<std::io::Error>() {
            self.memory -= std::mem::take(&mut self.growth);
        }
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.record.limits.table_elements;
        let fits = desired <= limit;
        match fits {
            true => self.record.grow(),
            false => self.record.refuse_growth(Limit::TableElements(limit)),
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        self.record.limits.core_instances
    }

    fn tables(&self) -> usize {
        self.record.limits.tables
    }

    fn memories(&self) -> usize {
        self.record.limits.memories
    }
}

impl random::Host for CallState {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.take_random(length)?;
        let bytes = match self.drawn_then(length) {
            Some(bytes) => bytes,
            None => random::Host::get_random_bytes(self.wasi().random(), length)?,
        };
        self.record.answers.random(&bytes);
        Ok(bytes)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        let bytes = random::Host::get_random_bytes(self, size_of::<u64>() as u64)?;
        Ok(bytes.into_iter().fold(0, |number, byte| number << 8 | u64::from(byte)))
    }
}

impl insecure::Host for CallState {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.take_random(length)?;
        insecure::Host::get_insecure_random_bytes(self.wasi().random(), length)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.take_random(size_of::<u64>() as u64)?;
        insecure::Host::get_insecure_random_u64(self.wasi().random())
    }
}

impl CallState {
    /// Random bytes that were drawn when the call first ran.
    fn drawn_then(&mut self, length: u64) -> Option<Vec<u8>> {
        let end = self.random_drawn.checked_add(usize::try_from(length).ok()?)?;
        let bytes = self.then.as_ref()?.random.get(self.random_drawn..end)?.to_vec();
        self.random_drawn = end;
        Some(bytes)
    }

    /// A configuration value that is granted; asking for another one is denied.
    pub(crate) fn config_value(&mut self, key: &str) -> Option<String> {
        if self.authority == Authority::Inert {
            return None;
        }
        let value = self.grants().config.get(key).cloned();
        if value.is_none() {
            let key = crate::text::clean(key, 128);
            self.record.deny(config_thing(&key), config_advice(&self.record.plugin.name, &key));
        }
        value
    }

    /// All configuration values that are granted.
    pub(crate) fn config_values(&self) -> Vec<(String, String)> {
        if self.authority == Authority::Inert {
            return Vec::new();
        }
        self.grants().config.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl config::store::Host for CallState {
    async fn get(&mut self, key: String) -> wasmtime::Result<Result<Option<String>, config::store::Error>> {
        Ok(Ok(self.config_value(&key)))
    }

    async fn get_all(&mut self) -> wasmtime::Result<Result<Vec<(String, String)>, config::store::Error>> {
        Ok(Ok(self.config_values()))
    }
}

impl logging::logging::Host for CallState {
    async fn log(&mut self, level: logging::logging::Level, context: String, message: String) -> wasmtime::Result<()> {
        self.record.log_message(level, &context, &message);
        Ok(())
    }
}

/// A command-line program has arguments and streams of its own.
fn connect(program: Option<&Arc<Program>>, record: &Arc<CallRecord>, builder: &mut WasiCtxBuilder) {
    if let Some(program) = program {
        program.connect(record, builder);
    }
}

/// What WASI is made from.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    record: &'a Arc<CallRecord>,
    session: &'a str,
    then: Option<&'a Then>,
    authority: Authority,
    grants: &'a Grants,
    trace: &'a Trace,
}

/// WASI without file trees.
fn wasi_builder(surroundings: &Surroundings<'_>) -> WasiCtxBuilder {
    let Surroundings { record, session, then, authority, grants, trace } = *surroundings;
    let mut builder = WasiCtxBuilder::new();
    let stream = |source| GuestStream { record: Arc::clone(record), source };
    builder
        .stdout(stream(Source::Stdout))
        .stderr(stream(Source::Stderr))
        .max_random_size(record.limits.random)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false);
    match authority {
        Authority::Granted => {
            let began = then.and_then(|then| then.time);
            builder.wall_clock(CallClock { record: Arc::clone(record), began, looked: OnceLock::new() });
            builder.insecure_random_seed(seed_of(session, &record.call));
            for (name, value) in &grants.env {
                builder.env(name, value);
            }
            for (name, value) in trace.variables().filter(|(name, _)| !grants.env.contains_key(*name)) {
                builder.env(name, value);
            }
        }
        Authority::Inert => {
            builder
                .wall_clock(StoppedClock)
                .monotonic_clock(StoppedClock)
                .secure_random(Deterministic::new(REPEATED.to_vec()))
                .insecure_random(Deterministic::new(REPEATED.to_vec()))
                .insecure_random_seed(0);
        }
    }
    builder
}

/// What hash maps of guests begin with: for each call another number, and in every attempt the same, so that what they do in
/// the order of a map comes out as before when it is done again.
fn seed_of(session: &str, call: &str) -> u128 {
    let hash = Sha256::new().chain_update(session).chain_update("/").chain_update(call).finalize();
    hash.iter().take(16).fold(0, |seed, byte| seed << 8 | u128::from(*byte))
}

/// The time as calls see it.
struct CallClock {
    record: Arc<CallRecord>,
    /// What the call first read from it when it first ran.
    began: Option<Duration>,
    /// When this one first looked.
    looked: OnceLock<Instant>,
}

impl HostWallClock for CallClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        let now = match self.began {
            Some(time) => time + self.looked.get().map(Instant::elapsed).unwrap_or_default(),
            // A clock before 1970 is set wrong; that is no reason to fail.
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        self.looked.get_or_init(Instant::now);
        self.record.answers.time(now);
        now
    }
}

/// Random numbers of pure functions.
const REPEATED: [u8; 8] = *b"repeated";

/// Time as pure functions see it: the epoch, always.
struct StoppedClock;

impl HostWallClock for StoppedClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for StoppedClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}
