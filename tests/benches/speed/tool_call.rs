//! "Tool call through the host": The host finds the tool, validates arguments of 200 bytes, calls a new instance, and
//! creates the event of the result. Nothing is written to the store.

use crate::component::scratch;
use crate::raw::{self, Raw};
use crate::samples::Samples;
use crate::table::{Table, micros, reached};
use agent_core::event::{Event, EventKind};
use agent_core::message::CallId;
use agent_core::model::RequestedCall;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::run::Disposition;
use agent_core::tool::{ToolDone, ToolOutcome};
use agent_core::view::shown_text;
use agent_plugins::{
    Access, Generation, Grants, Ports, Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest, TreeGrant,
};
use agent_runtime::{Agent, AgentConfig, PluginAllowance};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use wasmtime::error::Context;
use wasmtime::{bail, format_err};

const WARM_UP: usize = 1_000;
const ROUNDS: usize = 10_000;
/// The maximum ratio of the host's median time to the median time of raw wasmtime.
const MAX_RATIO: f64 = 1.5;
/// The maximum difference between the host's median time and the median time of raw wasmtime.
const MAX_ADDED_TIME: Duration = Duration::from_micros(20);

const TOOL: &str = "probe.echo";
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Identifiers with the same format as in real sessions.
const SESSION: &str = "bench/0199f3a2-7c1e-7000-8000-3f1b2c4d5e6f";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Measures calls with raw wasmtime and calls through the host. Both kinds of calls are measured without grants and
/// with one tree that the tool can read.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let tree = tempfile::tempdir()?;
    let raw = Raw::new(component)?;
    let sandbox =
        Sandbox::new(SandboxOptions { cache_directory: Some(scratch().join("cache")), ..SandboxOptions::default() })?;
    let plugin = sandbox.load_file(component).await?;
    let generation = || Generation::new([plugin.clone()]);
    let without_grants = Host { sandbox: &sandbox, agent: agent(generation(), Grants::default())? };
    let with_tree = Host { sandbox: &sandbox, agent: agent(generation(), read_grants(tree.path()))? };
    let arguments = arguments();
    let (requested, context) = (requested_call(&arguments), raw_context());

    let mut samples: [Samples; 4] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        for index in 0..samples.len() {
            // The order of the cases changes from round to round. With a fixed order, each case would always run after
            // the same other case, and that case would determine the content of the processor's caches.
            let rotated = (index + round / 2) % samples.len();
            let case = if round % 2 == 0 { rotated } else { samples.len() - 1 - rotated };
            let start = Instant::now();
            match case {
                0 => drop(black_box(raw.call(TOOL, &arguments, &context, None).await?)),
                1 => drop(black_box(without_grants.call(&requested).await?)),
                2 => drop(black_box(raw.call(TOOL, &arguments, &context, Some(tree.path())).await?)),
                _ => drop(black_box(with_tree.call(&requested).await?)),
            }
            if round >= WARM_UP {
                samples[case].push(start.elapsed());
            }
        }
    }
    check(&raw, &without_grants, &arguments).await?;
    show(samples, arguments.len(), table);
    Ok(())
}

fn show(samples: [Samples; 4], bytes: usize, table: &mut Table) {
    let [raw, without_grants, raw_tree, with_tree] = samples;
    table.title(format!(
        "tool call through the host: {TOOL}, {bytes} bytes of arguments, {} samples each, no commit",
        raw.count()
    ));
    let (verdict, granted_verdict) = (verdict(&raw, &without_grants), comparison(&raw_tree, &with_tree));
    table.line("raw wasmtime", raw, String::new());
    table.line("host", without_grants, verdict);
    table.line("raw wasmtime, one tree for reading", raw_tree, String::new());
    table.line("host, one tree for reading", with_tree, granted_verdict);
}

fn verdict(raw: &Samples, host: &Samples) -> String {
    let (raw_median, median) = (raw.median(), host.median());
    let is_reached = median <= raw_median.mul_f64(MAX_RATIO) && median <= raw_median + MAX_ADDED_TIME;
    format!("{}; target {MAX_RATIO} ×, +{}: {}", comparison(raw, host), micros(MAX_ADDED_TIME), reached(is_reached))
}

