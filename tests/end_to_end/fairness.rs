//! Processors and places are shared by agents: whoever computes for ever delays nobody else for long (P8, row 35). Nothing
//! here is said of how fast it is.

use crate::support::House;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext, ValidatorRequest, Verdict};
use agent_plugins::{
    CallFailure, CallLimits, Generation, Grants, Limit, PluginSetup, Ports, Sandbox, ToolCallContext, ToolCallRequest,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Only who starves takes so long.
const GENEROUS: Duration = Duration::from_secs(60);

fn scope(agent: &str) -> Scope {
    let trace = TraceContext { traceparent: String::new(), tracestate: None };
    Scope { agent: agent.to_owned(), session: "s".to_owned(), delegated_by: None, user: None, turn: 1, trace }
}

fn setup(generation: &Generation, plugin: &str, limits: CallLimits) -> PluginSetup {
    let plugin = generation.plugin(plugin).unwrap_or_else(|| panic!("no plugin {plugin}"));
    PluginSetup::new(plugin.clone(), Grants::default(), limits)
}

async fn called(
    sandbox: &Sandbox,
    setup: &PluginSetup,
    (agent, name): (&str, &str),
    args: Value,
) -> Result<String, CallFailure> {
    let context = ToolCallContext { id: CallId("1".to_owned()), attempt: 1, time_limit: GENEROUS, scope: scope(agent) };
    let request = ToolCallRequest { name, args: args.to_string(), context };
    let report = sandbox.call_tool(setup, request, &Ports::default()).await;
    report.result.map(|answer| format!("{answer:?}"))
}

/// Small guests, so that there is memory for all of them.
fn small(cpu: Option<Duration>) -> CallLimits {
    CallLimits { memory: 16 << 20, cpu_time: cpu, ..CallLimits::default() }
}

/// 64 endless loops of an agent, until the set is dropped.
fn loops(sandbox: &Sandbox, setup: &PluginSetup) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for _ in 0..64 {
        let (sandbox, setup) = (sandbox.clone(), setup.clone());
        loops.spawn(async move {
            let _ = called(&sandbox, &setup, ("many", "probe.spin"), json!({})).await;
        });
    }
    loops
}

/// Row 35: beside 64 endless loops of one agent another one's validator meets its deadline, its tools are called, and the
/// host's own timers and streams go on.
#[tokio::test(flavor = "multi_thread")]
async fn row_35_endless_loops_leave_the_others_their_turns() {
    let house = House::new(&["probe", "strict-json"]).await;
    let generation = house.generation().await;
    let probe = setup(&generation, "probe", small(None));
    let validator = setup(&generation, "strict-json", CallLimits::default());
    let _loops = loops(&house.sandbox, &probe);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (mut here, mut there) = tokio::io::duplex(64);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    tokio::spawn(async move {
        let mut byte = [0];
        while there.read_exact(&mut byte).await.is_ok() && there.write_all(&byte).await.is_ok() {}
    });
    let others = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        for round in 0..50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut byte = [0];
            stream.write_all(&[round]).await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            here.write_all(&byte).await.unwrap();
            here.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [round]);
        }
        for _ in 0..5 {
            let request = ValidatorRequest {
                scope: scope("one"),
                text: "{\"fine\": true}".to_owned(),
                structured: None,
                output_schema: None,
                attempt: 1,
                corrections_left: 2,
                turn: Vec::new(),
            };
            let verdict = house.sandbox.validate(&validator, &request).await.result;
            assert!(matches!(verdict, Ok(Ok(Verdict::Accept | Verdict::AcceptAs(_)))), "{verdict:?}");
            let echoed = called(&house.sandbox, &probe, ("one", "probe.echo"), json!({"text": "alive"})).await;
            assert!(echoed.as_ref().is_ok_and(|text| text.contains("alive")), "{echoed:?}");
        }
    };
    tokio::time::timeout(GENEROUS, others).await.expect("nobody starves");
}

/// P8: an agent with 24 guests that sleep and compute by turns leaves the one guest of another agent its share: that one
/// has used up its processor time before any of the 24 has, each of which has as much.
#[tokio::test(flavor = "multi_thread")]
async fn p8_many_guests_get_no_more_than_their_agents_share() {
    const CPU: Duration = Duration::from_millis(300);
    let house = House::new(&["probe", "intruder"]).await;
    let generation = house.generation().await;
    let setup = |plugin| setup(&generation, plugin, small(Some(CPU)));
    let alternating = ("intruder", "intruder.wait", json!({"how": "alternate"}));
    let looping = ("probe", "probe.spin", json!({}));
    for many in [alternating, looping.clone()] {
        let mut guests = JoinSet::new();
        let name = many.1;
        let tasks = (0..24).map(|_| ("many", many.clone())).chain([("one", looping.clone())]);
        for (agent, (plugin, name, args)) in tasks {
            let (sandbox, setup) = (house.sandbox.clone(), setup(plugin));
            guests.spawn(async move { (agent, called(&sandbox, &setup, (agent, name), args).await) });
        }
        let mut ended = Vec::new();
        while let Some(guest) = guests.join_next().await {
            ended.push(guest.expect("no panic"));
        }
        for (_, result) in &ended {
            assert!(matches!(result, Err(CallFailure::Limit { limit: Limit::CpuTime(_), .. })), "{result:?}");
        }
        assert_eq!(ended[0].0, "one", "{name}");
    }
}
