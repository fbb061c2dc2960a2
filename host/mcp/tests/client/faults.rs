//! Tests of servers that hang, crash, send invalid data or send data endlessly (row 21). For each of these faults,
//! an error contains the server's name. In addition, all processes of the server end, and other servers keep working.

use crate::support::{Fixture, call, error_message, failed_message, names, problems, text, unavailable_message};
use agent_mcp::{KeepConnected, MCP_LIMITS, McpServers};
use std::time::Duration;

/// Runs the faulty server together with a working server. Checks that a tool of the working server can be called, and
/// returns the problems of the faulty server.
async fn run_with_good_server(bad: &mut Fixture) -> String {
    bad.config.name = "bad".to_owned();
    let good = Fixture::new("good");
    let servers = McpServers::new([bad.config.clone(), good.config.clone()]).unwrap();
    let acquired = servers.acquire().await;
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    let problems = problems(&acquired);
    assert!(problems.contains("MCP server bad"), "{problems}");
    acquired.release().await;
    bad.log.all_gone().await;
    problems
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_missing_program_is_reported_with_advice() {
    let mut fixture = Fixture::new("good");
    fixture.command().command = "/nowhere/server".to_owned();
    let message = run_with_good_server(&mut fixture).await;
    assert!(message.contains("/nowhere/server") && message.contains("check its `command`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_the_output_of_a_server_that_exits_immediately_is_quoted() {
    let message = run_with_good_server(&mut Fixture::new("exits")).await;
    assert!(message.contains("cannot find \\u{1b}[31mits database"), "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_hanging_servers_time_out() {
    for (mode, expected) in [("silent", "did not connect"), ("hang-list", "did not connect")] {
        let mut fixture = Fixture::new(mode);
        fixture.config.limits.connect_time = Duration::from_millis(500);
        let message = run_with_good_server(&mut fixture).await;
        assert!(message.contains(expected) && message.contains("500ms"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_endless_line_is_rejected_before_it_is_stored() {
    let mut fixture = Fixture::new("endless-line");
    fixture.config.limits.message_bytes = 1 << 20;
    let message = run_with_good_server(&mut fixture).await;
    assert!(message.contains("more than 1048576 bytes"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_invalid_tool_list_is_reported() {
    let message = run_with_good_server(&mut Fixture::new("nonsense-list")).await;
    assert!(message.contains("cannot be listed") && message.contains("does not follow the protocol"), "{message}");
}

/// A tool list is truncated if it has too many pages, tools or bytes, or if its last page refers to itself.
#[tokio::test(flavor = "multi_thread")]
async fn i5_an_endless_catalogue_is_truncated() {
    for (mode, tools, expected) in [
        ("endless-pages", 50, "more than 50 pages"),
        ("circle", 2, "refers to itself as the next page"),
        ("many", 1024, "more than 1024 tools"),
        ("fat", 2, "more than 16777216 bytes"),
    ] {
        let fixture = Fixture::new(mode);
        let acquired = fixture.servers().acquire().await;
        assert_eq!(names(&acquired).len(), tools, "{mode}: {}", problems(&acquired));
        assert!(problems(&acquired).contains(expected), "{mode}: {}", problems(&acquired));
        let max_length = acquired.catalogue().tools().map(|tool| tool.definition.description.len()).max();
        assert!(max_length <= Some(2048), "{mode}");
        acquired.release().await;
    }
}

/// Each configuration key that limits a tool list has the documented effect.
#[tokio::test(flavor = "multi_thread")]
async fn i5_every_configured_catalogue_limit_takes_effect() {
    let mut tested = std::collections::BTreeSet::new();
    for (key, value, mode, tools, expected) in [
        ("catalogue_tools", 3, "many", 3, "more than 3 tools"),
        ("catalogue_pages", 4, "endless-pages", 4, "more than 4 pages"),
        ("catalogue_kib", 1, "many", 7, "more than 1024 bytes"),
        ("description_kib", 1, "fat", 2, ""),
        ("schema_depth", 1, "good", 0, "more than 1 levels"),
    ] {
        tested.insert(key);
        let mut fixture = Fixture::new(mode);
        let row = MCP_LIMITS.iter().find(|row| row.key == key).unwrap();
        (row.set)(&mut fixture.config.limits, value);
        let acquired = fixture.servers().acquire().await;
        assert_eq!(names(&acquired).len(), tools, "{key}: {}", problems(&acquired));
        assert!(problems(&acquired).contains(expected), "{key}: {}", problems(&acquired));
        let max_length = acquired.catalogue().tools().map(|tool| tool.definition.description.len()).max();
        assert!(key != "description_kib" || max_length == Some(1024), "{key}: {max_length:?}");
        acquired.release().await;
    }
    assert_eq!(tested, MCP_LIMITS.iter().map(|row| row.key).collect(), "every key has a case");
}

/// D3: a tool that the server declares both read-only and destructive is not repeatable.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_tool_with_contradictory_hints_is_not_repeatable() {
    let fixture = Fixture::new("lies");
    let acquired = fixture.servers().acquire().await;
    let traits = acquired.catalogue().tool("desk.lie").unwrap().definition.traits;
    assert!(traits.destructive && !traits.read_only && !traits.repeatable(), "{traits:?}");
    acquired.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_invalid_lines_between_messages_are_ignored() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    assert_eq!(text(call(&servers, "garbage").await.unwrap()), "clean");
    assert_eq!(text(call(&servers, "loud").await.unwrap()), "was loud");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    assert_eq!(fixture.log.started().len(), 1);
    acquired.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_hanging_call_times_out_and_is_cancelled() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_millis(300);
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "hang").await);
    assert!(message.contains("desk") && message.contains("300ms"), "{message}");
    fixture.log.wait_until_logged("notifications/cancelled").await;
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    acquired.release().await;
}

/// If a server no longer responds, the host ends it. Until the server is restarted, further calls to the server
/// fail immediately.
#[tokio::test(flavor = "multi_thread")]
async fn i5_an_unresponsive_server_is_stopped_and_restarted_after_backoff() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_secs(3);
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "stall").await);
    assert!(
        message.contains("no result within 3s") && message.contains("does not respond to other requests either"),
        "{message}"
    );
    let message = unavailable_message(call(&servers, "echo").await);
    assert!(message.contains("retried in") && message.contains("returned no result within 3s"), "{message}");
    fixture.log.all_gone().await;
    assert_eq!((fixture.log.count("tools/call"), fixture.log.started().len()), (1, 1));
    // The server works again after the backoff.
    let restarted = async {
        while call(&servers, "echo").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), restarted).await.expect("the server is restarted");
    assert_eq!(fixture.log.started().len(), 2);
    acquired.release().await;
}

/// If a server exits during a call, the call is not repeated, and the next call restarts the server. If the server
/// exits repeatedly, the host waits longer before each restart.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_crashed_server_is_restarted_with_backoff_and_no_call_is_repeated() {
    let mut fixture = Fixture::new("good");
    fixture.config.keep = KeepConnected::Always;
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "die").await);
    assert!(message.contains("it is not known whether the call took effect"), "{message}");
    let calls = || fixture.log.count("tools/call");
    assert_eq!(
        (calls(), fixture.log.started().len()),
        (1, 1),
        "the call is not repeated and the server is not restarted"
    );
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    assert_eq!(fixture.log.started().len(), 2);
    let mut backing_off = None;
    for _ in 0..10 {
        let message = error_message(call(&servers, "die").await);
        if message.contains("is retried in") {
            backing_off = Some(message);
            break;
        }
    }
    let message = backing_off.expect("a server that exits repeatedly is not restarted immediately");
    assert!(message.contains("it exited"), "{message}");
    assert!(fixture.log.started().len() <= 6, "{:?}", fixture.log.started());
    // The host waits before it tries to connect again. A turn that starts before this attempt immediately gets
    // the same error as a call, and does not get the server's tools.
    let next = servers.acquire().await;
    assert!(names(&next).is_empty() && problems(&next).contains("retried in"), "{}", problems(&next));
    drop((acquired, next));
    servers.shutdown().await;
    fixture.log.all_gone().await;
}

/// The backoff counts failures across turns, even though each turn opens a separate connection.
#[tokio::test(flavor = "multi_thread")]
async fn i5_backoff_of_a_server_that_never_starts_continues_in_later_turns() {
    let fixture = Fixture::new("exits");
    let servers = fixture.servers();
    let mut error_message = String::new();
    for _ in 0..8 {
        let acquired = servers.acquire().await;
        error_message = problems(&acquired);
        acquired.release().await;
    }
    assert!(error_message.contains("is retried in") && error_message.contains("database"), "{error_message}");
    assert!(fixture.log.started().len() <= 4, "{:?}", fixture.log.started());
}

/// The client stops reading from a server that endlessly sends requests and reads no responses, so that the requests do
/// not accumulate in the host's memory.
#[tokio::test(flavor = "multi_thread")]
async fn i5_reading_stops_if_a_server_sends_endless_requests() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_secs(2);
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "flood").await);
    assert!(message.contains("no result within 2s"), "{message}");
    // The server can write only as many requests as fit into its two pipes and the client's buffer. If the client had
    // not stopped reading, it would have read a hundred times as many requests.
    let sent_thousands = fixture.log.count("a thousand questions");
    assert!(sent_thousands <= 5, "{sent_thousands} thousand requests were sent");
    acquired.release().await;
    fixture.log.all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_huge_line_makes_only_the_current_call_fail() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.message_bytes = 1 << 20;
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "huge").await);
    assert!(message.contains("more than 1048576 bytes"), "{message}");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    acquired.release().await;
    fixture.log.all_gone().await;
}

