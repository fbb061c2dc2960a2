//! The workflow of a plugin author with the real binary: new projects in each language, checks, and a session that
//! loads a changed plugin (S1–S3, S5).

use crate::peers::{link_local_packages, node_peer, python_peer};
use crate::support::{
    SharedCompiledCode, TestHost, agent_host, call_reply, components, events, records, repository, results, run_turn,
    script, text_reply,
};
use agent_core::event::EventKind;
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The binary, with a temporary folder in which it runs and a data folder of its own.
pub(crate) struct TestCli {
    _compiled_code: SharedCompiledCode,
    folder: TempDir,
}

impl TestCli {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { _compiled_code: SharedCompiledCode::in_data(&folder.path().join("data")), folder }
    }

    /// Returns a path in the folder in which the binary runs.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the binary, which must succeed, and returns its stdout.
    pub(crate) fn succeed(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> String {
        let (code, printed, stderr) = self.run(arguments, variables);
        assert_eq!(code, Some(0), "{arguments:?}: {printed}{stderr}");
        printed
    }

    /// Creates a project, and replaces its source, manifest and scenario by the files of a guest. `removed` names files of
    /// the new project that are removed.
    pub(crate) fn new_project_of_guest(&self, name: &str, language: &str, removed: &[&str]) {
        self.succeed(&["plugin", "new", name, "--lang", language], &[]);
        let project = self.path(name);
        for file in removed.iter().copied().chain([&*format!("{name}.scenario.toml")]) {
            std::fs::remove_file(project.join(file)).unwrap();
        }
        for entry in std::fs::read_dir(repository().join("tests/guests").join(name)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, project.join(path.file_name().unwrap())).unwrap();
        }
    }

    /// Runs the binary, and returns its exit code, stdout and stderr.
    pub(crate) fn run(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> (Option<i32>, String, String) {
        let mut command = agent_host();
        command.args(arguments).arg("--data").arg(self.path("data")).current_dir(self.folder.path());
        let output = command.envs(variables.iter().cloned()).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// S1: `plugin new` prints the next steps. If the project cannot be created, the error suggests a fix, and nothing is
/// overwritten.
#[test]
fn s1_a_new_project_prints_the_next_steps() {
    let cli = TestCli::new();
    let (code, printed, _) = cli.run(&["plugin", "new", "words", "--lang", "js"], &[]);
    assert_eq!(code, Some(0));
    assert!(printed.starts_with("words  a tool in JavaScript\n  cd words\n  npm install\n"), "{printed}");
    for (arguments, words) in [
        (&["words"][..], "`words` already exists"),
        (&["Two Words"], "try `two-words`"),
        (&["fn"], "the name is reserved in Rust projects"),
        (&["x", "--dir", "words/README.md"], "cannot create `words/README.md`"),
        (&["x", "--lang", "java"], "rust, python, js, c"),
        (&["x", "--kind", "tools"], "context-builder"),
        (&["x", "--sdk", "."], "is not the agent-host SDK"),
    ] {
        let (code, _, stderr) = cli.run(&[&["plugin", "new"], arguments].concat(), &[]);
        assert!(code == Some(2) && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let (code, printed, stderr) = cli.run(&["plugin", "new", "x", "--dir", "some/where", "--lang", "c"], &[]);
    assert!(code == Some(0) && printed.contains("cd some/where/x\n"), "the folder is created: {stderr}");
    let (code, _, stderr) =
        cli.run(&["plugin", "build", "words"], &[("PATH", PathBuf::new()), ("JCO", PathBuf::new())]);
    assert!(code == Some(2) && stderr.contains("words && npm install\n"), "{stderr}");
}

/// S3: `plugin check` accepts a plugin that has no problems. The check fails for a plugin that cannot be loaded, or
/// that imports functions that a plugin can never use. The findings are the same with and without `--json`.
#[test]
fn s3_check_reports_the_problems_of_plugins() {
    let cli = TestCli::new();
    let (code, printed, stderr) =
        cli.run(&["plugin", "check", components().join("strict-json.wasm").to_str().unwrap()], &[]);
    assert!(code == Some(0) && printed.contains("no problems found"), "{printed}{stderr}");
    std::fs::create_dir(cli.path("several")).unwrap();
    std::fs::write(cli.path("several/a.wasm"), "no component").unwrap();
    std::fs::copy(components().join("stateful-builder.wasm"), cli.path("several/b.wasm")).unwrap();
    let (code, printed, _) = cli.run(&["plugin", "check", "several"], &[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("several/a.wasm") && printed.contains("error    asks.config: "), "{printed}");
    let (code, printed, _) = cli.run(&["plugin", "check", "several", "--json"], &[]);
    let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, documents.len()), (Some(1), 2));
    assert_eq!((&documents[0]["name"], &documents[0]["findings"][0]["rule"]), (&Value::Null, &json!("loads")));
    assert_eq!((&documents[1]["name"], &documents[1]["errors"]), (&json!("stateful-builder"), &json!(1)));
    assert_eq!(documents[1]["findings"][0]["rule"], "asks-too-little");
    std::fs::create_dir(cli.path("empty")).unwrap();
    let (code, _, stderr) = cli.run(&["plugin", "check", "empty"], &[]);
    assert!(code == Some(2) && stderr.contains("plugin new NAME"), "{stderr}");
}

/// S3: `plugin check` finds no errors and no warnings in the plugins of this repository.
#[test]
fn s3_plugins_of_the_project_pass_the_check() {
    let cli = TestCli::new();
    std::fs::create_dir(cli.path("own")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("plugins")).unwrap() {
        let file = format!("{}.wasm", entry.unwrap().file_name().to_string_lossy());
        if components().join(&file).exists() {
            std::fs::copy(components().join(&file), cli.path("own").join(&file)).unwrap();
            count += 1;
        }
    }
    assert!(count >= 12, "{count}");
    let (code, printed, stderr) = cli.run(&["plugin", "check", "own", "--json"], &[]);
    assert_eq!(code, Some(0), "{stderr}");
    for line in printed.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&document["errors"], &document["warnings"]), (&json!(0), &json!(0)), "{line}");
    }
}

