//! Tests of the limits on calls, with calls to a real component. The tests check that each error names the limit and
//! the plugin, and that all permits are free afterwards.

mod common;

use agent_plugins::{
    CallFailure, CallLimits, Generation, Grants, HostLimits, Limit, PluginSetup, QueueFull, Sandbox, SandboxOptions,
};
use common::{call, tool_component};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);

async fn set_up(limits: CallLimits) -> (Sandbox, PluginSetup) {
    let host = HostLimits { concurrent_calls: 4, queue: 4, ..HostLimits::default() };
    let sandbox = Sandbox::new(SandboxOptions { limits: host, ..SandboxOptions::default() }).expect("a sandbox");
    let component = tool_component("agent-host:plugin/tool@0.1.0", 1);
    let plugin = sandbox.load_bytes("limited", component).await.expect("the component loads");
    (sandbox, PluginSetup::new(plugin, Grants::default(), limits))
}

// Row 1, P8: an endless loop is stopped at the limit on wall time or at the limit on processor time, whichever it
// reaches first.
#[tokio::test(flavor = "multi_thread")]
async fn row_1_p8_endless_loop_is_stopped_at_its_time_limit() {
    let (sandbox, setup) = set_up(CallLimits::default()).await;
    let wall = call(&sandbox, &setup, "spin", SHORT).await;
    assert!(matches!(wall.result, Err(CallFailure::Limit { limit: Limit::WallTime(SHORT), .. })), "{wall:?}");
    let (sandbox, setup) = set_up(CallLimits { cpu_time: Some(SHORT), ..CallLimits::default() }).await;
    let cpu = call(&sandbox, &setup, "spin", LONG).await;
    let Err(failure) = cpu.result else { panic!("the loop cannot end") };
    let digest = setup.plugin().digest().short();
    assert_eq!(failure.to_string(), format!("limited@{digest} was stopped at its limit: processor time of 100ms"));
    assert!(cpu.cost.cpu_us >= 100_000);
}

// Rows 1 and 9: after endless loops that run at the same time, traps and cancelled calls, all permits are free, and
// every call gets a new instance.
#[tokio::test(flavor = "multi_thread")]
async fn row_1_row_9_permits_are_free_after_loops_traps_and_cancellations() {
    let (sandbox, setup) = set_up(CallLimits::default()).await;
    let spins = (0..6).map(|_| call(&sandbox, &setup, "spin", SHORT));
    for report in futures::future::join_all(spins).await {
        assert!(matches!(report.result, Err(CallFailure::Limit { .. })), "{report:?}");
    }
    for _ in 0..20 {
        let trap = call(&sandbox, &setup, "trap", LONG).await;
        let Err(CallFailure::Trap { message, .. }) = trap.result else { panic!("{trap:?}") };
        assert!(message.contains("unreachable"), "{message}");
    }
    for pause in 0..40 {
        let spin = call(&sandbox, &setup, "spin", LONG);
        assert!(tokio::time::timeout(Duration::from_micros(pause * 250), spin).await.is_err(), "the call is cancelled");
    }
    let calls = (0..6).map(|_| call(&sandbox, &setup, "noop", LONG));
    for report in futures::future::join_all(calls).await {
        assert!(matches!(report.result, Ok(Ok(_))), "{report:?}");
    }
}

// P8: the length of the queue is limited. If the queue is full, a call fails immediately, and the error says that a
// later attempt may succeed.
#[tokio::test(flavor = "multi_thread")]
async fn p8_full_queue_causes_a_typed_error() {
    let (sandbox, setup) = set_up(CallLimits::default()).await;
    let mut spins: FuturesUnordered<_> = (0..7).map(|_| call(&sandbox, &setup, "spin", LONG)).collect();
    let first = spins
        .next()
        .await
        .expect("three calls run, three wait, and one is refused, so that other agents get their share");
    let Err(busy) = first.result else { panic!("{first:?}") };
    assert!(matches!(busy, CallFailure::Busy { full: QueueFull::OfAgent(3), .. }), "{busy}");
    let (plugin, message) = (setup.plugin().identity().to_string(), busy.to_string());
    assert!(message.starts_with(&plugin) && message.contains("the agent already has 3 waiting calls"), "{message}");
    assert!(busy.for_model().for_model().contains("unavailable"));
    drop(spins);
    assert!(matches!(call(&sandbox, &setup, "noop", LONG).await.result, Ok(Ok(_))));
}

/// Creates a sandbox, and two setups of one plugin: a setup with a fuel limit, so that fuel is counted, and a setup
/// without a fuel limit.
async fn metered(directory: &Path, fuel: u64) -> (Sandbox, PluginSetup, PluginSetup) {
    let sandbox = common::sandbox(directory);
    let folder = directory.join("plugins");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("limited.wasm"), tool_component("agent-host:plugin/tool@0.1.0", 1)).expect("written");
    let (generation, problems) = Generation::load(&sandbox, &folder, &|_| {}).await.expect("the generation loads");
    assert!(problems.is_empty(), "{problems:?}");
    let plugin = generation.plugin("limited").expect("the plugin");
    let setup =
        |fuel| PluginSetup::new(Arc::clone(plugin), Grants::default(), CallLimits { fuel, ..CallLimits::default() });
    (sandbox, setup(Some(fuel)), setup(None))
}

