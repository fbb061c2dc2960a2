//! What authors of plugins do, with the real binary: new projects in each language, checks, and a session that takes up what was
//! changed (S1–S3, S5).

use crate::peers::{node_peer, python_peer};
use crate::support::{
    House, KeptCode, calling, components, events, records, repository, results, saying, script, turn,
};
use agent_core::event::EventKind;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

struct Desk {
    _kept: KeptCode,
    folder: TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { _kept: KeptCode::in_data(&folder.path().join("data")), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exit code, what it printed, and what it said.
    fn run(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        let output = command.envs(variables.iter().cloned()).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// S1: a new project says how to go on; what cannot be made is refused with what to do, and nothing is overwritten.
#[test]
fn s1_a_new_project_says_how_to_go_on() {
    let desk = Desk::new();
    let (code, printed, _) = desk.run(&["plugin", "new", "words", "--lang", "js"], &[]);
    assert_eq!(code, Some(0));
    assert!(printed.starts_with("words  a tool in JavaScript\n  cd words\n  npm install\n"), "{printed}");
    for (arguments, words) in [
        (&["words"][..], "`words` is there already"),
        (&["Two Words"], "try `two-words`"),
        (&["fn"], "a crate cannot be named so"),
        (&["x", "--dir", "nowhere"], "there is no folder `nowhere`"),
        (&["x", "--lang", "java"], "rust, python, js, c"),
        (&["x", "--kind", "tools"], "context-builder"),
        (&["x", "--sdk", "."], "is not agent-host's SDK"),
    ] {
        let (code, _, said) = desk.run(&[&["plugin", "new"], arguments].concat(), &[]);
        assert!(code == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
    let (code, _, said) = desk.run(&["plugin", "build", "words"], &[("PATH", PathBuf::new()), ("JCO", PathBuf::new())]);
    assert!(code == Some(2) && said.contains("words && npm install\n"), "{said}");
}

/// S3: a good plugin passes, one that cannot be loaded or can never do what it imports does not; programs read the same.
#[test]
fn s3_a_check_says_what_is_wrong() {
    let desk = Desk::new();
    let (code, printed, said) =
        desk.run(&["plugin", "check", components().join("strict-json.wasm").to_str().unwrap()], &[]);
    assert!(code == Some(0) && printed.contains("nothing to say against it"), "{printed}{said}");
    std::fs::create_dir(desk.path("several")).unwrap();
    std::fs::write(desk.path("several/a.wasm"), "no component").unwrap();
    std::fs::copy(components().join("stateful-builder.wasm"), desk.path("several/b.wasm")).unwrap();
    let (code, printed, _) = desk.run(&["plugin", "check", "several"], &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("several/a.wasm") && printed.contains("error    asks.config: "), "{printed}");
    let (code, printed, _) = desk.run(&["plugin", "check", "several", "--json"], &[]);
    let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, documents.len()), (Some(1), 2));
    assert_eq!((&documents[0]["name"], &documents[0]["findings"][0]["rule"]), (&Value::Null, &json!("loads")));
    assert_eq!((&documents[1]["name"], &documents[1]["errors"]), (&json!("stateful-builder"), &json!(1)));
    assert_eq!(documents[1]["findings"][0]["rule"], "asks-too-little");
    std::fs::create_dir(desk.path("empty")).unwrap();
    let (code, _, said) = desk.run(&["plugin", "check", "empty"], &[]);
    assert!(code == Some(2) && said.contains("plugin new NAME"), "{said}");
}

/// S3: the project's own plugins have no errors, and nothing that somebody stumbles over.
#[test]
fn s3_our_own_plugins_pass() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("own")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("plugins")).unwrap() {
        let file = format!("{}.wasm", entry.unwrap().file_name().to_string_lossy());
        if components().join(&file).exists() {
            std::fs::copy(components().join(&file), desk.path("own").join(&file)).unwrap();
            count += 1;
        }
    }
    assert!(count >= 12, "{count}");
    let (code, printed, said) = desk.run(&["plugin", "check", "own", "--json"], &[]);
    assert_eq!(code, Some(0), "{said}");
    for line in printed.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&document["errors"], &document["warnings"]), (&json!(0), &json!(0)), "{line}");
    }
}

