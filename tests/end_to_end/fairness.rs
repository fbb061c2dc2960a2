//! Agents share processors and execution slots fairly: a guest that computes forever delays other agents only briefly
//! (P8, row 35). These tests do not measure speed.

use crate::support::TestHost;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext, ValidatorRequest, Verdict};
use agent_plugins::{
    CallFailure, CallLimits, Generation, Grants, Limit, PluginSetup, Ports, Sandbox, ToolCallContext, ToolCallRequest,
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// A timeout that a call exceeds only if it gets almost no processor time.
const STARVATION_TIMEOUT: Duration = Duration::from_secs(60);

fn scope(agent: &str) -> Scope {
    let trace = TraceContext { traceparent: String::new(), tracestate: None };
    Scope { agent: agent.to_owned(), session: "s".to_owned(), delegated_by: None, user: None, turn: 1, trace }
}

fn plugin_setup(generation: &Generation, plugin: &str, limits: CallLimits) -> PluginSetup {
    let plugin = generation.plugin(plugin).unwrap_or_else(|| panic!("no plugin {plugin}"));
    PluginSetup::new(plugin.clone(), Grants::default(), limits)
}

async fn call_tool(
    sandbox: &Sandbox,
    setup: &PluginSetup,
    (agent, name): (&str, &str),
    args: Value,
) -> Result<String, CallFailure> {
    let context =
        ToolCallContext { id: CallId("1".to_owned()), attempt: 1, time_limit: STARVATION_TIMEOUT, scope: scope(agent) };
    let request = ToolCallRequest { name, args: args.to_string(), context };
    let report = sandbox.call_tool(setup, request, &Ports::default()).await;
    report.result.map(|answer| format!("{answer:?}"))
}

/// Returns limits with little memory for each guest, so that all guests together fit into memory.
fn small_guest_limits(cpu: Option<Duration>) -> CallLimits {
    CallLimits { memory: 16 << 20, cpu_time: cpu, ..CallLimits::default() }
}

/// Starts 64 endless loops of one agent. The loops run until the returned set is dropped.
fn start_endless_loops(sandbox: &Sandbox, setup: &PluginSetup) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for _ in 0..64 {
        let (sandbox, setup) = (sandbox.clone(), setup.clone());
        loops.spawn(async move {
            let _ = call_tool(&sandbox, &setup, ("many", "probe.spin"), json!({})).await;
        });
    }
    loops
}

/// Row 35: While one agent runs 64 endless loops, another agent's validator finishes before its deadline, the other
/// agent's tools are called, and the host's own timers and streams keep running.
#[tokio::test(flavor = "multi_thread")]
async fn row_35_endless_loops_do_not_starve_other_agents() {
    let test_host = TestHost::new(&["probe", "strict-json"]).await;
    let generation = test_host.generation().await;
    let probe = plugin_setup(&generation, "probe", small_guest_limits(None));
    let validator = plugin_setup(&generation, "strict-json", CallLimits::default());
    let _loops = start_endless_loops(&test_host.sandbox, &probe);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (mut writer, mut reader) = tokio::io::duplex(64);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    tokio::spawn(async move {
        let mut byte = [0];
        while reader.read_exact(&mut byte).await.is_ok() && reader.write_all(&byte).await.is_ok() {}
    });
    let others = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        for round in 0..50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut byte = [0];
            stream.write_all(&[round]).await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
            writer.write_all(&byte).await.unwrap();
            writer.read_exact(&mut byte).await.unwrap();
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
            let verdict = test_host.sandbox.validate(&validator, &request).await.result;
            assert!(matches!(verdict, Ok(Ok(Verdict::Accept | Verdict::AcceptAs(_)))), "{verdict:?}");
            let echoed = call_tool(&test_host.sandbox, &probe, ("one", "probe.echo"), json!({"text": "alive"})).await;
            assert!(echoed.as_ref().is_ok_and(|text| text.contains("alive")), "{echoed:?}");
        }
    };
    tokio::time::timeout(STARVATION_TIMEOUT, others).await.expect("no guest starves");
}

/// P8: One agent has 24 guests that compute, or that alternately sleep and compute. Another agent has one guest that
/// computes. All guests have the same limit of processor time. The guest of the other agent reaches its limit first.
#[tokio::test(flavor = "multi_thread")]
async fn p8_many_guests_get_only_the_share_of_their_agent() {
    const CPU_LIMIT: Duration = Duration::from_millis(300);
    let test_host = TestHost::new(&["probe", "intruder"]).await;
    let generation = test_host.generation().await;
    let setup = |plugin| plugin_setup(&generation, plugin, small_guest_limits(Some(CPU_LIMIT)));
    let alternating = ("intruder", "intruder.wait", json!({"how": "alternate"}));
    let looping = ("probe", "probe.spin", json!({}));
    for many in [alternating, looping.clone()] {
        let mut guests = JoinSet::new();
        let name = many.1;
        let tasks = (0..24).map(|_| ("many", many.clone())).chain([("one", looping.clone())]);
        for (agent, (plugin, name, args)) in tasks {
            let (sandbox, setup) = (test_host.sandbox.clone(), setup(plugin));
            guests.spawn(async move { (agent, call_tool(&sandbox, &setup, (agent, name), args).await) });
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
