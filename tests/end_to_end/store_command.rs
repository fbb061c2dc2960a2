//! `store check` and `store rebuild` with the real binary: what is only there to be searched and listed is compared with what
//! was said, and made anew from it (D6; limit 28).

use crate::approvals::command_line::Desk;
use crate::support::saying;
use serde_json::Value;

/// Two sessions, each of one turn, and what is remembered of them.
fn desk() -> Desk {
    let desk = Desk::new("", &[saying("The walrus sleeps.")]);
    for prompt in ["How is the walrus?", "And the otter?"] {
        let (code, _, said) = desk.run(&["--agent", "agent.toml", "--user", "ann", prompt]);
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(found(&desk), [1, 1, 2]);
    desk
}

/// How many messages, memories and sessions are found.
fn found(desk: &Desk) -> [usize; 3] {
    let lines = |arguments: &[&str]| {
        let (code, printed, said) = desk.run(arguments);
        assert_eq!(code, Some(0), "{said}");
        printed.lines().filter(|line| line.starts_with('{')).count()
    };
    [
        lines(&["session", "search", "otter", "--user", "ann", "--json"]),
        lines(&["memory", "search", "otter", "--user", "ann", "--json"]),
        lines(&["session", "list", "--user", "ann", "--json"]),
    ]
}

fn damage(desk: &Desk, sql: &str) {
    let connection = rusqlite::Connection::open(desk.path("data/agent-host.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[test]
fn d6_damage_is_named_and_made_good() {
    let desk = desk();
    let (code, printed, said) = desk.run(&["store", "check"]);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "is whole",
        "✓ the words of messages: 4 messages",
        "✓ the words of memories: 2 memories",
        "✓ the list of sessions: 2 sessions",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    damage(
        &desk,
        "DELETE FROM message_words WHERE rowid = 3; DELETE FROM memory_words; UPDATE sessions SET state = 'running', turns = 9 WHERE id = 1",
    );
    assert_eq!(found(&desk), [0, 0, 2]);
    let (code, printed, said) = desk.run(&["store", "check"]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "✗ the words of messages: of 4 messages 1 differ",
        "message 1 of session clerk/",
        "✗ the words of memories: of 2 memories 2 differ",
        "memory clerk/",
        "says running, 9 turns, 2 messages",
        "and its log idle, 1 turns, 2 messages",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(said.contains("agent-host store rebuild"), "{said}");
    let (code, printed, _) = desk.run(&["store", "check", "--json"]);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, &lines[0]["problem"], &lines[1]["different"]), (Some(1), &Value::Null, &Value::from(1)));
    let (code, printed, said) = desk.run(&["store", "rebuild"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("made the words of messages anew from 4 messages"), "{printed}");
    let (code, printed, _) = desk.run(&["store", "check"]);
    assert_eq!((code, printed.matches('✓').count()), (Some(0), 4), "{printed}");
    assert_eq!(found(&desk), [1, 1, 2]);
}

/// An index that is not even whole keeps nobody from what was said: the way out is named, and is one.
#[test]
fn d6_an_index_that_is_not_whole_is_made_anew() {
    let desk = desk();
    damage(&desk, "DELETE FROM message_words_data");
    let (code, _, said) = desk.run(&["session", "list"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nothing of what was said is lost: `agent-host store rebuild` makes it anew"), "{said}");
    let (code, printed, said) = desk.run(&["store", "check"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(printed.contains("the index cannot be read"), "{printed}");
    let (code, printed, said) = desk.run(&["store", "rebuild"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("the index cannot be read"), "what was wrong is said: {printed}");
    assert_eq!(found(&desk), [1, 1, 2]);
}

/// A damaged log is not taken for a damaged index, and nothing is made of a file that is not there.
#[test]
fn limit_28_what_cannot_be_made_anew_is_left_alone() {
    let desk = desk();
    let database = desk.path("data/agent-host.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4 * 4096].fill(0x5a);
    std::fs::write(&database, &bytes).unwrap();
    for command in ["check", "rebuild"] {
        let (code, printed, said) = desk.run(&["store", command]);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains("is damaged") && said.contains("restore it from a copy"), "{said}");
    }
    assert_eq!(std::fs::read(&database).unwrap(), bytes);
    std::fs::remove_file(&database).unwrap();
    let (code, _, said) = desk.run(&["store", "rebuild"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("there is no database") && !database.exists(), "{said}");
}

/// Row 28: where nothing can be written, what is there can still be read, and what would be written is refused.
#[cfg(unix)]
#[test]
fn row_28_what_cannot_be_written_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let desk = desk();
    let database = desk.path("data/agent-host.db");
    let allow = |mode| std::fs::set_permissions(&database, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o400);
    let before = std::fs::read(&database).unwrap();
    assert_eq!(found(&desk), [1, 1, 2]);
    let of_ann = ["session", "show", "--user", "ann"];
    for command in [&of_ann[..], &["audit"], &["approvals", "list"], &["outbox", "list"], &["memory", "list"]] {
        let (code, _, said) = desk.run(command);
        assert!(code == Some(0) && said.contains("it is only read"), "{command:?}: {said}");
    }
    let (_, listed, _) = desk.run(&["session", "list", "--user", "ann", "--json"]);
    let latest: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let delete = ["session", "delete", latest["subject"].as_str().unwrap(), "--yes", "--user", "ann"];
    for command in [&delete[..], &["--agent", "agent.toml", "hello"]] {
        let (code, _, said) = desk.run(command);
        assert!(code == Some(2) && said.contains("cannot be written"), "{command:?}: {code:?} {said}");
    }
    assert!(std::fs::read(&database).unwrap() == before, "nothing was written");
    allow(0o600);
    assert_eq!(desk.run(&delete).0, Some(0));
}