/// S1: what agent-host has written into a project is renewed by hand, and what was changed there is not.
#[test]
fn s1_projects_are_renewed() {
    let desk = Desk::new();
    for (name, language) in [("one", "rust"), ("two", "c")] {
        desk.run(&["plugin", "new", name, "--lang", language], &[]);
    }
    let (code, printed, _) = desk.run(&["plugin", "renew"], &[]);
    assert!(code == Some(0) && printed.matches("has what this agent-host carries").count() == 2, "{printed}");
    for file in ["one/agent-host/agent-host.sha256", "two/wit/deps/agent-host.sha256"] {
        let list = std::fs::read_to_string(desk.path(file)).unwrap();
        std::fs::write(desk.path(file), list.replace("agent-host 0.1.0", "agent-host 0.0.9")).unwrap();
    }
    let (_, _, said) = desk.run(&["plugin", "build", "two"], &[("ZIG", "no-such-zig".into())]);
    assert!(said.contains("two has the contract of agent-host 0.0.9") && said.contains("plugin renew "), "{said}");
    std::fs::write(desk.path("two/wit/deps/agent-host-plugin/tool.wit"), "// mine\n").unwrap();
    let (code, printed, said) = desk.run(&["plugin", "renew", "."], &[]);
    assert!(code == Some(2) && printed.contains("one  renewed: from agent-host 0.0.9"), "{printed}{said}");
    assert!(said.contains("`agent-host-plugin/tool.wit`; nothing is overwritten"), "{said}");
    for (path, words) in [("nope", "there is no folder `nope`"), ("one/Cargo.toml", "`one/Cargo.toml` is no folder")] {
        for command in ["build", "renew"] {
            let (code, _, said) = desk.run(&["plugin", command, path], &[]);
            assert!(code == Some(2) && said.contains(words) && said.contains("plugin new NAME"), "{said}");
        }
    }
}

