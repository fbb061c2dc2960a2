//! Rows 1, 2, 10 and 35: Attacks that use up time, and components whose instantiation never ends.

use crate::guests;
use crate::scene::{SHORT_TIME_LIMIT, Scene, repeats, run_exclusively, with_grants, with_short_calls};
use crate::server::Server;
use crate::support::{call_reply, results, run_turn, text_reply};
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_plugins::{
    CallFailure, CallLimits, CallReport, Grants, Limit, LoadError, PluginSetup, Ports, ToolCallContext, ToolCallRequest,
};
use agent_runtime::TurnResult;
use serde_json::{Value, json};
use std::time::Duration;

const WALL_TIME_ERROR: &str = "wall time of 300ms";

/// Row 1: The host stops an endless loop in a function, in the code that receives the function's arguments, or in the
/// code that runs after the function has returned. The host also stops an endless loop of host calls that do nothing,
/// and eight endless loops at the same time.
#[test]
fn row_1_stops_endless_loops() {
    run_exclusively(async {
        let scene = Scene::with_components(&["intruder"], &[("endless", guests::endless())]).await;
        let calls = [("computing", json!({})), ("taking", json!({"text": "x"})), ("giving", json!({}))];
        for (name, arguments) in calls {
            let attack = async |_| {
                let config = with_short_calls("endless", Grants::default());
                scene.check_stopped(config, ("endless", name, arguments.clone()), WALL_TIME_ERROR).await;
            };
            scene.repeat(&format!("row 1, {name}"), attack).await;
        }
        for how in ["poll-ready", "clock", "log", "empty-writes", "environment", "key-value"] {
            let grants = || Grants { key_value: Some(1 << 20), ..Grants::default() };
            let attack = async |_| {
                let call = ("intruder", "intruder.wait", json!({"how": how}));
                scene.check_stopped(with_short_calls("intruder", grants()), call, WALL_TIME_ERROR).await;
            };
            scene.repeat(&format!("row 1, {how}"), attack).await;
        }
        let attack = async |_| {
            let mut config = with_short_calls("endless", Grants::default());
            config.bounds.parallel_calls = 8;
            let calls: Vec<_> = (0..8).map(|_| ("computing", json!({}))).collect();
            for (is_error, text) in scene.calls(config, &calls).await {
                assert!(
                    is_error && text.contains(&scene.identity("endless")) && text.contains(WALL_TIME_ERROR),
                    "{text}"
                );
            }
        };
        scene.repeat("row 1, eight loops", attack).await;
    });
}

/// Row 1: Processor time has its own limit, which does not count the time during which a call waits.
#[test]
fn row_1_limits_processor_time() {
    run_exclusively(async {
        let scene = Scene::with_components(&[], &[("endless", guests::endless())]).await;
        let limits = CallLimits { cpu_time: Some(Duration::from_millis(100)), ..CallLimits::default() };
        let attack = async |_| {
            let config = with_grants("endless", Grants::default(), limits);
            scene.check_stopped(config, ("endless", "computing", json!({})), "processor time of 100ms").await;
        };
        scene.repeat("row 1, processor time", attack).await;
        let config = with_grants("probe", Grants::default(), limits);
        let (is_error, text) = scene.call(config, "probe.sleep", json!({"ms": 500})).await;
        assert!(!is_error, "sleeping costs no processor time: {text}");
    });
}

/// Row 1: A component whose instantiation never ends is refused when it is loaded. Each attempt takes ten seconds, so
/// the test makes only a few attempts.
#[test]
fn row_1_refuses_a_component_whose_instantiation_never_ends() {
    run_exclusively(async {
        let scene = Scene::new(&[]).await;
        let attack = async |repeat| {
            // The host loads at most four components at the same time. These four components have different digests.
            let loads = (0..4).map(|number| {
                let mut bytes = guests::endless_start();
                // Append a custom section: the section's kind, its size, the length of its name, the name, and
                // its content.
                bytes.extend([0, 4, 1, b'x', number, repeat as u8]);
                scene.test_host.sandbox.load_bytes("starting", bytes)
            });
            for refused in join_all(loads).await {
                let Err(LoadError::Start(CallFailure::Limit { limit: Limit::WallTime(_), plugin })) = refused else {
                    panic!("{refused:?}")
                };
                assert!(plugin.to_string().starts_with("starting@"), "{plugin}");
            }
        };
        scene.repeat_times("row 1, endless instantiation", repeats().div_ceil(20), attack).await;
    });
}

async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(Box::pin).collect();
    let mut results: Vec<Option<T>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in running.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
            }
        }
        if results.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Row 2: The host stops a call that waits in a poll, in a poll of many timers, for a request that is never answered,
