//! Tests of `store check` and `store rebuild`, with the real binary. The commands compare the tables for searching and
//! listing with the log, and rebuild these tables from the log (D6; limit 28).

use crate::approvals::command_line::TestCli;
use crate::support::text_reply;
use serde_json::Value;

/// Creates two sessions, each with one turn and its memories.
fn cli() -> TestCli {
    let cli = TestCli::new("", &[text_reply("The walrus sleeps.")]);
    for prompt in ["How is the walrus?", "And the otter?"] {
        let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--user", "ann", prompt]);
        assert_eq!(code, Some(0), "{stderr}");
    }
    assert_eq!(found_counts(&cli), [1, 1, 2]);
    cli
}

/// Returns the number of messages, memories and sessions that the search and list commands find.
fn found_counts(cli: &TestCli) -> [usize; 3] {
    let lines = |arguments: &[&str]| {
        let (code, printed, stderr) = cli.run(arguments);
        assert_eq!(code, Some(0), "{stderr}");
        printed.lines().filter(|line| line.starts_with('{')).count()
    };
    [
        lines(&["session", "search", "otter", "--user", "ann", "--json"]),
        lines(&["memory", "search", "otter", "--user", "ann", "--json"]),
        lines(&["session", "list", "--user", "ann", "--json"]),
    ]
}

fn damage(cli: &TestCli, sql: &str) {
    let connection = rusqlite::Connection::open(cli.path("data/agent-host.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn d6_reports_and_repairs_damage() {
    let cli = cli();
    let (code, printed, stderr) = cli.run(&["store", "check"]);
    assert_eq!(code, Some(0), "{stderr}");
    for line in [
        "is intact",
        "✓ the search index of messages: 4 messages",
        "✓ the search index of memories: 2 memories",
        "✓ the list of sessions: 2 sessions",
        "✓ the usage of turns: 2 turns",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    damage(
        &cli,
        "DELETE FROM message_words WHERE rowid = 3; DELETE FROM memory_words; UPDATE sessions SET state = 'running', turns = 9 WHERE id = 1;
         UPDATE turn_usage SET model_calls = 8 WHERE session = 1",
    );
    assert_eq!(found_counts(&cli), [0, 0, 2]);
    let (code, printed, stderr) = cli.run(&["store", "check"]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "✗ the search index of messages: 4 messages, 1 of them different",
        "message 1 of session clerk/",
        "✗ the search index of memories: 2 memories, 2 of them different",
        "memory clerk/",
        "stored running, 9 turns, 2 messages",
        "but the log has idle, 1 turns, 2 messages",
        "✗ the usage of turns: 2 turns, 1 of them different",
        "turn 1 of session clerk/",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(stderr.contains("agent-host store rebuild"), "{stderr}");
    let (code, printed, _) = cli.run(&["store", "check", "--json"]);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, &lines[0]["problem"], &lines[1]["different"]), (Some(1), &Value::Null, &Value::from(1)));
    let (code, printed, stderr) = cli.run(&["store", "rebuild"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(printed.contains("rebuilt the search index of messages from 4 messages"), "{printed}");
    let (code, printed, _) = cli.run(&["store", "check"]);
    assert_eq!((code, printed.matches('✓').count()), (Some(0), 5), "{printed}");
    assert_eq!(found_counts(&cli), [1, 1, 2]);
}

/// If an index is corrupt, the error names the command that repairs the index. The command `store rebuild` creates the
/// index again from the log, which can still be read.
#[test]
fn d6_rebuilds_a_corrupt_index() {
    let cli = cli();
    damage(&cli, "DELETE FROM message_words_data");
    let (code, _, stderr) = cli.run(&["session", "list"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("no messages or memories are lost: run `agent-host store rebuild`"), "{stderr}");
    let (code, printed, stderr) = cli.run(&["store", "check"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(printed.contains("the index cannot be read"), "{printed}");
    let (code, printed, stderr) = cli.run(&["store", "rebuild"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(printed.contains("the index cannot be read"), "the problem is reported: {printed}");
    assert_eq!(found_counts(&cli), [1, 1, 2]);
}

/// If the log is damaged, `store check` and `store rebuild` report this and change nothing. If the database is missing,
/// `store rebuild` does not create it.
#[test]
fn limit_28_leaves_a_damaged_log_unchanged() {
    let cli = cli();
    let database = cli.path("data/agent-host.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4 * 4096].fill(0x5a);
    std::fs::write(&database, &bytes).unwrap();
    for command in ["check", "rebuild"] {
        let (code, printed, stderr) = cli.run(&["store", command]);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("is damaged") && stderr.contains("restore it from a backup"), "{stderr}");
    }
    assert_eq!(std::fs::read(&database).unwrap(), bytes);
    std::fs::remove_file(&database).unwrap();
    let (code, _, stderr) = cli.run(&["store", "rebuild"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("there is no database") && !database.exists(), "{stderr}");
}

/// Row 28: If the files of the store are read-only, commands that only read stored data work, and commands that write
/// are refused.
#[cfg(unix)]
#[test]
fn row_28_a_read_only_store_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let cli = cli();
    let database = cli.path("data/agent-host.db");
    let allow = |mode| std::fs::set_permissions(&database, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o400);
    let before = std::fs::read(&database).unwrap();
    assert_eq!(found_counts(&cli), [1, 1, 2]);
    let show = ["session", "show", "--user", "ann"];
    for command in [&show[..], &["audit"], &["approvals", "list"], &["outbox", "list"], &["memory", "list"]] {
        let (code, _, stderr) = cli.run(command);
        assert!(code == Some(0) && stderr.contains("opened for reading only"), "{command:?}: {stderr}");
    }
    let (_, listed, _) = cli.run(&["session", "list", "--user", "ann", "--json"]);
    let latest: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let delete = ["session", "delete", latest["subject"].as_str().unwrap(), "--yes", "--user", "ann"];
    for command in [&delete[..], &["--agent", "agent.toml", "hello"]] {
        let (code, _, stderr) = cli.run(command);
        assert!(code == Some(2) && stderr.contains("cannot be written"), "{command:?}: {code:?} {stderr}");
    }
    assert!(std::fs::read(&database).unwrap() == before, "nothing was written");
    allow(0o600);
    assert_eq!(cli.run(&delete).0, Some(0));
}