// P8, "fuel (optional, deterministic)": the same call always uses the same amount of fuel. Without a fuel limit, no
// fuel is counted.
#[tokio::test(flavor = "multi_thread")]
async fn p8_same_call_uses_the_same_fuel() {
    let directory = tempfile::tempdir().expect("a directory");
    let (sandbox, counted, uncounted) = metered(directory.path(), 10_000).await;
    let first = call(&sandbox, &counted, "noop", LONG).await;
    assert!(matches!(first.result, Ok(Ok(_))), "{first:?}");
    let fuel = first.cost.fuel.expect("fuel was counted");
    assert!((1..10_000).contains(&fuel), "{fuel}");
    for _ in 0..20 {
        assert_eq!(call(&sandbox, &counted, "noop", LONG).await.cost.fuel, Some(fuel));
    }
    assert_eq!(call(&sandbox, &uncounted, "noop", LONG).await.cost.fuel, None);
    // A new sandbox, like a new process, loads the compiled code of both engines from the cache and counts the same
    // amount of fuel.
    let (sandbox, counted, _) = metered(directory.path(), fuel).await;
    let again = call(&sandbox, &counted, "noop", LONG).await;
    assert!(matches!(again.result, Ok(Ok(_))), "the fuel is exactly enough: {again:?}");
    assert_eq!(again.cost.fuel, Some(fuel));
    let (sandbox, less, _) = metered(directory.path(), 1).await;
    assert!(call(&sandbox, &less, "noop", LONG).await.result.is_err(), "the fuel is not enough");
}

// Row 1, P8: a loop is stopped by its fuel limit or by its time limit, whichever it reaches first. The error names the
// limit and the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn row_1_p8_loop_is_stopped_by_fuel_or_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (sandbox, counted, _) = metered(directory.path(), 3_000_000).await;
    let spin = call(&sandbox, &counted, "spin", LONG).await;
    let Err(failure) = spin.result else { panic!("the loop cannot end") };
    let digest = counted.plugin().digest().short();
    assert_eq!(failure.to_string(), format!("limited@{digest} was stopped at its limit: 3000000 units of fuel"));
    assert_eq!(spin.cost.fuel, Some(3_000_000));
    // If the loop reaches its time limit before its fuel limit, an epoch tick stops it, and other calls can run
    // in the meantime.
    let (sandbox, counted, _) = metered(directory.path(), u64::MAX / 4).await;
    let (spin, noop) = tokio::join!(call(&sandbox, &counted, "spin", SHORT), call(&sandbox, &counted, "noop", LONG));
    assert!(matches!(spin.result, Err(CallFailure::Limit { limit: Limit::WallTime(SHORT), .. })), "{spin:?}");
    assert_eq!(spin.cost.fuel, None, "the used fuel is not known");
    assert!(matches!(noop.result, Ok(Ok(_))));
}

// P8: a call with a fuel limit does not run if its fuel cannot be counted.
#[tokio::test(flavor = "multi_thread")]
async fn p8_fuel_limit_without_a_plugin_store_causes_a_typed_error() {
    let (sandbox, setup) = set_up(CallLimits { fuel: Some(1_000), ..CallLimits::default() }).await;
    let Err(failure) = call(&sandbox, &setup, "noop", LONG).await.result else { panic!("the fuel cannot be counted") };
    assert!(failure.to_string().contains("fuel cannot be counted"), "{failure}");
}

// P8: the cost of a call includes the bytes of its arguments, here `{}`, and of its result, here an empty result.
#[tokio::test(flavor = "multi_thread")]
async fn p8_cost_includes_bytes_in_and_out() {
    let (sandbox, setup) = set_up(CallLimits::default()).await;
    let cost = call(&sandbox, &setup, "noop", LONG).await.cost;
    assert_eq!((cost.bytes_in, cost.bytes_out), (2, r#"{"done":{"content":[]}}"#.len() as u64));
    let trapped = call(&sandbox, &setup, "trap", LONG).await.cost;
    assert_eq!((trapped.bytes_in, trapped.bytes_out, trapped.requests), (2, 0, 0));
}

// P6: if a granted directory does not exist, the call fails with an error that names the grant.
#[tokio::test(flavor = "multi_thread")]
async fn p6_missing_directory_causes_an_error_that_names_the_grant() {
    let (sandbox, setup) = set_up(CallLimits::default()).await;
    let tree = agent_plugins::TreeGrant {
        host: "/nowhere/at/all".into(),
        guest: "data".to_owned(),
        access: agent_plugins::Access::Read,
    };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    let setup = PluginSetup::new(Arc::clone(setup.plugin()), grants, CallLimits::default());
    let Err(failure) = call(&sandbox, &setup, "noop", LONG).await.result else { panic!("there is no such directory") };
    let text = failure.to_string();
    assert!(text.contains("/nowhere/at/all") && text.contains("read = [\"data\"]"), "{text}");
}