/// S1: On request, agent-host updates the files that it generated in a plugin project, except files that the author
/// has changed.
#[test]
fn s1_updates_generated_project_files() {
    let cli = TestCli::new();
    for (name, language) in [("one", "rust"), ("two", "c")] {
        cli.run(&["plugin", "new", name, "--lang", language], &[]);
    }
    let (code, printed, _) = cli.run(&["plugin", "renew"], &[]);
    assert!(code == Some(0) && printed.matches("is up to date with this agent-host").count() == 2, "{printed}");
    for file in ["one/agent-host/agent-host.sha256", "two/wit/deps/agent-host.sha256"] {
        let list = std::fs::read_to_string(cli.path(file)).unwrap();
        std::fs::write(cli.path(file), list.replace("agent-host 0.1.0", "agent-host 0.0.9")).unwrap();
    }
    let (_, _, stderr) = cli.run(&["plugin", "build", "two"], &[("ZIG", "no-such-zig".into())]);
    assert!(
        stderr.contains("two is built with the contract of agent-host 0.0.9") && stderr.contains("plugin renew "),
        "{stderr}"
    );
    std::fs::write(cli.path("two/wit/deps/agent-host-plugin/tool.wit"), "// mine\n").unwrap();
    let (code, printed, stderr) = cli.run(&["plugin", "renew", "."], &[]);
    assert!(code == Some(2) && printed.contains("one  renewed: from agent-host 0.0.9"), "{printed}{stderr}");
    assert!(stderr.contains("`agent-host-plugin/tool.wit`; nothing was overwritten"), "{stderr}");
    for (path, words) in [("nope", "there is no folder `nope`"), ("one/Cargo.toml", "`one/Cargo.toml` is not a folder")]
    {
        for command in ["build", "renew"] {
            let (code, _, stderr) = cli.run(&["plugin", command, path], &[]);
            assert!(code == Some(2) && stderr.contains(words) && stderr.contains("plugin new NAME"), "{stderr}");
        }
    }
}