fn comparison(raw: &Samples, host: &Samples) -> String {
    let (raw, host) = (raw.median().as_secs_f64(), host.median().as_secs_f64());
    format!("{:.2} × raw, {:+.1} µs", host / raw, (host - raw) * 1e6)
}

/// The host, which makes calls as the runtime does.
struct Host<'a> {
    sandbox: &'a Sandbox,
    agent: Agent,
}

impl Host<'_> {
    async fn call(&self, requested: &RequestedCall) -> wasmtime::Result<Event> {
        let resolved = self.agent.registry().resolve(requested);
        let Disposition::Ready { .. } = resolved.disposition else { bail!("{:?}", resolved.disposition) };
        let tool = self.agent.registry().get(&resolved.name).context("the tool is registered")?;
        let setup = self.agent.setups().get("probe").context("the plugin is loaded")?;
        let call = call_id();
        let context = ToolCallContext { id: call.clone(), attempt: 1, time_limit: TIME_LIMIT, scope: scope() };
        let request = ToolCallRequest { name: &resolved.name, args: resolved.arguments.to_string(), context };
        let report = self.sandbox.call_tool(setup, request, &Ports::default()).await;
        let ToolOutcome::Done(ToolDone { content, structured }) = report.result?.map_err(|e| format_err!("{e:?}"))?
        else {
            bail!("the tool asked for a service")
        };
        tool.check_structured(structured.as_ref()).map_err(|error| format_err!("{error:?}"))?;
        let limit = self.agent.config().bounds.result_characters as usize;
        let shown = shown_text(&call, &content, limit);
        let kind = EventKind::ToolResult { call, name: resolved.name, content: shown, cost: report.cost };
        Ok(Event { session: SESSION.to_owned(), turn: 1, sequence: 9, provisional: None, kind })
    }
}

/// Checks that raw wasmtime and the host return the same result for the same call.
async fn check(raw: &Raw, host: &Host<'_>, arguments: &String) -> wasmtime::Result<()> {
    let raw::Outcome::Done(done) = raw.call(TOOL, arguments, &raw_context(), None).await? else {
        bail!("the tool asked for a service")
    };
    let [raw::Content::Json(expected)] = done.content.as_slice() else { bail!("{:?}", done.content) };
    let event = host.call(&requested_call(arguments)).await?;
    match event.kind {
        EventKind::ToolResult { content, .. } if content == *expected => Ok(()),
        kind => bail!("raw wasmtime returned {expected}, and the host {kind:?}"),
    }
}

fn agent(generation: Generation, grants: Grants) -> wasmtime::Result<Agent> {
    let mut config = AgentConfig::new("bench");
    config.plugins.insert("probe".to_owned(), PluginAllowance { grants, ..PluginAllowance::default() });
    Ok(Agent::new(config, agent_models::provider("offline", Path::new("."))?, generation)?)
}

fn read_grants(tree: &Path) -> Grants {
    let tree = TreeGrant { host: tree.to_owned(), guest: ".".to_owned(), access: Access::Read };
    Grants { trees: vec![tree], ..Grants::default() }
}

fn arguments() -> String {
    serde_json::json!({ "text": "The quick brown fox jumps over the lazy dog; ".repeat(5)[..189] }).to_string()
}

fn requested_call(arguments: &str) -> RequestedCall {
    RequestedCall { provider_id: None, name: "probe_echo".to_owned(), arguments: arguments.to_owned() }
}

fn call_id() -> CallId {
    CallId("1.1.1".to_owned())
}

fn scope() -> Scope {
    let trace = TraceContext { traceparent: TRACEPARENT.to_owned(), tracestate: None };
    let (agent, session) = ("bench".to_owned(), SESSION.to_owned());
    Scope { agent, session, delegated_by: None, user: None, turn: 1, trace }
}

fn raw_context() -> raw::CallContext {
    let trace = raw::TraceContext { traceparent: TRACEPARENT.to_owned(), tracestate: None };
    let (agent, session) = ("bench".to_owned(), SESSION.to_owned());
    raw::CallContext {
        id: "1.1.1".to_owned(),
        attempt: 1,
        time_limit: TIME_LIMIT.as_millis() as u32,
        scope: raw::Scope { agent, session, delegated_by: None, user: None, turn: 1, trace },
    }
}
