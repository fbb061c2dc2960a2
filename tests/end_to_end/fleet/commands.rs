//! `store copy` and `--store`: the commands work with a PostgreSQL database as with the file in the data folder (F1).

use super::{Fleet, open};
use crate::approvals::command_line::TestCli;
use crate::support::{agent_host, text_reply};
use agent_store::{SessionFilter, SessionIndex};
use serde_json::Value;

/// A data folder with two sessions, and a database server.
fn cli_and_fleet() -> Option<(TestCli, Fleet)> {
    let fleet = Fleet::new(&[], 0)?;
    let cli = TestCli::new("", &[text_reply("The walrus sleeps.")]);
    for prompt in ["How is the walrus?", "And the otter?"] {
        cli.succeeds(&["--agent", "agent.toml", "--user", "ann", prompt]);
    }
    Some((cli, fleet))
}

impl TestCli {
    /// Runs the binary, and returns stdout.
    fn succeeds(&self, arguments: &[&str]) -> String {
        let (code, printed, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        printed
    }

    /// Runs the binary, and returns the exit code and stderr.
    fn fails(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (code, printed, stderr) = self.run(arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {printed}");
        (code, stderr)
    }
}

/// F1: a copy to PostgreSQL and back gives identical exports, and a repeated copy changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn f1_sessions_are_copied_to_postgresql_and_back() {
    let Some((cli, fleet)) = cli_and_fleet() else { return };
    let (data, back, address) = (cli.path("data"), cli.path("back"), fleet.address());
    let (data, back) = (data.to_str().unwrap(), back.to_str().unwrap());
    let copied = cli.succeeds(&["store", "copy", data, &address]);
    assert!(copied.contains("copied 2 sessions to postgres://") && copied.contains("rows"), "{copied}");
    let again: Value = serde_json::from_str(&cli.succeeds(&["store", "copy", data, &address, "--json"])).unwrap();
    assert_eq!((&again["copied"], &again["unchanged"]), (&Value::from(0), &Value::from(2)));
    assert_eq!(open(&address).await.sessions(SessionFilter::default(), 10).await.unwrap().len(), 2);
    cli.succeeds(&["store", "copy", &address, back]);

    let sessions = cli.succeeds(&["session", "list", "--user", "ann", "--json"]);
    assert_eq!(cli.succeeds(&["session", "list", "--user", "ann", "--json", "--store", &address]), sessions);
    for line in sessions.lines() {
        let session: Value = serde_json::from_str(line).unwrap();
        let export = ["session", "export", session["subject"].as_str().unwrap(), "--user", "ann"];
        let original = cli.succeeds(&export);
        assert_eq!(cli.succeeds(&[&export[..], &["--store", &address]].concat()), original);
        let mut copied_back = cli.command(&export);
        let copied_back = copied_back.env("AGENT_HOST_DATA", "ignored").output().unwrap();
        assert!(copied_back.status.success());
        let from_back = agent_host().args(export).args(["--data", back]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&from_back.stdout), original);
    }

    let (code, stderr) = cli.fails(&["store", "copy", data, data]);
    assert!(code == Some(2) && stderr.contains("the same database"), "{stderr}");
    let (code, stderr) = cli.fails(&["store", "copy", "missing", &address]);
    assert!(code == Some(2) && stderr.contains("missing/agent-host.db"), "{stderr}");
    let (code, stderr) = cli.fails(&["store", "copy", data]);
    assert!(code == Some(2) && stderr.contains("AGENT_HOST_STORE"), "{stderr}");
}

/// F1: the commands and runs use the shared database, and the data folder keeps no sessions.
#[tokio::test(flavor = "multi_thread")]
async fn f1_commands_use_the_shared_database() {
    let Some(fleet) = Fleet::new(&[], 0) else { return };
    let replies = [text_reply("The walrus sleeps."), text_reply("It still sleeps.")];
    let (cli, address) = (TestCli::new("", &replies), fleet.address());
    let store = ["--store", address.as_str()];
    let with_store = |arguments: &[&str]| cli.succeeds(&[arguments, &store[..]].concat());
    assert!(with_store(&["doctor", "--json"]).contains("is empty"));
    with_store(&["--agent", "agent.toml", "How is the walrus?"]);
    assert!(!cli.path("data/agent-host.db").exists(), "no session is stored in the data folder");
    let listed: Value = serde_json::from_str(with_store(&["session", "list", "--json"]).trim()).unwrap();
    let session = listed["subject"].as_str().unwrap();
    assert!(with_store(&["session", "show", session]).contains("The walrus sleeps."));
    assert!(with_store(&["session", "search", "walrus"]).contains(session));
    assert!(with_store(&["memory", "search", "walrus"]).contains("walrus"));
    with_store(&["audit", "verify"]);
    with_store(&["outbox", "list"]);
    with_store(&["approvals", "list"]);
    with_store(&["trace", "export", session, "--out", "spans.jsonl"]);
    assert!(cli.path("spans.jsonl").exists());
    assert!(with_store(&["store", "check"]).contains("matches its digests"));
    with_store(&["store", "rebuild"]);
    with_store(&["--agent", "agent.toml", "--session", session, "And now?"]);
    with_store(&["session", "undo", session]);
    assert!(with_store(&["doctor"]).contains("can be used"));
    with_store(&["session", "delete", session]);
    assert_eq!(with_store(&["session", "list", "--json"]), "");
}

/// F1: a password is neither accepted on the command line nor printed.
#[test]
fn f1_passwords_are_refused_on_the_command_line_and_never_printed() {
    let cli = TestCli::new("", &[text_reply("unused")]);
    let url = "postgres://ann:s3cret@127.0.0.1:1/agents";
    for arguments in [
        &["session", "list", "--store", url][..],
        &["store", "copy", url, "data"],
        &["doctor", "--store", "postgres://ann@127.0.0.1:1/agents?password=s3cret"],
        &["session", "list", "--store", "s3cret"],
    ] {
        let (code, stderr) = cli.fails(arguments);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(!stderr.contains("s3cret"), "{stderr}");
    }
    let (_, stderr) = cli.fails(&["session", "list", "--store", url]);
    assert!(stderr.contains("PGPASSWORD") && stderr.contains("AGENT_HOST_STORE"), "{stderr}");
    let mut doctor = cli.command(&["doctor", "-v"]);
    let output = doctor.env("AGENT_HOST_STORE", url).output().unwrap();
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("postgres://127.0.0.1:1/agents") && !shown.contains("s3cret"), "{shown}");
}
