//! The commands `/grant` and `/revoke`, and the answer that allows only reading (P6, P10).

use super::first_use::{AgentFolder, count};
use crate::support::{call_reply, script, text_reply};
use serde_json::json;

const QUESTION: &str = "grant this? y this session, a always, n no, ? help >";
const AGENT_FILE: &str = "# my agent\nplugin_directory = \"../plugins\"\n";

/// P6, P10: a refusal can be changed with `/grant`, and `/revoke` takes effect at once. A revoked grant does not return when the
/// agent's file changes.
#[test]
fn p6_p10_refusals_are_changed_and_grants_are_revoked() {
    let replies = [count(), text_reply("First."), count(), text_reply("Second."), count(), text_reply("Third.")];
    let folder = AgentFolder::new(AGENT_FILE, &replies);
    let mut screen = folder.session();
    screen.send("Count.\r");
    screen.wait_for_end(QUESTION);
    screen.send("n\r");
    screen.wait_for("\nFirst.\n");
    screen.wait_for_end("\n>");
    screen.send("/grant\r");
    screen.wait_for("text lacks reading files");
    screen.wait_for_end("\n>");
    screen.send("/grant text\r");
    screen.wait_for("grants: text ");
    screen.wait_for_end(QUESTION);
    screen.send("a\r");
    screen.wait_for("[plugins.text.grants] read = [\".\"]");
    screen.wait_for_end("\n>");
    screen.send("Count.\r");
    screen.wait_for("\nSecond.\n");
    assert!(screen.text().contains("a.txt has 1 line"), "{}", screen.text());
    screen.wait_for_end("\n>");
    screen.send("/revoke text read\r");
    screen.wait_for("revoked the `read` grants of text, and removed them from");
    screen.wait_for_end("\n>");
    assert_eq!(folder.file(), format!("{AGENT_FILE}\n[plugins.text.grants]\n"));
    screen.send("/grant text\r");
    screen.wait_for_end(QUESTION);
    screen.send("n\r");
    screen.wait_for_end("\n>");
    std::fs::write(folder.path("work/agent.toml"), format!("{AGENT_FILE}[plugins.text.grants]\nread = [\".\"]\n"))
        .unwrap();
    screen.send("Count.\r");
    screen.wait_for("\nThird.\n");
    assert_eq!(screen.text().matches("a.txt has 1 line").count(), 1, "{}", screen.text());
}

/// P6: `/grant PLUGIN KIND=VALUE` grants exactly that, and refuses what the plugin does not request or what is no grant.
#[test]
fn p6_a_typed_grant_applies_until_the_host_exits() {
    let folder = AgentFolder::new(AGENT_FILE, &[]);
    let other = folder.path("other").display().to_string();
    let count_other = call_reply(&[("text.count_file", json!({"path": format!("{other}/b.txt")}))]);
    std::fs::write(folder.path("script.json"), script(&[count_other, text_reply("Done.")]).to_string()).unwrap();
    let mut screen = folder.session();
    for (typed, shown) in [
        ("/grant nobody", "the agent has no plugin `nobody`"),
        ("/grant text nothing=1", "the kind is not known"),
        ("/grant text media=true", "does not ask for the media of the conversation"),
        ("/grant text read=../missing", "../missing"),
        ("/revoke text", "text has no grants"),
        ("/revoke text everything", "`everything` is not a kind of grant; the kinds are read, write"),
    ] {
        screen.send(&format!("{typed}\r"));
        screen.wait_for(shown);
        screen.wait_for_end("\n>");
    }
    screen.send("/grant text read=../other\r");
    screen.wait_for(&format!("granted to text for this session: read={other}"));
    screen.wait_for_end("\n>");
    screen.send("Count.\r");
    screen.wait_for("\nDone.\n");
    assert!(screen.text().contains("b.txt has 1 line"), "{}", screen.text());
    assert_eq!(folder.file(), AGENT_FILE);
}

/// P6: the answer `r` offers only reading. The plugin is not asked about again, and cannot write.
#[test]
fn p6_the_answer_r_allows_only_reading() {
    let write = call_reply(&[("probe.count", json!({"path": "effects.txt"}))]);
    let folder = AgentFolder::new(AGENT_FILE, &[write, text_reply("Done.")]);
    let mut screen = folder.session();
    screen.send("Write.\r");
    screen.wait_for("changing and deleting everything in");
    screen.wait_for_end(QUESTION);
    screen.send("?\r");
    screen.wait_for("r      offer only reading");
    screen.wait_for_end(QUESTION);
    screen.send("r\r");
    screen.wait_for("read = [\".\"]");
    screen.wait_for_end(QUESTION);
    screen.send("y\r");
    screen.wait_for("\nDone.\n");
    assert_eq!(screen.text().matches("first use: probe").count(), 2, "the question was shown again: {}", screen.text());
    assert!(!folder.path("work").join("effects.txt").exists());
}

/// P6: the grants of a session end when the user leaves the session, even if the session cannot be closed.
#[test]
fn p6_grants_end_even_if_the_session_cannot_be_closed() {
    let folder = AgentFolder::new(AGENT_FILE, &[text_reply("Not asked for.")]);
    let mut screen = folder.session();
    screen.send("/grant text read=../other\r");
    screen.wait_for("granted to text for this session");
    screen.wait_for_end("\n>");
    let connection = rusqlite::Connection::open(folder.path("data/agent-host.db")).unwrap();
    let fail = "CREATE TRIGGER broken BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'broken by a test'); END";
    connection.execute_batch(fail).unwrap();
    screen.send("/session new\r");
    screen.wait_for("broken by a test");
    screen.wait_for_end("\n>");
    screen.send("/revoke text\r");
    screen.wait_for("text has no grants");
}
