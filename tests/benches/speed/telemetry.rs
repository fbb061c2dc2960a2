//! "Telemetry": What metrics and traces add to a step, to a turn and to a tool call, with a collector that accepts spans and with
//! collectors that do not.

use crate::agent::{in_memory, scripted};
use crate::component::scratch;
use crate::loop_step::{Step, observer};
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::message::{CallId, TurnInput};
use agent_core::plugin::{Scope, TraceContext};
use agent_plugins::{CallObserver, Generation, Ports, Sandbox, SandboxOptions, ToolCallContext, ToolCallRequest};
use agent_runtime::{Agent, AgentConfig, Host, Observation, Observer, OpenSession, Session, TurnResult};
use agent_store::{Options, SqliteStore, Store, Synchronous};
use agent_telemetry::{
    AgentGroup, Collector, CollectorConfig, ExporterOptions, Metrics, ModelCallOutcome, PluginCall, Scrubber,
    TraceExporter,
};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use wasmtime::bail;
use wasmtime::error::Context;

const TURNS: usize = 3_000;
const CALLS: usize = 10_000;
/// The maximum ratio of the times with and without telemetry.
const MAX_RATIO: f64 = 1.03;

/// How a collector behaves.
#[derive(Clone, Copy)]
enum Behaviour {
    Answers(&'static str),
    /// The collector reads requests and does not answer them.
    Silent,
    /// Nothing listens at the address of the collector.
    Down,
}

/// Measures steps, turns and tool calls with and without telemetry.
pub(crate) async fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    measure_turns(table).await?;
    measure_calls(component, table).await
}

async fn measure_turns(table: &mut Table) -> wasmtime::Result<()> {
    let (directory, location) = in_memory()?;
    let mut cases = vec![Case::new("without telemetry", &directory.path().join("without"), None).await?];
    for (number, (name, behaviour)) in [
        ("with a collector that accepts spans", Behaviour::Answers("200 OK")),
        ("with a collector that answers 429", Behaviour::Answers("429 Too Many Requests")),
        ("with a collector that answers 500", Behaviour::Answers("500 Internal Server Error")),
        ("with a collector that never answers", Behaviour::Silent),
        ("with a collector that is down", Behaviour::Down),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = directory.path().join(number.to_string());
        cases.push(Case::new(name, &folder, Some(behaviour)).await?);
    }
    let (warm_up, count) = (TURNS / 10, cases.len());
    for round in 0..warm_up + TURNS {
        for index in 0..count {
            // The order changes from round to round, so that no case always runs after the same other case.
            let rotated = (index + round / 2) % count;
            let case = if round % 2 == 0 { rotated } else { count - 1 - rotated };
            cases[case].turn(round >= warm_up).await?;
        }
    }
    let [steps, turns] = [cases[0].steps.clone(), cases[0].turns.clone()];
    for (what, base) in [("step", steps), ("turn", turns)] {
        table.title(format!("telemetry: a {what}, synchronous=OFF {location}, {TURNS} samples each"));
        for case in &cases {
            let samples = if what == "step" { &case.steps } else { &case.turns };
            let is_base = case.telemetry.is_none();
            let verdict = if is_base { String::new() } else { comparison(&base, samples) };
            table.line(case.name, samples.clone(), verdict);
        }
    }
    Ok(())
}

fn comparison(base: &Samples, with: &Samples) -> String {
    let ratio = with.paired_ratio(base);
    format!("{ratio:.3} × without; target {MAX_RATIO} ×: {}", reached(ratio <= MAX_RATIO))
}

/// Turns of one step, each in a new session.
struct Case {
    name: &'static str,
    host: Host,
    agent: Arc<Agent>,
    step: Arc<Mutex<Step>>,
    steps: Samples,
    turns: Samples,
    telemetry: Option<Arc<TraceExporter>>,
}

impl Case {
    async fn new(name: &'static str, folder: &Path, collector: Option<Behaviour>) -> wasmtime::Result<Self> {
        std::fs::create_dir(folder)?;
        let options = Options { synchronous: Synchronous::Off, ..Options::default() };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.join("bench.db"), options)?);
        let step: Arc<Mutex<Step>> = Arc::default();
        let mut host = Host::new(store.clone(), Sandbox::new(SandboxOptions::default())?);
        host.checkpoint = Some(observer(step.clone()));
        let telemetry = match collector {
            Some(behaviour) => Some(Arc::new(exporter(store, behaviour).await?)),
            None => None,
        };
        host.observer = telemetry.clone().map(monitoring);
        let (steps, turns) = Default::default();
        Ok(Self { name, host, agent: scripted(folder, 1)?, step, steps, turns, telemetry })
    }

    async fn turn(&mut self, is_measured: bool) -> wasmtime::Result<()> {
        let mut session = Session::open(&self.host, self.agent.clone(), OpenSession::New).await?;
        let input = Some(TurnInput::Text("How many lines has notes.txt?".to_owned()));
        let started = Instant::now();
        let result = session.run(input, CancellationToken::new()).await?;
        let turn = started.elapsed();
        session.close().await?;
        let TurnResult::Finished(_) = result else { bail!("the turn ended with {result:?}") };
        let Some((step, _)) = Step::duration_and_commits(&self.step) else { bail!("the turn had no step") };
        if is_measured {
            self.steps.push(step);
            self.turns.push(turn);
        }
        Ok(())
    }
}

