//! Row 21: servers that hang, crash, talk garbage or never stop talking. Each one is named in an error, leaves no process
//! behind, and keeps no other server from serving.

use crate::support::{Fixture, call, failed, names, problems, text, told, unavailable};
use agent_mcp::{Keep, MCP_LIMITS, McpServers};
use std::time::Duration;

/// A server of that mode beside a good one: the good one serves, and this is what is wrong with the other.
async fn beside_a_good_one(bad: &mut Fixture) -> String {
    bad.config.name = "bad".to_owned();
    let good = Fixture::new("good");
    let servers = McpServers::new([bad.config.clone(), good.config.clone()]).unwrap();
    let held = servers.acquire().await;
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    let problems = problems(&held);
    assert!(problems.contains("MCP server bad"), "{problems}");
    held.release().await;
    bad.diary.all_gone().await;
    problems
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_program_that_is_not_there_says_what_to_check() {
    let mut fixture = Fixture::new("good");
    fixture.command().command = "/nowhere/server".to_owned();
    let message = beside_a_good_one(&mut fixture).await;
    assert!(message.contains("/nowhere/server") && message.contains("check its `command`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_ends_at_once_is_quoted() {
    let message = beside_a_good_one(&mut Fixture::new("exits")).await;
    assert!(message.contains("cannot find \\u{1b}[31mits database"), "{message:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_hung_servers_are_given_up() {
    for (mode, said) in [("silent", "did not connect"), ("hang-list", "did not connect")] {
        let mut fixture = Fixture::new(mode);
        fixture.config.limits.connect_time = Duration::from_millis(500);
        let message = beside_a_good_one(&mut fixture).await;
        assert!(message.contains(said) && message.contains("500ms"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_an_endless_line_is_cut_off_before_it_is_stored() {
    let mut fixture = Fixture::new("endless-line");
    fixture.config.limits.message_bytes = 1 << 20;
    let message = beside_a_good_one(&mut fixture).await;
    assert!(message.contains("more than 1048576 bytes"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_list_that_is_none_is_reported() {
    let message = beside_a_good_one(&mut Fixture::new("nonsense-list")).await;
    assert!(message.contains("cannot be listed") && message.contains("not what the protocol says"), "{message}");
}

/// The catalogue's limits: pages, tools, bytes, and pages that go round.
#[tokio::test(flavor = "multi_thread")]
async fn i5_an_endless_catalogue_is_cut() {
    for (mode, tools, said) in [
        ("endless-pages", 50, "more than 50 pages"),
        ("circle", 2, "circle"),
        ("many", 1024, "more than 1024 tools"),
        ("fat", 2, "more than 16777216 bytes"),
    ] {
        let fixture = Fixture::new(mode);
        let held = fixture.servers().acquire().await;
        assert_eq!(names(&held).len(), tools, "{mode}: {}", problems(&held));
        assert!(problems(&held).contains(said), "{mode}: {}", problems(&held));
        let longest = held.catalogue().tools().map(|tool| tool.definition.description.len()).max();
        assert!(longest <= Some(2048), "{mode}");
        held.release().await;
    }
}

/// The catalogue's keys: each configured value is what acts.
#[tokio::test(flavor = "multi_thread")]
async fn i5_each_key_of_a_catalogue_acts() {
    let mut tried = std::collections::BTreeSet::new();
    for (key, value, mode, tools, said) in [
        ("catalogue_tools", 3, "many", 3, "more than 3 tools"),
        ("catalogue_pages", 4, "endless-pages", 4, "more than 4 pages"),
        ("catalogue_kib", 1, "many", 7, "more than 1024 bytes"),
        ("description_kib", 1, "fat", 2, ""),
        ("schema_depth", 1, "good", 0, "more than 1 levels"),
    ] {
        tried.insert(key);
        let mut fixture = Fixture::new(mode);
        let row = MCP_LIMITS.iter().find(|row| row.key == key).unwrap();
        (row.set)(&mut fixture.config.limits, value);
        let held = fixture.servers().acquire().await;
        assert_eq!(names(&held).len(), tools, "{key}: {}", problems(&held));
        assert!(problems(&held).contains(said), "{key}: {}", problems(&held));
        let longest = held.catalogue().tools().map(|tool| tool.definition.description.len()).max();
        assert!(key != "description_kib" || longest == Some(1024), "{key}: {longest:?}");
        held.release().await;
    }
    assert_eq!(tried, MCP_LIMITS.iter().map(|row| row.key).collect(), "each key has its case");
}

/// A tool that says of itself that it only reads and that it destroys is not called twice.
#[tokio::test(flavor = "multi_thread")]
async fn d3_a_tool_that_contradicts_itself_is_not_repeated() {
    let fixture = Fixture::new("lies");
    let held = fixture.servers().acquire().await;
    let traits = held.catalogue().tool("desk.lie").unwrap().definition.traits;
    assert!(traits.destructive && !traits.read_only && !traits.repeatable(), "{traits:?}");
    held.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_garbage_between_messages_is_survived() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let held = servers.acquire().await;
    assert_eq!(text(call(&servers, "garbage").await.unwrap()), "clean");
    assert_eq!(text(call(&servers, "loud").await.unwrap()), "was loud");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    assert_eq!(fixture.diary.started().len(), 1);
    held.release().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_call_that_hangs_is_ended_and_the_server_is_told() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_millis(300);
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "hang").await);
    assert!(message.contains("desk") && message.contains("300ms"), "{message}");
    fixture.diary.until_noted("notifications/cancelled").await;
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    held.release().await;
}

/// A server that answers nothing at all any more is ended, and no further call waits for it as long again: it fails at once
/// until the server is started anew.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_stalls_is_ended_and_left_alone() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_secs(3);
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "stall").await);
    assert!(message.contains("no result within 3s") && message.contains("answers nothing else"), "{message}");
    let message = unavailable(call(&servers, "echo").await);
    assert!(message.contains("tried again in") && message.contains("gave no result within 3s"), "{message}");
    fixture.diary.all_gone().await;
    assert_eq!((fixture.diary.count("tools/call"), fixture.diary.started().len()), (1, 1));
    // In the end it serves again.
    let again = async {
        while call(&servers, "echo").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("it is started again");
    assert_eq!(fixture.diary.started().len(), 2);
    held.release().await;
}

/// A server that dies in a call: the call is not repeated, the next one starts the server anew, and one that dies again
/// and again is left alone for longer and longer.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_crashed_server_is_restarted_with_backoff_and_no_call_is_repeated() {
    let mut fixture = Fixture::new("good");
    fixture.config.keep = Keep::Always;
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "die").await);
    assert!(message.contains("whether the call took effect is not known"), "{message}");
    let calls = || fixture.diary.count("tools/call");
    assert_eq!((calls(), fixture.diary.started().len()), (1, 1), "nothing was repeated or restarted by itself");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    assert_eq!(fixture.diary.started().len(), 2);
    let mut left_alone = None;
    for _ in 0..10 {
        let message = told(call(&servers, "die").await);
        if message.contains("is tried again in") {
            left_alone = Some(message);
            break;
        }
    }
    let message = left_alone.expect("a server that keeps dying is not started again and again");
    assert!(message.contains("it ended"), "{message}");
    assert!(fixture.diary.started().len() <= 6, "{:?}", fixture.diary.started());
    // A turn that begins meanwhile is told the same, at once, and has no tool of it.
    let next = servers.acquire().await;
    assert!(names(&next).is_empty() && problems(&next).contains("tried again in"), "{}", problems(&next));
    drop((held, next));
    servers.shutdown().await;
    fixture.diary.all_gone().await;
}

/// Also where each turn begins and ends a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_never_starts_is_left_alone_over_turns() {
    let fixture = Fixture::new("exits");
    let servers = fixture.servers();
    let mut told = String::new();
    for _ in 0..8 {
        let held = servers.acquire().await;
        told = problems(&held);
        held.release().await;
    }
    assert!(told.contains("is tried again in") && told.contains("database"), "{told}");
    assert!(fixture.diary.started().len() <= 4, "{:?}", fixture.diary.started());
}

/// A server that asks without end and reads no answer is not heard any more: nothing piles up here.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_server_that_asks_without_end_is_not_heard() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.call_time = Duration::from_secs(2);
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "flood").await);
    assert!(message.contains("no result within 2s"), "{message}");
    // What the two pipes and our own bound hold; a host that heard all would have taken a hundred times as many.
    let thousands = fixture.diary.count("a thousand questions");
    assert!(thousands <= 10, "{thousands} thousand questions were heard");
    held.release().await;
    fixture.diary.all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_huge_line_ends_the_call_and_not_the_host() {
    let mut fixture = Fixture::new("good");
    fixture.config.limits.message_bytes = 1 << 20;
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "huge").await);
    assert!(message.contains("more than 1048576 bytes"), "{message}");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    held.release().await;
    fixture.diary.all_gone().await;
}

