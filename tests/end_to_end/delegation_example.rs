//! Delegation with the real binary and agent.toml files: the example agents, a run that is killed at every point, and
//! cycles of agents that are refused (L16, D3, I2).

use crate::support::{agent_host, components, repository};
use agent_core::event::EventKind;
use agent_core::message::CallId;
use agent_store::{CallFilter, Options, SessionFilter, SessionIndex, SessionLog, SqliteStore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// A folder with agents and a separate data folder.
struct AgentFolder {
    directory: TempDir,
}

impl AgentFolder {
    fn new(files: &[(&str, String)]) -> Self {
        let folder = Self { directory: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, arguments: &[&str], kill_at: Option<&str>) -> Output {
        run(self.directory.path(), &self.path("data"), arguments, kill_at)
    }

    fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path("data/agent-host.db"), Options::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Deletes the sessions but not the compiled code.
    fn clear(&self) {
        for file in ["agent-host.db", "agent-host.db-wal", "agent-host.db-shm"] {
            let _ = std::fs::remove_file(self.path("data").join(file));
        }
        let _ = std::fs::remove_file(self.path("effects.txt"));
    }
}

fn run(folder: &Path, data: &Path, arguments: &[&str], kill_at: Option<&str>) -> Output {
    let mut command = agent_host();
    command.args(arguments).arg("--data").arg(data).current_dir(folder).stdin(Stdio::null());
    if let Some(point) = kill_at {
        command.env("AGENT_HOST_KILL_AT", point);
    }
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn was_killed(output: &Output) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9)
}

/// Creates an agent `lead` that delegates to an agent `worker`, whose tool has an effect.
fn lead_and_worker(tool: &str) -> AgentFolder {
    let folder = AgentFolder::new(&[]);
    std::fs::create_dir(folder.path("plugins")).unwrap();
    std::fs::copy(components().join("probe.wasm"), folder.path("plugins/probe.wasm")).unwrap();
    let worker = "name = \"worker\"\nmodel = \"scripted:worker.json\"\nplugin_directory = \"plugins\"\n[plugins.probe.grants]\nwrite = [\".\"]\n";
    folder.write("worker.toml", worker);
    let lead = "name = \"lead\"\nmodel = \"scripted:lead.json\"\n[agents.worker]\nagent = \"worker.toml\"\ndescription = \"Works.\"\n";
    folder.write("lead.toml", lead);
    let call = json!({"name": "worker", "arguments": {"task": "Count."}});
    folder.write("lead.json", &json!({"replies": [{"calls": [call]}, {"text": "Finished."}]}).to_string());
    let call = json!({"name": tool, "arguments": {"path": "effects.txt"}});
    folder.write("worker.json", &json!({"replies": [{"calls": [call]}, {"text": "Counted."}]}).to_string());
    let output = folder.run(&["--agent", "lead.toml", "Go."], None);
    assert!(output.status.success(), "a run that is not killed: {}", stderr(&output));
    folder
}

/// L16: The delegation example of `tests/agents` runs unchanged, and tools that read files are called only in the
/// session of the agent `reader`.
#[test]
fn l16_the_example_runs_unchanged() {
    let data = tempfile::tempdir().unwrap();
    let ask = ["--agent", "tests/agents/lead.toml", "When does the lighthouse open?"];
    let output = run(repository(), data.path(), &ask, None);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "The lighthouse opens at nine.");
    let output_text = stderr(&output);
    assert!(
        output_text.contains("→ reader") && output_text.contains("session reader-"),
        "the output names the child's session: {output_text}"
    );
    assert!(!output_text.contains("going on with the interrupted turn"), "{output_text}");
    let output = run(repository(), data.path(), &[&ask[..2], &["--json", ask[2]]].concat(), None);
    let lines = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count_of = |agent: &str, kind: &str| {
        let begins = |event: &&Value| event["session"].as_str().unwrap().starts_with(&format!("{agent}-"));
        events.iter().filter(|event| event["type"] == kind).filter(begins).count()
    };
    assert_eq!(
        (count_of("lead", "loop_start"), count_of("reader", "loop_start"), count_of("reader", "tool_result")),
        (1, 1, 1)
    );
    assert_eq!(count_of("reader", "stream_token"), 0, "a child's text is not streamed to the output of its parent");
    assert_eq!(events.last().unwrap()["type"], "result");
}