/// S4, P11: If a file on the command line does not exist, the error names the file and suggests a correction.
#[test]
fn s4_names_missing_files_with_suggestions() {
    let cli = TestCli::new();
    cli.run(&["plugin", "new", "words", "--lang", "c"], &[]);
    std::fs::create_dir(cli.path("empty")).unwrap();
    for (arguments, words) in [
        (&["test", "nope"][..], "there is no file or folder `nope`: name a folder with scenarios"),
        (
            &["test", "words/plugin.toml"],
            "`words/plugin.toml` is not a scenario: the name of a scenario file ends in .scenario.toml",
        ),
        (&["test", "ords/w"], "`agent-host test . ords/w` runs the scenarios of this folder"),
        (&["plugin", "add", "nope"], "registry.example/team/calc:1.0.0; and no file or folder has this name"),
        (
            &["plugin", "add", "nope.wasm"],
            "there is no file or folder `nope.wasm`: build plugin projects with `agent-host plugin build`",
        ),
        (
            &["plugin", "add", "./nope", "--plugins", "p"],
            "there is no file or folder `./nope`: build plugin projects with `agent-host plugin build`",
        ),
        (&["plugin", "add", "registry.example/a.wasm"], "for a registry, write `oci://registry.example/a.wasm`"),
        (&["plugin", "add", "empty", "--plugins", "p"], "there is no plugin (*.wasm) in `empty`"),
    ] {
        let (code, _, stderr) = cli.run(arguments, &[]);
        assert!(code == Some(2) && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert!(!cli.path("p").exists());
}

/// S5: Without a terminal, the command `dev` requires a prompt as an option.
#[test]
fn s5_dev_without_a_terminal_needs_a_prompt() {
    let cli = TestCli::new();
    cli.run(&["plugin", "new", "words", "--lang", "c"], &[]);
    let (code, _, stderr) = cli.run(&["dev", "words"], &[]);
    assert!(code == Some(2) && stderr.contains("--prompt"), "{stderr}");
    let (code, _, stderr) = cli.run(&["dev", "nowhere", "--prompt", "x"], &[]);
    assert!(code == Some(2) && stderr.contains("nowhere"), "{stderr}");
}

/// A toolchain: the environment variables that contain the paths of its tools, and the commands that run the tests of a
/// new project.
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

/// Runs the tests of a project with the commands of its toolchain.
fn run_project_tests(commands: &[Command], project: &Path) {
    for command in commands {
        let mut tests = Command::new(command.get_program());
        tests.args(command.get_args()).current_dir(project);
        tests.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = tests.output().unwrap();
        let output_text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}: {}", project.display(), String::from_utf8_lossy(&output_text));
    }
}

/// Checks a new project whose tool calls an API: its tests pass, its component imports `wasi:http`, and its scenario
/// answers the requests.
fn check_new_http_project(language: &str) {
    let Some((variables, tests)) = peer(language) else { return };
    let cli = TestCli::new();
    cli.succeed(&["plugin", "new", "orders", "--lang", language, "--http"], &[]);
    link_local_packages(&cli.path("orders"));
    run_project_tests(&tests, &cli.path("orders"));
    let printed = cli.succeed(&["plugin", "build", "orders"], &variables);
    assert!(printed.contains("wasi:http@0.2.0 types, outgoing-handler"), "{printed}");
    assert!(!printed.contains("wasi:keyvalue"), "{printed}");
    let printed = cli.succeed(&["plugin", "check", "orders"], &variables);
    assert!(!printed.contains("error") && !printed.contains("asks"), "{printed}");
    let printed = cli.succeed(&["test", "orders"], &variables);
    assert!(printed.contains("1 scenario: 1 passed"), "{printed}");
}

/// S8, S1, S4: `plugin new --http` creates a tool in JavaScript that calls an API.
#[test]
fn s8_new_http_projects_in_javascript_work() {
    check_new_http_project("js");
}

/// S8, S1, S4: `plugin new --http` creates a tool in C that calls an API.
#[test]
fn s8_new_http_projects_in_c_work() {
    check_new_http_project("c");
}

/// S8: Each function of the SDK for C reaches the host, and tools in C return results and errors of all kinds. The project contains no
/// WIT, so the build generates a world with the interfaces that the manifest requests.
#[test]
fn s8_functions_of_the_c_sdk_reach_the_host() {
    let Some((variables, _)) = peer("c") else { return };
    let cli = TestCli::new();
    std::fs::create_dir(cli.path("c-sdk")).unwrap();
    for file in ["app.c", "plugin.toml", "functions.scenario.toml"] {
        std::fs::copy(repository().join("tests/guests/c-sdk").join(file), cli.path("c-sdk").join(file)).unwrap();
    }
    let printed = cli.succeed(&["test", "c-sdk"], &variables);
    assert!(printed.contains("1 scenario: 1 passed"), "{printed}");
    let printed = cli.succeed(&["plugin", "check", "c-sdk"], &variables);
    assert!(!printed.contains("asks"), "{printed}");
}

/// Creates a project for each plugin kind. For each project, runs the project's tests, builds the plugin, copies the plugin to the
/// test host's folder, and runs the project's scenario. Returns false if the toolchain is
/// not installed.
fn build_new_projects(test_host: &TestHost, language: &str) -> bool {
    let Some((variables, tests)) = peer(language) else { return false };
    let cli = TestCli::new();
    for kind in ["tool", "context-builder", "output-validator", "media-policy"] {
        cli.succeed(&["plugin", "new", kind, "--kind", kind, "--lang", language], &[]);
        link_local_packages(&cli.path(kind));
        run_project_tests(&tests, &cli.path(kind));
        let (code, printed, stderr_text) = cli.run(&["plugin", "build", kind], &variables);
        assert_eq!(code, Some(0), "{stderr_text}");
        assert!(printed.contains(&format!("exports   agent-host:plugin@0.1.0 {kind}")), "{printed}");
        // The component is copied before `test` replaces it with a development build.
        let file = format!("{kind}.wasm");
        std::fs::copy(cli.path(kind).join(&file), test_host.directory.path().join("plugins").join(file)).unwrap();
        let (code, printed, stderr_text) = cli.run(&["test", kind], &variables);
        assert!(
            code == Some(0) && printed.contains("1 scenario: 1 passed"),
            "{language} {kind}: {printed}{stderr_text}"
        );
    }
    true
}

/// Runs one turn that uses the new plugins of all kinds, built from the unchanged files that `plugin new` created.
async fn check_new_projects_in_a_turn(test_host: &TestHost) {
    let generation = test_host.generation().await;
    assert_eq!(generation.plugins().len(), 4);
    for plugin in generation.plugins() {
        assert!(plugin.manifest().is_some_and(|manifest| manifest.version == "0.1.0"), "{}", plugin.name());
        let limits = agent_plugins::CallLimits::default();
        let canary = test_host.sandbox.canary_cost(plugin, limits).await;
        assert_eq!(canary.is_some(), plugin.name() == "tool", "{}", plugin.name());
        let examined = agent_devkit::check::PluginFacts { canary, ..agent_devkit::check::PluginFacts::of(plugin) };
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
    let replies = [call_reply(&calls), text_reply("TODO"), text_reply("Twice.")];
    let mut session = test_host.session(config, script(&replies)).await;
    let result = run_turn(&mut session, "How often?").await;
    let TurnResult::Finished(output) = result else { panic!("{result:?}") };
    assert_eq!(output.data, json!("Twice."));
    let results = results(test_host, &session).await;
    assert!(!results[0].1 && results[0].2.contains("2"), "{results:?}");
    assert!(results[1].1 && results[1].2.contains("/word"), "{results:?}");
    let rejected = events(test_host, &session).await;
    let rejected = rejected.iter().filter(|event| matches!(event.kind, EventKind::OutputRejected { .. }));
    assert_eq!(rejected.count(), 1, "the validator rejected the unfinished answer");
    let stored = records(test_host, &session, 1).await;
    let context = stored.iter().find(|stored| stored.record.kind == "context").expect("the builder was called");
    let body = context.record.body.to_string();
    assert!(body.contains("answering") && body.contains("You write for ada."), "{body}");
}

/// S1, S2, P1: New Python projects of every kind can be tested, built and used in a turn.
#[tokio::test(flavor = "multi_thread")]
async fn s1_new_projects_in_python_work() {
    let test_host = TestHost::new(&[]).await;
    if build_new_projects(&test_host, "python") {
        check_new_projects_in_a_turn(&test_host).await;
    }
}

/// S1, S2, P1: New JavaScript projects of every kind can be tested, built and used in a turn.
#[tokio::test(flavor = "multi_thread")]
async fn s1_new_projects_in_javascript_work() {
    let test_host = TestHost::new(&[]).await;
    if build_new_projects(&test_host, "js") {
        check_new_projects_in_a_turn(&test_host).await;
    }
}

/// S1, S2, P1: New C projects of every kind can be tested, built and used in a turn.
#[tokio::test(flavor = "multi_thread")]
async fn s1_new_projects_in_c_work() {
    let test_host = TestHost::new(&[]).await;
    if build_new_projects(&test_host, "c") {
        check_new_projects_in_a_turn(&test_host).await;
    }
}

/// Row 16: programs of a build do not get the secrets of the host, but all other variables.
#[test]
#[cfg(unix)]
fn row_16_builds_do_not_get_the_secrets_of_the_host() {
    use std::os::unix::fs::PermissionsExt;
    let cli = TestCli::new();
    let bin = cli.path("bin");
    std::fs::create_dir(&bin).unwrap();
    // Each program writes its variables, and fails.
    for program in ["cargo", "componentize-py", "node", "zig"] {
        let file = cli.path(&format!("{program}.env"));
        std::fs::write(bin.join(program), format!("#!/bin/sh\nenv > '{}'\nexit 1\n", file.display())).unwrap();
        std::fs::set_permissions(bin.join(program), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").expect("a PATH");
    let secrets = [
        ("OPENAI_API_KEY", "secret-1"),
        ("PGPASSWORD", "secret-2"),
        ("AGENT_HOST_NATS", "nats://secret-3@127.0.0.1"),
        ("NATS_PASSWORD", "secret-4"),
        ("AWS_ACCESS_KEY_ID", "secret-5"),
        ("AWS_SECRET_ACCESS_KEY", "secret-6"),
        ("AWS_SESSION_TOKEN", "secret-7"),
        ("KEPT", "kept"),
    ];
    let programs = [
        ("CARGO", bin.join("cargo")),
        ("COMPONENTIZE_PY", bin.join("componentize-py")),
        ("JCO", bin.join("node")),
        ("ZIG", bin.join("zig")),
        ("PATH", PathBuf::from(format!("{}:{path}", bin.display()))),
    ];
    let variables: Vec<_> = secrets.iter().map(|(name, value)| (*name, PathBuf::from(value))).chain(programs).collect();
    for (language, program) in [("rust", "cargo"), ("python", "componentize-py"), ("javascript", "node"), ("c", "zig")]
    {
        cli.succeed(&["plugin", "new", language, "--lang", language], &[]);
        let (code, _, stderr) = cli.run(&["plugin", "build", language], &variables);
        assert_ne!(code, Some(0), "the program fails");
        let inherited = std::fs::read_to_string(cli.path(&format!("{program}.env")));
        let inherited = inherited.unwrap_or_else(|error| panic!("{language}: {error}: {stderr}"));
        assert!(inherited.contains("KEPT=kept") && !inherited.contains("secret-"), "{language}: {inherited}");
    }
}