/// A call fails immediately if its response is nested more deeply than the JSON parser accepts.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_deeply_nested_response_makes_only_the_current_call_fail() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = failed_message(call(&servers, "deep").await);
    assert!(message.contains("more than 127 levels"), "{message}");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    acquired.release().await;
    fixture.log.all_gone().await;
}

/// D3: if the connection is lost during a call, the error allows the call to be repeated only if the tool is read-only.
#[tokio::test(flavor = "multi_thread")]
async fn d3_only_lost_calls_of_read_only_tools_are_retryable() {
    let mut fixture = Fixture::new("mortal");
    fixture.config.keep = KeepConnected::Always;
    let servers = fixture.servers();
    let acquired = servers.acquire().await;
    let message = unavailable_message(call(&servers, "look").await);
    assert!(message.contains("was lost during the call") && !message.contains("took effect"), "{message}");
    let message = failed_message(call(&servers, "die").await);
    assert!(message.contains("it is not known whether the call took effect: check before you repeat it"), "{message}");
    drop(acquired);
    servers.shutdown().await;
}

/// Row 16: the credentials of a server are redacted in its results, errors and standard error output.
#[tokio::test(flavor = "multi_thread")]
async fn row16_credentials_in_server_output_are_redacted() {
    for mode in ["good", "leaves"] {
        let mut fixture = Fixture::new(mode);
        fixture.command().env.insert("DESK_TOKEN".to_owned(), "canary-of-the-desk".to_owned());
        let servers = fixture.servers();
        let acquired = servers.acquire().await;
        if mode == "leaves" {
            let error_message = problems(&acquired);
            assert!(
                error_message.contains("no database for (secret)") && !error_message.contains("canary"),
                "{error_message}"
            );
            continue;
        }
        assert_eq!(text(call(&servers, "leak").await.unwrap()), "signed in with (secret)");
        let error = call(&servers, "leak-error").await.unwrap_err().for_model();
        assert!(error.contains("(secret) may not do this") && !error.contains("canary"), "{error}");
        acquired.release().await;
    }
}