/// D3, L16: If the process is killed at any point, the parent's call continues with its existing child session and
/// does not create a second child session, and every effect happens once.
#[test]
fn l16_d3_a_call_has_one_child_after_a_kill_at_any_point() {
    let folder = lead_and_worker("probe.idempotent");
    let mut points = vec!["before-call:probe.idempotent".to_owned(), "after-call:probe.idempotent".to_owned()];
    for (input, times) in
        [("context", 2), ("reply", 4), ("dispatched", 2), ("outcome", 1), ("respond", 1), ("verdict", 2)]
    {
        points.extend(
            (1..=times)
                .flat_map(|time| [format!("before-commit:{input}:{time}"), format!("after-commit:{input}:{time}")]),
        );
    }
    points.extend(["before-commit:start:2", "after-commit:start:2", "after-commit:start:1"].map(str::to_owned));
    for point in points {
        folder.clear();
        let killed = folder.run(&["--agent", "lead.toml", "Go."], Some(&point));
        assert!(was_killed(&killed), "{point} was never passed: {}", stderr(&killed));
        let output = folder.run(&["--agent", "lead.toml", "--continue"], None);
        assert!(output.status.success(), "{point}: {}", stderr(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "Finished.", "{point}");
        let effects = std::fs::read_to_string(folder.path("effects.txt")).unwrap();
        assert_eq!(effects.lines().count(), 1, "{point}: {effects}");
        block_on(async {
            let store = folder.store();
            let sessions = store.sessions(SessionFilter::default(), 10).await.unwrap();
            assert_eq!(sessions.len(), 2, "{point}: there is one child: {sessions:?}");
            for session in sessions {
                assert_eq!(session.state.as_str(), "idle", "{point}");
                let calls = store.calls(&session.subject, CallFilter::Turn(1)).await.unwrap();
                let result = calls[0].result.as_ref().unwrap_or_else(|| panic!("{point}: no result"));
                assert!(calls.len() == 1 && !result.is_error, "{point}: {result:?}");
                let events = store.events(&session.subject, 0, 1_000).await.unwrap();
                let ends = events.iter().filter(|timed| matches!(timed.event.kind, EventKind::LoopEnd { .. })).count();
                assert_eq!(ends, 1, "{point}: `loop_end` occurs exactly once");
            }
        });
    }
}

/// D3, L16: If a child has a call with an unknown outcome, its parent waits and shows that call. After the user has
/// decided, continuing the parent also continues the child.
#[test]
fn l16_d3_the_parents_output_shows_the_undecided_call_of_its_child() {
    let folder = lead_and_worker("probe.count");
    folder.clear();
    assert!(was_killed(&folder.run(&["--agent", "lead.toml", "Go."], Some("after-call:probe.count"))));
    let output = folder.run(&["--agent", "lead.toml", "--continue"], None);
    let (output_text, calls) = (stderr(&output), [CallId("call_1_1_1".to_owned())]);
    assert_eq!(output.status.code(), Some(3), "{output_text}");
    let child = block_on(async {
        let store = folder.store();
        let filter = SessionFilter { agent: Some("worker".to_owned()), ..SessionFilter::default() };
        store.sessions(filter, 10).await.unwrap().remove(0).subject
    });
    let call = format!("{child}/{}", calls[0]);
    assert!(
        output_text.contains("waits for the agent worker") && output_text.contains(&format!("session resolve {call}")),
        "{output_text}"
    );
    let output = folder.run(&["session", "resolve", &call, "result", "counted"], None);
    let output_text = stderr(&output);
    assert!(
        output.status.success() && output_text.contains("--session lead/"),
        "the output names the waiting parent: {output_text}"
    );
    let output = folder.run(&["--agent", "lead.toml", "--continue"], None);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(folder.path("effects.txt")).unwrap().lines().count(), 1);
}

