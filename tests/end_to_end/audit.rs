//! O3: the commands `audit verify` and `audit export` with the real binary. Each run of the agent adds an entry, because its
//! budget does not allow a model call.

use crate::session_cli::TestCli;
use crate::support::text_reply;
use serde_json::Value;

const AGENT: &str = "[budget.turn]\ntokens = 1\n";

fn cli_with_entries(entries: usize) -> TestCli {
    let cli = TestCli::new(AGENT, &[text_reply("Hello.")]);
    for _ in 0..entries {
        let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "Hello there."]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("the budget of the turn of `desk/") && stderr.contains("[budget.turn]"), "{stderr}");
    }
    cli
}

fn change(cli: &TestCli, sql: &str) {
    let connection = rusqlite::Connection::open(cli.path("my data/agent-host.db")).unwrap();
    let triggers = "DROP TRIGGER IF EXISTS audit_is_never_rewritten; DROP TRIGGER IF EXISTS audit_is_never_shortened;";
    connection.execute_batch(&format!("{triggers} {sql}")).unwrap();
}

fn head(printed: &str) -> String {
    let (_, hash) = printed.split_once("with the hash ").expect("a hash");
    hash.lines().next().expect("a line").to_owned()
}

/// O3: a log is verified, exported, and verified again from the exported file. A changed entry is named.
#[test]
fn o3_the_audit_log_is_verified_and_exported() {
    let cli = cli_with_entries(3);
    let (code, intact, stderr) = cli.run(&["audit", "verify"]);
    assert!(code == Some(0) && intact.contains("the audit log is intact: 3 entries"), "{intact} {stderr}");
    assert!(stderr.contains("--from HASH"), "{stderr}");
    let hash = head(&intact);
    let (code, lines, stderr) = cli.run(&["audit", "export"]);
    assert_eq!((code, lines.lines().count()), (Some(0), 3), "{stderr}");
    let last: Value = serde_json::from_str(lines.lines().last().expect("a line")).unwrap();
    assert_eq!((last["number"].as_u64(), last["hash"].as_str()), (Some(3), Some(hash.as_str())));
    assert_eq!(last["body"]["resource"], "tokens");
    let (code, ..) = cli.run(&["audit", "export", "-o", "log.jsonl"]);
    assert_eq!((code, std::fs::read_to_string(cli.path("log.jsonl")).unwrap()), (Some(0), lines));
    let (code, _, stderr) = cli.run(&["audit", "export", "-o", "log.jsonl"]);
    assert!(code == Some(2) && stderr.contains("--force"), "{stderr}");
    let (code, checked, _) = cli.run(&["audit", "verify", "log.jsonl", "--from", &hash]);
    assert!(code == Some(0) && checked.contains("the entries up to 3 are the same"), "{checked}");
    let (_, rest, _) = cli.run(&["audit", "export", "--after", "2"]);
    std::fs::write(cli.path("rest.jsonl"), &rest).unwrap();
    let (code, checked, _) = cli.run(&["audit", "verify", "rest.jsonl"]);
    assert!(code == Some(0) && checked.contains("1 entry; it begins after entry 2"), "{checked}");
    let (code, _, stderr) = cli.run(&["audit", "export", "--after", "9"]);
    assert!(code == Some(2) && stderr.contains("has no entry 9"), "{stderr}");

    change(&cli, "UPDATE audit SET body = replace(body, '\"limit\":1', '\"limit\":9') WHERE number = 2");
    let (code, _, stderr) = cli.run(&["audit", "verify"]);
    assert!(code == Some(1) && stderr.contains("entry 2 or its hash was changed"), "{stderr}");
    let (code, lines, stderr) = cli.run(&["audit", "export"]);
    assert!(code == Some(1) && lines.lines().count() == 3 && stderr.contains("is damaged"), "{stderr}");
}

/// O3: with a hash or a file that was kept elsewhere, a log that was cut off or rewritten is found.
#[test]
fn o3_a_rewritten_log_is_found_with_what_was_kept() {
    let cli = cli_with_entries(3);
    let hash = head(&cli.run(&["audit", "verify"]).1);
    cli.run(&["audit", "export", "-o", "kept.jsonl"]);
    cli.run(&["--agent", "agent.toml", "Hello there."]);
    for kept in [hash.as_str(), "kept.jsonl"] {
        let (code, checked, _) = cli.run(&["audit", "verify", "--from", kept]);
        assert!(code == Some(0) && checked.contains("the entries up to 3 are the same"), "{checked}");
    }
    change(&cli, "DELETE FROM audit WHERE number > 2");
    let (code, _, stderr) = cli.run(&["audit", "verify"]);
    assert!(code == Some(1) && stderr.contains("2 entries were removed from the end"), "{stderr}");
    change(&cli, "UPDATE sqlite_sequence SET seq = 2 WHERE name = 'audit'");
    assert_eq!(cli.run(&["audit", "verify"]).0, Some(0), "the chain alone cannot find this");
    for (kept, expected) in [(hash.as_str(), "no entry has the hash"), ("kept.jsonl", "the log ends at entry 2")] {
        let (code, _, stderr) = cli.run(&["audit", "verify", "--from", kept]);
        assert!(code == Some(1) && stderr.contains(expected), "{stderr}");
    }
    let (code, _, stderr) = cli.run(&["audit", "verify", "--from", "missing.jsonl"]);
    assert!(code == Some(2) && stderr.contains("`missing.jsonl` cannot be read"), "{stderr}");
}