/// or for a response that arrives byte by byte.
#[test]
fn row_2_stops_sleeping_host_calls() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let silent = Server::silent();
        let slow = Server::slow();
        for (how, limit) in
            [("poll", WALL_TIME_ERROR), ("poll-many", WALL_TIME_ERROR), ("poll-same", "1000 resource handles")]
        {
            let attack = async |_| {
                let config = with_short_calls("intruder", Grants::default());
                scene.check_stopped(config, ("intruder", "intruder.wait", json!({"how": how})), limit).await;
            };
            scene.repeat(&format!("row 2, {how}"), attack).await;
        }
        for (server_name, server) in [("a silent server", &silent), ("a slow server", &slow)] {
            let attack = async |_| {
                let config = with_short_calls("intruder", server.grants());
                let (is_error, text) = scene.call(config, "intruder.get", json!({"url": server.url("/")})).await;
                // The host aborts the request no later than the end of the call, so the guest may receive an error for
                // the request before the guest is stopped.
                let is_stopped = text.contains(&scene.identity("intruder")) && text.contains(WALL_TIME_ERROR);
                assert!((is_error && is_stopped) || text.contains("timeout"), "{text}");
            };
            // A plugin may make 60 requests a minute, and each call makes one request.
            scene.repeat_times(&format!("row 2, {server_name}"), repeats().min(25), attack).await;
        }
    });
}

/// Row 10: After 100 calls were cancelled, each at a different moment, no resources are left, and a new call succeeds.
#[test]
fn row_10_cancelled_calls_leave_nothing_behind() {
    run_exclusively(async {
        let scene = Scene::with_components(&["intruder"], &[("endless", guests::endless())]).await;
        let folder = crate::files::tree(&scene, "cancelled");
        let setup = |plugin: &str, grants: Grants| {
            PluginSetup::new(scene.generation.plugin(plugin).unwrap().clone(), grants, CallLimits::default())
        };
        let trees = crate::files::trees(&[(&folder, agent_plugins::Access::ReadWrite)]);
        let (endless, intruder) = (setup("endless", Grants::default()), setup("intruder", trees));
        let attack = async |repeat| {
            for number in 0..100_u64 {
                let (setup, name, arguments) = match number % 4 {
                    0 => (&endless, "computing", json!({})),
                    1 => (&intruder, "intruder.wait", json!({"how": "poll-many"})),
                    2 => (&intruder, "intruder.read_often", json!({"path": "own.txt", "times": 1_000_000})),
                    _ => (&intruder, "intruder.flood", json!({"what": "files"})),
                };
                let delay = Duration::from_micros((number * 97 + repeat as u64 * 41) % 5_000);
                let _ = tokio::time::timeout(delay, call(&scene, setup, name, arguments)).await;
            }
            let report = call(&scene, &intruder, "intruder.world", json!({})).await;
            assert!(matches!(report.result, Ok(Ok(_))), "{:?}", report.result);
        };
        scene.repeat("row 10, 100 cancelled calls", attack).await;
    });
}

/// Makes a call outside a session.
async fn call(scene: &Scene, setup: &PluginSetup, name: &'static str, arguments: Value) -> CallReport<Answer> {
    let trace = TraceContext { traceparent: String::new(), tracestate: None };
    let (agent, session) = ("attacker".to_owned(), "attacker/1".to_owned());
    let scope = Scope { agent, session, delegated_by: None, user: None, turn: 1, trace };
    let id = CallId("call_1_1_1".to_owned());
    let context = ToolCallContext { id, attempt: 1, time_limit: Duration::from_secs(30), scope };
    let request = ToolCallRequest { name, args: arguments.to_string(), context };
    scene.test_host.sandbox.call_tool(setup, request, &Ports::default()).await
}

type Answer = Result<agent_core::tool::ToolOutcome, agent_core::tool::ToolError>;

/// Row 35: While one agent runs 64 endless loops, another agent's validator still finishes within its time limit of 250
/// ms.
#[test]
fn row_35_a_validator_meets_its_deadline_despite_64_loops() {
    run_exclusively(async {
        let scene = Scene::with_components(&["strict-json"], &[("endless", guests::endless())]).await;
        let attack = async |_| {
            let mut config = with_short_calls("endless", Grants::default());
            // The time limit does not include the wait for a slot, so all calls together take up to 64 times as long as
            // one call.
            config.plugins.get_mut("endless").unwrap().limits.tool_time = SHORT_TIME_LIMIT / 6;
            config.bounds.parallel_calls = 64;
            let calls: Vec<_> = (0..64).map(|_| ("computing", json!({}))).collect();
            let mut looping = scene.session(config, &[call_reply(&calls), text_reply("Done.")]).await;
            let mut validated = agent_runtime::AgentConfig::new("validated");
            validated.validators = vec!["strict-json".to_owned()];
            let mut validated_session = scene.session(validated, &vec![text_reply("{\"fine\": true}"); 5]).await;
            let validating = async {
                // After this delay, all 64 endless loops are running.
                tokio::time::sleep(SHORT_TIME_LIMIT).await;
                for _ in 0..5 {
                    let result = run_turn(&mut validated_session, "Go.").await;
                    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
                }
            };
            let (result, ()) = tokio::join!(run_turn(&mut looping, "Loop."), validating);
            assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
            let results = results(&scene.test_host, &looping).await;
            assert_eq!(results.len(), 64);
            assert!(results.iter().all(|(_, is_error, text)| *is_error && text.contains("wall time")), "{results:?}");
            looping.close().await.unwrap();
            validated_session.close().await.unwrap();
        };
        scene.repeat("row 35, 64 loops", attack).await;
    });
}