/// L16, D5: A child session is not deleted before the parent that waits for it, because the parent would then
/// repeat its call to the child agent. While the parent waits for the child, the results of the parent's other
/// calls are shown.
#[test]
fn l16_d5_does_not_delete_a_session_that_a_parent_waits_for() {
    let folder = lead_and_worker("probe.count");
    folder.clear();
    let calls =
        [json!({"name": "worker", "arguments": {"task": "Count."}}), json!({"name": "no.such", "arguments": {}})];
    folder.write("lead.json", &json!({"replies": [{"calls": calls}, {"text": "Finished."}]}).to_string());
    assert!(was_killed(&folder.run(&["--agent", "lead.toml", "Go."], Some("after-call:probe.count"))));
    assert_eq!(folder.run(&["--agent", "lead.toml", "--continue"], None).status.code(), Some(3));
    let subjects = || {
        let sessions = block_on(async { folder.store().sessions(SessionFilter::default(), 10).await.unwrap() });
        sessions.into_iter().map(|session| session.subject).collect::<Vec<_>>()
    };
    let of = |agent: &str| subjects().into_iter().find(|subject| subject.starts_with(agent)).unwrap();
    let (lead, worker) = (of("lead/"), of("worker/"));
    let output_text = String::from_utf8(folder.run(&["session", "show", &lead], None).stdout).unwrap();
    assert!(output_text.contains("✗ no.such"), "a result that has arrived is shown: {output_text}");
    for arguments in [&["session", "delete", &worker][..], &["session", "delete", "--yes", &worker]] {
        let refused = folder.run(arguments, None);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let stderr_text = stderr(&refused);
        let delete_both_command = format!("agent-host session delete {lead} {worker}");
        assert!(
            stderr_text.contains(&format!("works for `{lead}`")) && stderr_text.contains(&delete_both_command),
            "{stderr_text}"
        );
    }
    assert_eq!(subjects().len(), 2);
    // If a command contains the ids of both the parent session and the child session, it deletes both sessions.
    let deleted = folder.run(&["session", "delete", "--yes", &worker, &lead], None);
    assert!(deleted.status.success(), "{}", stderr(&deleted));
    let (first, second) = (stderr(&deleted).find(&lead).unwrap(), stderr(&deleted).find(&worker).unwrap());
    assert!(first < second, "the parent is deleted first: {}", stderr(&deleted));
    assert_eq!(subjects(), Vec::<String>::new());
}

