//! Guests that misbehave: each is stopped at a named limit, and nothing else suffers (limits and threats).

use crate::support::{House, calling, granting, results, saying, script, turn};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Runs one call and gives its result.
async fn call(house: &House, config: AgentConfig, name: &str, arguments: Value) -> (bool, String) {
    let mut session = house.session(config, script(&[calling(&[(name, arguments)]), saying("Done.")])).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let (_, is_error, text) = results(house, &session).await.remove(0);
    session.close().await.unwrap();
    (is_error, text)
}

/// An agent whose calls have half a second.
fn hurried(house: &House) -> AgentConfig {
    let mut config = granting(house, "probe");
    let allowance = config.plugins.get_mut("probe").unwrap();
    allowance.limits.tool_time = Duration::from_millis(500);
    config
}

/// Rows 1 and 2: an endless loop, eight at once, and a sleep of an hour end at their time; another agent goes on.
#[tokio::test(flavor = "multi_thread")]
async fn rows_1_and_2_time() {
    let house = House::new(&["probe"]).await;
    let started = Instant::now();
    let spins: Vec<_> = (0..8).map(|_| ("probe.spin", json!({}))).collect();
    let mut config = hurried(&house);
    config.bounds.parallel_calls = 8;
    let mut session = house.session(config, script(&[calling(&spins), saying("Done.")])).await;
    let other = async {
        for _ in 0..5 {
            let (is_error, text) =
                call(&house, AgentConfig::new("other"), "probe.echo", json!({"text": "alive"})).await;
            assert!(!is_error && text.contains("alive"), "{text}");
        }
    };
    let (result, ()) = tokio::join!(turn(&mut session, "Spin."), other);
    assert!(matches!(result, TurnResult::Finished(_)));
    for (_, is_error, text) in results(&house, &session).await {
        assert!(is_error && text.contains("probe@") && text.contains("limit"), "{text}");
    }
    let (is_error, text) = call(&house, hurried(&house), "probe.sleep", json!({"ms": 3_600_000})).await;
    assert!(is_error && text.contains("wall time of 500ms"), "{text}");
    // Not a measurement: an hour's sleep that was not stopped would be far behind this.
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// Rows 3, 4 and 6: stack, memory and the size of results are bounded, and the error names the limit and the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn rows_3_4_and_6_space() {
    let house = House::new(&["probe"]).await;
    let (is_error, text) = call(&house, AgentConfig::new("test"), "probe.allocate", json!({"mib": 200})).await;
    assert!(is_error && text.contains("refused after 6"), "memory of 64 MiB, less what the guest has already: {text}");
    let cases = [
        // A guest of Rust keeps most of its stack in its memory, so that is what overflows first.
        ("probe.recurse", json!({"depth": 100_000_000_u64}), "out of bounds memory access"),
        ("probe.bytes", json!({"bytes": 2 << 20}), "1 MiB of text and JSON"),
        ("probe.bytes", json!({"bytes": 32 << 20}), "handed to the host at once"),
    ];
    for (name, arguments, expected) in cases {
        let (is_error, text) = call(&house, AgentConfig::new("test"), name, arguments.clone()).await;
        assert!(is_error && text.contains("probe@") && text.contains(expected), "{name} {arguments}: {text}");
    }
}

/// Row 8: a flood of logs is cut, what was lost is counted, and the call is none the worse.
#[tokio::test(flavor = "multi_thread")]
async fn row_8_logs() {
    let house = House::new(&["probe"]).await;
    let agent = house.agent(AgentConfig::new("test"), script(&[saying("unused")])).await;
    let (setup, ports) = (&agent.setups()["probe"], agent_plugins::Ports::default());
    let lost = async |lines: u64, length: u64| {
        let arguments = json!({"lines": lines, "length": length});
        let report = house.sandbox.call_tool(setup, request("probe.log", arguments), &ports).await;
        assert!(matches!(report.result, Ok(Ok(_))), "{:?}", report.result);
        report.lost_log
    };
    let few = lost(10, 10).await;
    assert_eq!((few.lines, few.bytes), (0, 0), "an ordinary log is whole");
    // Each line is logged once and printed twice: 15,000 lines, of which at most 1,000 and 256 KiB are kept.
    let many = lost(5_000, 1_000).await;
    assert!(many.lines >= 14_000 && many.bytes > 15_000 * 1_000 - 256 * 1024, "{many:?}");
}

/// Row 9: a trap is an error that names the plugin with its last words, and the next call finds a fresh instance.
#[tokio::test(flavor = "multi_thread")]
async fn row_9_a_trap_leaves_nothing() {
    let house = House::new(&["probe"]).await;
    let (is_error, text) = call(&house, AgentConfig::new("test"), "probe.panic", json!({"text": "oh no"})).await;
    assert!(is_error && text.contains("probe@") && text.contains("crashed") && text.contains("oh no"), "{text}");
    let first = call(&house, AgentConfig::new("test"), "probe.residue", json!({})).await;
    for _ in 0..20 {
        assert_eq!(call(&house, AgentConfig::new("test"), "probe.residue", json!({})).await, first);
    }
}

