//! Plugins that misbehave. The host stops each misbehaving plugin at a limit and reports the limit in the error. No
//! other agent or call is affected.

use crate::support::{TestHost, call_reply, results, run_turn, script, text_reply, with_tree_grant};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Runs one call and returns its result.
async fn call(test_host: &TestHost, config: AgentConfig, name: &str, arguments: Value) -> (bool, String) {
    let mut session = test_host.session(config, script(&[call_reply(&[(name, arguments)]), text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let (_, is_error, text) = results(test_host, &session).await.remove(0);
    session.close().await.unwrap();
    (is_error, text)
}

/// Configures an agent whose tool calls may take at most half a second.
fn config_with_half_a_second(test_host: &TestHost) -> AgentConfig {
    let mut config = with_tree_grant(test_host, "probe");
    let allowance = config.plugins.get_mut("probe").unwrap();
    allowance.limits.tool_time = Duration::from_millis(500);
    config
}

/// Rows 1 and 2: An endless loop, eight endless loops at the same time, and a sleep of an hour are stopped at their
/// deadline, while another agent continues.
#[tokio::test(flavor = "multi_thread")]
async fn rows_1_and_2_stop_calls_at_their_deadline() {
    let test_host = TestHost::new(&["probe"]).await;
    let started = Instant::now();
    let spins: Vec<_> = (0..8).map(|_| ("probe.spin", json!({}))).collect();
    let mut config = config_with_half_a_second(&test_host);
    config.bounds.parallel_calls = 8;
    let mut session = test_host.session(config, script(&[call_reply(&spins), text_reply("Done.")])).await;
    let other_agent = async {
        for _ in 0..5 {
            let (is_error, text) =
                call(&test_host, AgentConfig::new("other"), "probe.echo", json!({"text": "alive"})).await;
            assert!(!is_error && text.contains("alive"), "{text}");
        }
    };
    let (result, ()) = tokio::join!(run_turn(&mut session, "Spin."), other_agent);
    assert!(matches!(result, TurnResult::Finished(_)));
    for (_, is_error, text) in results(&test_host, &session).await {
        assert!(is_error && text.contains("probe@") && text.contains("limit"), "{text}");
    }
    let (is_error, text) =
        call(&test_host, config_with_half_a_second(&test_host), "probe.sleep", json!({"ms": 3_600_000})).await;
    assert!(is_error && text.contains("wall time of 500ms"), "{text}");
    // This time limit is generous, because the test does not measure speed: the limit is exceeded only if the host does
    // not stop a sleep of one hour.
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// Rows 3, 4 and 6: If a call exceeds the limit on its stack, its memory or the size of its result, the call fails, and
/// the error names the limit and the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn rows_3_4_and_6_limit_stack_memory_and_results() {
    let test_host = TestHost::new(&["probe"]).await;
    let (is_error, text) = call(&test_host, AgentConfig::new("test"), "probe.allocate", json!({"mib": 200})).await;
    assert!(
        is_error && text.contains("refused after 6"),
        "the limit of 64 MiB includes the memory that the guest already uses: {text}"
    );
    let cases = [
        // A Rust guest keeps most of its stack in linear memory, which therefore overflows first.
        ("probe.recurse", json!({"depth": 100_000_000_u64}), "out of bounds memory access"),
        ("probe.bytes", json!({"bytes": 2 << 20}), "1 MiB of text and JSON"),
        ("probe.bytes", json!({"bytes": 32 << 20}), "passed to the host at once"),
    ];
    for (name, arguments, expected) in cases {
        let (is_error, text) = call(&test_host, AgentConfig::new("test"), name, arguments.clone()).await;
        assert!(is_error && text.contains("probe@") && text.contains(expected), "{name} {arguments}: {text}");
    }
}

/// Row 8: If a call logs too much, the host cuts the log and counts the lost lines, and the call succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn row_8_cuts_a_flood_of_logs() {
    let test_host = TestHost::new(&["probe"]).await;
    let agent = test_host.agent(AgentConfig::new("test"), script(&[text_reply("unused")])).await;
    let (setup, ports) = (&agent.setups()["probe"], agent_plugins::Ports::default());
    let lost_log = async |lines: u64, length: u64| {
        let arguments = json!({"lines": lines, "length": length});
        let report = test_host.sandbox.call_tool(setup, request("probe.log", arguments), &ports).await;
        assert!(matches!(report.result, Ok(Ok(_))), "{:?}", report.result);
        report.lost_log
    };
    let few = lost_log(10, 10).await;
    assert_eq!((few.lines, few.bytes), (0, 0), "no line of an ordinary log is lost");
    // Each of 5,000 lines is logged once and printed twice, which makes 15,000 lines. The host keeps at most 1,000
    // lines and 256 KiB of them.
    let many = lost_log(5_000, 1_000).await;
    assert!(many.lines >= 14_000 && many.bytes > 15_000 * 1_000 - 256 * 1024, "{many:?}");
}

/// Row 9: If a call traps, its result is an error that names the plugin and contains the plugin's last output. The next
/// call gets a fresh instance.
#[tokio::test(flavor = "multi_thread")]
async fn row_9_a_trap_leaves_no_state_behind() {
    let test_host = TestHost::new(&["probe"]).await;
    let (is_error, text) = call(&test_host, AgentConfig::new("test"), "probe.panic", json!({"text": "oh no"})).await;
    assert!(is_error && text.contains("probe@") && text.contains("crashed") && text.contains("oh no"), "{text}");
    let first = call(&test_host, AgentConfig::new("test"), "probe.residue", json!({})).await;
    for _ in 0..20 {
        assert_eq!(call(&test_host, AgentConfig::new("test"), "probe.residue", json!({})).await, first);
    }
}

/// Row 11: If a file is not a component, the host refuses the file with an error that contains the reason, and loads
/// the other files in the folder.
#[tokio::test(flavor = "multi_thread")]
async fn row_11_refuses_files_that_are_not_components() {
    let test_host = TestHost::new(&["calc"]).await;
    let directory = test_host.directory.path().join("plugins");
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
    write("random.wasm", b"not wasm at all");
    write("module.wasm", b"\0asm\x01\0\0\0");
    write("empty.wasm", b"");
    write("huge.wasm", &vec![0; 33 << 20]);
    let component = std::fs::read(directory.join("calc.wasm")).unwrap();
    write("cut.wasm", &component[..component.len() / 2]);
    write("twin.wasm", &component);
    let (generation, problems) = test_host.load(&directory).await;
    assert!(generation.plugins().len() <= 1);
    for name in ["random.wasm", "module.wasm", "empty.wasm", "huge.wasm", "cut.wasm"] {
        assert!(problems.iter().any(|problem| problem.contains(name)), "{name}: {problems:?}");
    }
    let twins = problems.iter().find(|problem| problem.contains("calc.wasm") && problem.contains("twin.wasm"));
    assert!(twins.is_some(), "the report of the duplicate plugin names both files: {problems:?}");
}

/// Row 12: No path leads a guest out of its granted tree.
#[tokio::test(flavor = "multi_thread")]
async fn row_12_no_path_leaves_the_granted_tree() {
    let test_host = TestHost::new(&["probe", "files"]).await;
    let outside = test_host.directory.path().join("canary");
    std::fs::write(&outside, "the canary sings").unwrap();
    std::os::unix::fs::symlink(&outside, test_host.tree().join("link")).unwrap();
    std::os::unix::fs::symlink("/", test_host.tree().join("root")).unwrap();
    let canary = outside.display().to_string();
    for path in ["../canary", "./x/../../canary", "link", &canary, "root/etc/passwd", "/etc/passwd", "link/"] {
        for (name, arguments) in [
            ("files.read", json!({ "path": path })),
            ("files.write", json!({"path": path, "text": "dead", "mode": "overwrite"})),
            ("files.move", json!({"from": path, "to": "stolen"})),
        ] {
            let (_, text) = call(&test_host, with_tree_grant(&test_host, "files"), name, arguments).await;
            assert!(!text.contains("sings") && !text.contains("root:"), "{name} {path}: {text}");
        }
        // A guest may move a link within its tree. If the link points to a file outside of the tree, the guest may
        // not move that file.
        let stolen = test_host.tree().join("stolen");
        assert!(!stolen.symlink_metadata().is_ok_and(|about| about.is_file()), "{path} was moved into the tree");
        if stolen.is_symlink() {
            std::fs::rename(&stolen, test_host.tree().join("link")).unwrap();
        }
        let (is_error, text) =
            call(&test_host, with_tree_grant(&test_host, "probe"), "probe.file", json!({ "path": path })).await;
        assert!(is_error || !text.contains("sings"), "{path}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "the canary sings");
}

/// P8: A guest's error text is cut at 4 KiB, and its control characters never reach a terminal.
#[tokio::test(flavor = "multi_thread")]
async fn p8_cuts_and_escapes_error_texts() {
    let test_host = TestHost::new(&["probe"]).await;
    let message = format!("\u{1b}[31mred\u{7}{}", "x".repeat(100_000));
    let (is_error, text) =
        call(&test_host, AgentConfig::new("test"), "probe.fail", json!({"kind": "failed", "message": message})).await;
    assert!(is_error && text.len() < 6_000, "{} bytes", text.len());
    let message = serde_json::from_str::<Value>(&text).unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("red") && !message.chars().any(|char| char.is_control() && char != '\n'), "{message}");
}

/// The number of calls in the test of row 10.
const ROW_10_CALLS: u64 = 10_000;
/// The number of calls that run at the same time in the test of row 10.
const CONCURRENT_CALLS: u64 = 16;

/// Row 10: after 10,000 calls were cancelled at different moments, the resources of these calls are free, and the next
/// calls find all slots free.
#[tokio::test(flavor = "multi_thread")]
async fn row_10_cancelled_calls_leave_nothing_behind() {
    let test_host = TestHost::new(&["probe"]).await;
    let agent = test_host.agent(with_tree_grant(&test_host, "probe"), script(&[text_reply("unused")])).await;
    let setup = agent.setups()["probe"].clone();
    let ports = agent_plugins::Ports::default();
    let (mut cancelled, sandbox) = (0, &test_host.sandbox);
    for first in (0..ROW_10_CALLS).step_by(CONCURRENT_CALLS as usize) {
        let calls = (first..first + CONCURRENT_CALLS).map(|n| {
            let (name, args) = match n % 3 {
                0 => ("probe.spin", json!({})),
                1 => ("probe.sleep", json!({"ms": 60_000})),
                _ => ("probe.echo", json!({"text": "x"})),
            };
            let call = sandbox.call_tool(&setup, request(name, args), &ports);
            tokio::time::timeout(Duration::from_micros(n * 7 % 3_000), call)
        });
        let ended = futures::future::join_all(calls).await;
        cancelled += ended.iter().filter(|ended| ended.is_err()).count() as u64;
    }
    assert!(cancelled >= ROW_10_CALLS * 2 / 3, "two of three calls never end on their own: {cancelled}");
    // The test makes as many calls as the sandbox has slots. If a cancelled call still occupied a slot, one of these
    // calls would wait forever.
    let alive = (0..32).map(|_| sandbox.call_tool(&setup, request("probe.echo", json!({"text": "alive"})), &ports));
    let reports = tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(alive)).await;
    for report in reports.expect("every call gets a slot") {
        assert!(matches!(report.result, Ok(Ok(_))), "{:?}", report.result);
    }
}

/// Creates a request for a tool call that belongs to no session.
fn request(name: &'static str, args: Value) -> agent_plugins::ToolCallRequest<'static> {
    let scope = agent_core::plugin::Scope {
        agent: "test".to_owned(),
        session: "test/1".to_owned(),
        delegated_by: None,
        user: None,
        turn: 1,
        trace: agent_core::plugin::TraceContext { traceparent: String::new(), tracestate: None },
    };
    let id = agent_core::message::CallId("call_1_1_1".to_owned());
    let context = agent_plugins::ToolCallContext { id, attempt: 1, time_limit: Duration::from_secs(30), scope };
    agent_plugins::ToolCallRequest { name, args: args.to_string(), context }
}

/// Row 26: If a call's arguments or an event contain text that is not valid Unicode, the host refuses the arguments or
/// the event with an error that contains the reason. The next call runs.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_refuses_invalid_utf_8() {
    let test_host = TestHost::new(&["probe"]).await;
    let unpaired_surrogate = json!(r#"{"text": "\ud800"}"#);
    let replies = [
        call_reply(&[("probe.echo", unpaired_surrogate), ("probe.echo", json!({"text": "\u{1f600}"}))]),
        text_reply("Done."),
    ];
    let mut session = test_host.session(with_tree_grant(&test_host, "probe"), script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let results = results(&test_host, &session).await;
    assert!(results[0].1 && results[0].2.contains("hex escape"), "{results:?}");
    assert!(!results[1].1 && results[1].2.contains('\u{1f600}'), "{results:?}");
    let event = br#"{"specversion": "1.0", "id": "1", "source": "/x", "type": "x", "parentid": "c", "data": "\udc00"}"#;
    let refused = agent_core::cloud_event::CloudEvent::parse(event).unwrap_err().to_string();
    assert!(refused.contains("hex escape"), "{refused}");
}