/// An answer that is nested deeper than JSON is read here is an error at once, and not one that is never heard.
#[tokio::test(flavor = "multi_thread")]
async fn i5_a_deep_answer_ends_the_call_and_not_the_host() {
    let fixture = Fixture::new("good");
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = failed(call(&servers, "deep").await);
    assert!(message.contains("more than 127 levels"), "{message}");
    assert_eq!(text(call(&servers, "echo").await.unwrap()), "hi");
    held.release().await;
    fixture.diary.all_gone().await;
}

/// A lost call of a tool that only reads may be made again; of any other nobody can say so.
#[tokio::test(flavor = "multi_thread")]
async fn d3_only_what_only_reads_is_said_to_be_available_later() {
    let mut fixture = Fixture::new("mortal");
    fixture.config.keep = Keep::Always;
    let servers = fixture.servers();
    let held = servers.acquire().await;
    let message = unavailable(call(&servers, "look").await);
    assert!(message.contains("was lost during the call") && !message.contains("took effect"), "{message}");
    let message = failed(call(&servers, "die").await);
    assert!(message.contains("whether the call took effect is not known: find out"), "{message}");
    drop(held);
    servers.shutdown().await;
}

/// Row 16: what a server was given does not come back from it.
#[tokio::test(flavor = "multi_thread")]
async fn row16_a_servers_credentials_are_not_heard_from_it() {
    for mode in ["good", "leaves"] {
        let mut fixture = Fixture::new(mode);
        fixture.command().env.insert("DESK_TOKEN".to_owned(), "canary-of-the-desk".to_owned());
        let servers = fixture.servers();
        let held = servers.acquire().await;
        if mode == "leaves" {
            let told = problems(&held);
            assert!(told.contains("no database for (secret)") && !told.contains("canary"), "{told}");
            continue;
        }
        assert_eq!(text(call(&servers, "leak").await.unwrap()), "signed in with (secret)");
        let error = call(&servers, "leak-error").await.unwrap_err().for_model();
        assert!(error.contains("(secret) may not do this") && !error.contains("canary"), "{error}");
        held.release().await;
    }
}
