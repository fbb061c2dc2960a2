//! O4: the command `usage` with the real binary.

use crate::session_cli::TestCli;
use serde_json::{Value, json};

/// A model whose replies report 100 tokens each.
fn cli() -> TestCli {
    let reply = json!({"text": "Hello.", "usage": {"prompt_tokens": 90, "completion_tokens": 10}});
    TestCli::new("", &[reply])
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

/// O4: usage is reported by day, month, agent and user, also of a session that was deleted.
#[test]
fn o4_usage_is_reported_by_day_agent_and_user() {
    let cli = cli();
    let (code, stdout, stderr) = cli.run(&["usage"]);
    assert!(code == Some(0) && stdout.is_empty() && stderr.contains("nothing was used since "), "{stdout}{stderr}");
    for user in ["ann", "bob", "bob"] {
        let (code, _, stderr) = cli.run(&["--agent", "agent.toml", "--user", user, "Hello there."]);
        assert_eq!(code, Some(0), "{stderr}");
    }
    let (_, sessions, _) = cli.run(&["session", "list", "--user", "ann", "--json"]);
    let session = json_lines(&sessions)[0]["subject"].as_str().expect("an id").to_owned();
    let (code, _, stderr) = cli.run(&["session", "delete", "--user", "ann", &session]);
    assert_eq!(code, Some(0), "{stderr}");

    let (_, by_day, _) = cli.run(&["usage", "--utc", "--json"]);
    let by_day = json_lines(&by_day);
    let tokens: u64 = by_day.iter().filter_map(|line| line["tokens"].as_u64()).sum();
    assert_eq!(tokens, 300, "{by_day:?}");
    assert_eq!(by_day[0]["period"].as_str().map(str::len), Some("2026-01-31".len()), "{by_day:?}");
    assert!(by_day[0].get("agent").is_none() && by_day[0].get("user").is_none(), "{by_day:?}");
    let (_, by_user, _) = cli.run(&["usage", "--by", "agent,user", "--json"]);
    let by_user: Vec<_> = json_lines(&by_user).iter().map(line_of).collect();
    assert_eq!(by_user, [("desk".into(), "ann".into(), 100), ("desk".into(), "bob".into(), 200)]);
    let (_, table, _) = cli.run(&["usage", "--by", "user"]);
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(words, [["ann", "100", "tokens"], ["bob", "200", "tokens"], ["sum", "300", "tokens"]], "{table}");
    let (_, of_bob, _) = cli.run(&["usage", "--user", "bob", "--of", "desk", "--by", "month"]);
    assert!(of_bob.contains("200 tokens") && of_bob.lines().count() <= 2, "{of_bob}");
    let (_, of_other, stderr) = cli.run(&["usage", "--of", "other"]);
    assert!(of_other.is_empty() && stderr.contains("nothing was used"), "{of_other}{stderr}");
}

fn line_of(line: &Value) -> (String, String, u64) {
    let text = |key: &str| line[key].as_str().expect("a text").to_owned();
    (text("agent"), text("user"), line["tokens"].as_u64().expect("a number"))
}

/// O4: days that do not exist and reports that are too long are refused.
#[test]
fn o4_the_first_day_of_a_report_is_checked() {
    let cli = cli();
    let (code, _, stderr) = cli.run(&["usage", "--since", "1900-01-01"]);
    assert!(code == Some(2) && stderr.contains("--since: a report has at most 3660 days"), "{stderr}");
    let (code, _, stderr) = cli.run(&["usage", "--since", "tomorrow"]);
    assert!(code == Some(2) && stderr.contains("write a day such as 2026-01-31"), "{stderr}");
    let (code, _, stderr) = cli.run(&["usage", "--by", "week"]);
    assert!(code == Some(2) && stderr.contains("day, month, agent, user"), "{stderr}");
    let (code, stdout, _) = cli.run(&["usage", "--since", "2999-01-01"]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "no day has come yet");
}