/// Observes sessions as the program does: counts metrics, and tells the exporter which session has changed.
fn monitoring(exporter: Arc<TraceExporter>) -> Observer {
    let metrics = Arc::new(Metrics::default());
    Observer::new(move |observation| match observation {
        Observation::Committed(commit) => {
            metrics.committed(commit.agent, commit.events, |tool| commit.source_of(tool));
            exporter.committed(commit.agent, commit.session);
        }
        Observation::ModelCall(call) => {
            metrics.model_called((call.agent, call.model), ModelCallOutcome::Replied, call.time, call.first_piece);
        }
        Observation::Refused { protocol, code } => metrics.request_refused(protocol, code),
    })
}

async fn exporter(store: Arc<dyn Store>, behaviour: Behaviour) -> wasmtime::Result<TraceExporter> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    match behaviour {
        Behaviour::Answers(status) => drop(tokio::spawn(collect(listener, Some(status)))),
        Behaviour::Silent => drop(tokio::spawn(collect(listener, None))),
        Behaviour::Down => drop(listener),
    }
    let config = CollectorConfig {
        url: url.parse()?,
        headers: BTreeMap::new(),
        secret_headers: BTreeMap::new(),
        project: "bench".to_owned(),
        timeout: Duration::from_secs(10),
    };
    let group = AgentGroup {
        agent: "bench".to_owned(),
        delegates: BTreeMap::new(),
        collector: Arc::new(Collector::new(config)?),
        scrubber: Scrubber::default(),
        max_age: Duration::from_secs(3_600),
    };
    Ok(TraceExporter::start(store, vec![group], ExporterOptions::default()).await)
}

/// Answers all requests with this status. `None` answers none.
async fn collect(listener: TcpListener, status: Option<&'static str>) {
    while let Ok((connection, _)) = listener.accept().await {
        tokio::spawn(async move { answer(connection, status).await });
    }
}

async fn answer(connection: TcpStream, status: Option<&'static str>) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let header = line.to_ascii_lowercase();
            length = header.strip_prefix("content-length:").map_or(length, |size| size.trim().parse().unwrap_or(0));
        }
        tokio::io::copy(&mut (&mut connection).take(length), &mut tokio::io::sink()).await?;
        let Some(status) = status else { continue };
        connection.get_mut().write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
    }
}

async fn measure_calls(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let sandbox = || {
        let cache_directory = Some(scratch().join("cache"));
        Sandbox::new(SandboxOptions { cache_directory, ..SandboxOptions::default() })
    };
    let (without, with) = (sandbox()?, sandbox()?);
    let metrics = Arc::new(Metrics::default());
    with.observe_calls(CallObserver::new(move |call| {
        metrics.plugin_called(&PluginCall {
            plugin: &call.plugin.name,
            version: call.plugin.digest.short(),
            kind: call.kind.interface(),
            outcome: call.ending.name(),
            limit: None,
            cost: call.cost,
        });
    }));
    let agents = [agent(&without, component).await?, agent(&with, component).await?];
    let mut samples: [Samples; 2] = Default::default();
    for round in 0..CALLS / 10 + CALLS {
        for index in 0..2 {
            let case = (index + round) % 2;
            let sandbox = [&without, &with][case];
            let setup = agents[case].setups().get("probe").context("the plugin is loaded")?;
            let started = Instant::now();
            let report = sandbox.call_tool(setup, request(), &Ports::default()).await;
            let time = started.elapsed();
            black_box(report.result?.map_err(|error| wasmtime::format_err!("{error:?}"))?);
            if round >= CALLS / 10 {
                samples[case].push(time);
            }
        }
    }
    let [plain, observed] = samples;
    table.title(format!("telemetry: a tool call, probe.echo, {CALLS} samples each, no commit"));
    let verdict = comparison(&plain, &observed);
    table.line("without telemetry", plain, String::new());
    table.line("with metrics", observed, verdict);
    Ok(())
}

async fn agent(sandbox: &Sandbox, component: &Path) -> wasmtime::Result<Agent> {
    let generation = Generation::new([sandbox.load_file(component).await?]);
    let provider = agent_models::provider("offline", Path::new("."))?;
    Ok(Agent::new(AgentConfig::new("bench"), provider, generation)?)
}

fn request() -> ToolCallRequest<'static> {
    let trace = TraceContext {
        traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        tracestate: None,
    };
    let (agent, session) = ("bench".to_owned(), "bench/1".to_owned());
    let scope = Scope { agent, session, delegated_by: None, user: None, turn: 1, trace };
    let id = CallId("1.1.1".to_owned());
    let context = ToolCallContext { id, attempt: 1, time_limit: Duration::from_secs(30), scope };
    ToolCallRequest { name: "probe.echo", args: r#"{"text": "hello"}"#.to_owned(), context }
}