/// Row 11: files that are no components are refused with the reason, and the others are loaded.
#[tokio::test(flavor = "multi_thread")]
async fn row_11_bad_files() {
    let house = House::new(&["calc"]).await;
    let directory = house.directory.path().join("plugins");
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
    write("random.wasm", b"not wasm at all");
    write("module.wasm", b"\0asm\x01\0\0\0");
    write("empty.wasm", b"");
    write("huge.wasm", &vec![0; 33 << 20]);
    let whole = std::fs::read(directory.join("calc.wasm")).unwrap();
    write("cut.wasm", &whole[..whole.len() / 2]);
    write("twin.wasm", &whole);
    let (generation, problems) = house.load(&directory).await;
    assert!(generation.plugins().len() <= 1);
    for name in ["random.wasm", "module.wasm", "empty.wasm", "huge.wasm", "cut.wasm"] {
        assert!(problems.iter().any(|problem| problem.contains(name)), "{name}: {problems:?}");
    }
    let twins = problems.iter().find(|problem| problem.contains("calc.wasm") && problem.contains("twin.wasm"));
    assert!(twins.is_some(), "a duplicate names both files: {problems:?}");
}

/// Row 12: no path leads a guest out of its granted tree.
#[tokio::test(flavor = "multi_thread")]
async fn row_12_paths() {
    let house = House::new(&["probe", "files"]).await;
    let outside = house.directory.path().join("canary");
    std::fs::write(&outside, "the canary sings").unwrap();
    std::os::unix::fs::symlink(&outside, house.tree().join("link")).unwrap();
    std::os::unix::fs::symlink("/", house.tree().join("root")).unwrap();
    let canary = outside.display().to_string();
    for path in ["../canary", "./x/../../canary", "link", &canary, "root/etc/passwd", "/etc/passwd", "link/"] {
        for (name, arguments) in [
            ("files.read", json!({ "path": path })),
            ("files.write", json!({"path": path, "text": "dead", "mode": "overwrite"})),
            ("files.move", json!({"from": path, "to": "stolen"})),
        ] {
            let (_, text) = call(&house, granting(&house, "files"), name, arguments).await;
            assert!(!text.contains("sings") && !text.contains("root:"), "{name} {path}: {text}");
        }
        // A link within the tree may be moved; what it points to may not.
        let stolen = house.tree().join("stolen");
        assert!(!stolen.symlink_metadata().is_ok_and(|about| about.is_file()), "{path} was moved into the tree");
        if stolen.is_symlink() {
            std::fs::rename(&stolen, house.tree().join("link")).unwrap();
        }
        let (is_error, text) = call(&house, granting(&house, "probe"), "probe.file", json!({ "path": path })).await;
        assert!(is_error || !text.contains("sings"), "{path}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "the canary sings");
}

/// P8: a guest's error text is cut at 4 KiB, and its control characters never reach a terminal.
#[tokio::test(flavor = "multi_thread")]
async fn error_texts_are_cut_and_escaped() {
    let house = House::new(&["probe"]).await;
    let message = format!("\u{1b}[31mred\u{7}{}", "x".repeat(100_000));
    let (is_error, text) =
        call(&house, AgentConfig::new("test"), "probe.fail", json!({"kind": "failed", "message": message})).await;
    assert!(is_error && text.len() < 6_000, "{} bytes", text.len());
    let message = serde_json::from_str::<Value>(&text).unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("red") && !message.chars().any(|char| char.is_control() && char != '\n'), "{message}");
}

/// Calls that are cancelled in row 10, and how many of them work side by side.
const CANCELLED: u64 = 10_000;
const AT_ONCE: u64 = 16;

/// Row 10: 10,000 calls that are cancelled at any moment leave nothing behind: the next ones find all their places.
#[tokio::test(flavor = "multi_thread")]
async fn row_10_cancelled_calls() {
    let house = House::new(&["probe"]).await;
    let agent = house.agent(granting(&house, "probe"), script(&[saying("unused")])).await;
    let setup = agent.setups()["probe"].clone();
    let ports = agent_plugins::Ports::default();
    let (mut cancelled, sandbox) = (0, &house.sandbox);
    for first in (0..CANCELLED).step_by(AT_ONCE as usize) {
        let calls = (first..first + AT_ONCE).map(|n| {
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
    assert!(cancelled >= CANCELLED * 2 / 3, "two of three never end by themselves: {cancelled}");
    // As many at once as there are places, so that one that is still taken makes the others wait for ever.
    let alive = (0..32).map(|_| sandbox.call_tool(&setup, request("probe.echo", json!({"text": "alive"})), &ports));
    let reports = tokio::time::timeout(Duration::from_secs(60), futures::future::join_all(alive)).await;
    for report in reports.expect("all have a place") {
        assert!(matches!(report.result, Ok(Ok(_))), "{:?}", report.result);
    }
}

/// A call outside of any session.
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

/// Row 26: half a character in a call's arguments, in an event, or in an input file is refused with the reason, and what comes next works.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_half_characters_are_refused() {
    let house = House::new(&["probe"]).await;
    let half = json!(r#"{"text": "\ud800"}"#);
    let replies = [calling(&[("probe.echo", half), ("probe.echo", json!({"text": "\u{1f600}"}))]), saying("Done.")];
    let mut session = house.session(granting(&house, "probe"), script(&replies)).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let results = results(&house, &session).await;
    assert!(results[0].1 && results[0].2.contains("hex escape"), "{results:?}");
    assert!(!results[1].1 && results[1].2.contains('\u{1f600}'), "{results:?}");
    let event = br#"{"specversion": "1.0", "id": "1", "source": "/x", "type": "x", "parentid": "c", "data": "\udc00"}"#;
    let refused = agent_core::cloud_event::CloudEvent::parse(event).unwrap_err().to_string();
    assert!(refused.contains("hex escape"), "{refused}");
}