/// S4, P11: what is not there is named, with what may have been meant.
#[test]
fn s4_what_is_not_there_is_said() {
    let desk = Desk::new();
    desk.run(&["plugin", "new", "words", "--lang", "c"], &[]);
    std::fs::create_dir(desk.path("empty")).unwrap();
    for (arguments, words) in [
        (&["test", "nope"][..], "there is no file or folder `nope`: name a folder with scenarios"),
        (&["test", "words/plugin.toml"], "`words/plugin.toml` is no scenario: the name of one ends in .scenario.toml"),
        (&["test", "ords/w"], "`agent-host test . ords/w` plays those of this folder"),
        (&["plugin", "add", "nope"], "registry.example/team/calc:1.0.0; and no file or folder here has this name"),
        (&["plugin", "add", "nope.wasm"], "there is no file or folder `nope.wasm`: `agent-host plugin build` makes"),
        (
            &["plugin", "add", "./nope", "--plugins", "p"],
            "there is no file or folder `./nope`: `agent-host plugin build`",
        ),
        (&["plugin", "add", "registry.example/a.wasm"], "of a registry it is written `oci://registry.example/a.wasm`"),
        (&["plugin", "add", "empty", "--plugins", "p"], "there is no plugin (*.wasm) in `empty`"),
    ] {
        let (code, _, said) = desk.run(arguments, &[]);
        assert!(code == Some(2) && said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!desk.path("p").exists());
}

/// S5: without a terminal `dev` asks what to do.
#[test]
fn s5_dev_needs_somebody_or_a_prompt() {
    let desk = Desk::new();
    desk.run(&["plugin", "new", "words", "--lang", "c"], &[]);
    let (code, _, said) = desk.run(&["dev", "words"], &[]);
    assert!(code == Some(2) && said.contains("--prompt"), "{said}");
    let (code, _, said) = desk.run(&["dev", "nowhere", "--prompt", "x"], &[]);
    assert!(code == Some(2) && said.contains("nowhere"), "{said}");
}

/// A toolchain: the variables that name its tools, and how the author's own tests are run.
pub(crate) type Peer = (Vec<(&'static str, PathBuf)>, Vec<Command>);

pub(crate) fn peer(language: &str) -> Option<Peer> {
    let cache = || ("ZIG_GLOBAL_CACHE_DIR", repository().join("tests/.peers/zig"));
    Some(match language {
        "python" => {
            let mut tests = Command::new(python_peer("python")?);
            tests.args(["-m", "unittest"]);
            (vec![("COMPONENTIZE_PY", python_peer("componentize-py")?)], vec![tests])
        }
        "js" => {
            let mut tests = Command::new(node_peer("node")?);
            tests.arg("--test");
            let path = std::env::join_paths([node_peer("node")?.parent()?]).ok()?;
            (vec![("JCO", node_peer("jco")?), ("PATH", path.into())], vec![tests])
        }
        _ => {
            let mut tests = Command::new(python_peer("python-zig")?);
            tests.args(["run", "-lc", "test_logic.c", "logic.c"]).envs([cache()]);
            (vec![("ZIG", python_peer("python-zig")?), cache()], vec![tests])
        }
    })
}

/// Makes a project of each kind, runs its own test, builds it, plays its scenario, and puts it into the house's folder.
fn projects(house: &House, language: &str) -> bool {
    let Some((variables, tests)) = peer(language) else { return false };
    let desk = Desk::new();
    for kind in ["tool", "context-builder", "output-validator", "media-policy"] {
        let (code, _, said) = desk.run(&["plugin", "new", kind, "--kind", kind, "--lang", language], &[]);
        assert_eq!(code, Some(0), "{said}");
        for command in &tests {
            let mut tests = Command::new(command.get_program());
            tests.args(command.get_args()).current_dir(desk.path(kind));
            tests.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = tests.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{language} {kind}: {}", String::from_utf8_lossy(&said));
        }
        let (code, printed, said) = desk.run(&["plugin", "build", kind], &variables);
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains(&format!("exports   agent-host:plugin@0.1.0 {kind}")), "{printed}");
        let (code, printed, said) = desk.run(&["test", kind], &variables);
        assert!(code == Some(0) && printed.contains("1 scenario: 1 passed"), "{language} {kind}: {printed}{said}");
        let file = format!("{kind}.wasm");
        std::fs::copy(desk.path(kind).join(&file), house.directory.path().join("plugins").join(file)).unwrap();
    }
    true
}

/// What projects of all kinds do as they come from `plugin new`, together in one turn.
async fn answers_as_new_projects_do(house: &House) {
    let generation = house.generation().await;
    assert_eq!(generation.plugins().len(), 4);
    for plugin in generation.plugins() {
        assert!(plugin.manifest().is_some_and(|manifest| manifest.version == "0.1.0"), "{}", plugin.name());
        let limits = agent_plugins::CallLimits::default();
        let canary = house.sandbox.canary_cost(plugin, limits).await;
        assert_eq!(canary.is_some(), plugin.name() == "tool", "{}", plugin.name());
        let examined = agent_devkit::check::Examined { canary, ..agent_devkit::check::Examined::of(plugin) };
        let findings = agent_devkit::check::check(&examined);
        assert!(
            findings.iter().all(|finding| finding.rule == "size" || finding.rule == "compile-time"),
            "{findings:?}"
        );
    }
    let mut config = AgentConfig::new("test");
    config.user = Some("ada".to_owned());
    config.context_builder = Some("context-builder".to_owned());
    config.validators = vec!["output-validator".to_owned()];
    let calls = [
        ("tool.count", json!({"text": "Öl, oil and \"OIL\"\n", "word": "oil"})),
        ("tool.count", json!({"text": "", "word": "two words"})),
    ];
    let replies = [calling(&calls), saying("TODO"), saying("Twice.")];
    let mut session = house.session(config, script(&replies)).await;
    let result = turn(&mut session, "How often?").await;
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("Twice."));
    let results = results(house, &session).await;
    assert!(!results[0].1 && results[0].2.contains("2"), "{results:?}");
    assert!(results[1].1 && results[1].2.contains("/word"), "{results:?}");
    let rejected = events(house, &session).await;
    let rejected = rejected.iter().filter(|event| matches!(event.kind, EventKind::OutputRejected { .. }));
    assert_eq!(rejected.count(), 1, "the validator has refused what was not finished");
    let stored = records(house, &session, 1).await;
    let context = stored.iter().find(|stored| stored.record.kind == "context").expect("the builder was asked");
    let body = context.record.body.to_string();
    assert!(body.contains("answering") && body.contains("You write for ada."), "{body}");
}

/// S1, S2, P1: projects in Python of every kind.
#[tokio::test(flavor = "multi_thread")]
async fn new_projects_in_python() {
    let house = House::new(&[]).await;
    if projects(&house, "python") {
        answers_as_new_projects_do(&house).await;
    }
}

/// S1, S2, P1: in JavaScript.
#[tokio::test(flavor = "multi_thread")]
async fn new_projects_in_javascript() {
    let house = House::new(&[]).await;
    if projects(&house, "js") {
        answers_as_new_projects_do(&house).await;
    }
}

/// S1, S2, P1: in C.
#[tokio::test(flavor = "multi_thread")]
async fn new_projects_in_c() {
    let house = House::new(&[]).await;
    if projects(&house, "c") {
        answers_as_new_projects_do(&house).await;
    }
}