/// L16, D5: A child session can be continued without its parent. When the parent continues later, it uses the child's
/// output. `session list` shows the child below its parent. `session show` for the parent names the child, and `session
/// show` for the child names the parent. `--continue` never selects a child. If a parent session is deleted but its
/// child is not, the remaining child session is reported.
#[test]
fn l16_d5_lists_a_child_below_its_parent_and_continues_it_alone() {
    let folder = lead_and_worker("probe.idempotent");
    folder.clear();
    assert!(was_killed(&folder.run(&["--agent", "lead.toml", "Go."], Some("before-commit:outcome"))));
    let (lead, worker) = block_on(async {
        let sessions = folder.store().sessions(SessionFilter::default(), 10).await.unwrap();
        let of = |agent: &str| sessions.iter().find(|session| session.agent == agent).unwrap().subject.clone();
        (of("lead"), of("worker"))
    });
    let stdout = |arguments: &[&str]| {
        let output = folder.run(arguments, None);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = stdout(&["session", "list"]);
    let (parent, below) = (listed.find(&lead).unwrap(), listed.find(&format!("└ {worker}")).unwrap());
    assert!(parent < below, "{listed}");
    let output_text = stdout(&["session", "show", &lead]);
    assert!(output_text.contains(&format!("delegated to {worker}")), "{output_text}");
    assert!(output_text.contains("waits for the agent worker"), "{output_text}");
    assert!(stdout(&["session", "show", &worker]).contains(&format!("works for {lead}")));
    let refused = folder.run(&["--agent", "worker.toml", "--continue"], None);
    assert_eq!(refused.status.code(), Some(2), "the worker has no session of its own: {}", stderr(&refused));
    let output = folder.run(&["--agent", "worker.toml", "--session", &worker], None);
    let stderr_text = stderr(&output);
    assert!(
        output.status.success() && stderr_text.contains(&format!("continue with agent-host --session {lead}")),
        "{stderr_text}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "Counted.");
    assert_eq!(stdout(&["--agent", "lead.toml", "--continue"]).trim(), "Finished.");
    let deleted = folder.run(&["session", "delete", &lead], None);
    assert!(
        deleted.status.success() && stderr(&deleted).contains(&format!("session delete {worker}")),
        "{}",
        stderr(&deleted)
    );
    assert!(stdout(&["session", "list"]).contains(&format!("worked for {lead}")));
}

/// L16, I2, row 13: A delegation cycle is refused before any agent runs, and the error names the file, the line, the
/// key and the chain of agents. The host also refuses two files with the same agent name.
#[test]
fn l16_row_13_refuses_delegation_cycles_in_the_configuration() {
    let table = |name: &str, file: &str| format!("[agents.{name}]\nagent = \"{file}\"\ndescription = \"d\"\n");
    let offline = "model = \"offline\"\n";
    let files = [
        ("a.toml", format!("{offline}{}", table("b", "b.toml"))),
        ("b.toml", format!("{offline}{}", table("c", "./c.toml"))),
        ("c.toml", format!("{offline}{}", table("back", "a.toml"))),
        ("self.toml", format!("{offline}{}", table("me", "self.toml"))),
        ("twice.toml", format!("{offline}{}{}", table("one", "one/x.toml"), table("two", "two/x.toml"))),
        ("absent.toml", format!("{offline}{}", table("gone", "gone.toml"))),
        ("broken.toml", format!("{offline}{}", table("wrong", "wrong.toml"))),
        ("wrong.toml", "modle = \"offline\"\n".to_owned()),
        ("clash.toml", format!("{offline}{}", table("memory_search", "leaf.toml"))),
        ("leaf.toml", offline.to_owned()),
        ("diamond.toml", format!("{offline}{}{}", table("left", "left.toml"), table("right", "right.toml"))),
        ("left.toml", format!("{offline}{}", table("leaf", "leaf.toml"))),
        ("right.toml", format!("{offline}{}", table("leaf", "leaf.toml"))),
    ];
    let folder = AgentFolder::new(&files);
    for name in ["one", "two"] {
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/x.toml"), &format!("name = \"x\"\n{offline}"));
    }
    for (file, expected) in [
        ("a.toml", "c.toml:3: agents.back.agent: these agents delegate to one another in a cycle: a-"),
        ("self.toml", "self.toml:3:9: agents.me.agent: these agents delegate to one another in a cycle: self-"),
        ("twice.toml", "both define an agent named `x`"),
        ("absent.toml", "absent.toml:3:9: agents.gone.agent: there is no file `gone.toml`"),
        ("broken.toml", "wrong.toml"),
        ("clash.toml", "two tools are named `memory_search`"),
    ] {
        let output = folder.run(&["config", "check", file], None);
        let output_text = stderr(&output);
        assert!(output.status.code() == Some(2) && output_text.contains(expected), "{file}: {output_text}");
        assert!(file != "clash.toml" || output_text.contains("clash.toml:2:1: agents.memory_search"), "{output_text}");
    }
    let output = folder.run(&["config", "check", "diamond.toml"], None);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && output_text.contains("left: the agent left"),
        "{output_text}{}",
        stderr(&output)
    );
    assert_eq!(output_text.matches("leaf: the agent leaf").count(), 2, "{output_text}");
}
