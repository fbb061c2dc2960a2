//! `plugin explain`, `plugin list` and `config check` show the permissions that would be granted and the plugin
//! versions that would be used (P6, P10, S3).

use crate::support::{SharedCompiledCode, agent_host, components};
use agent_plugins::{Access, Asks, Manifest, with_manifest};
use std::path::Path;
use tempfile::TempDir;

fn plugin_folder(file: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plugins", "docs"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    drop(SharedCompiledCode::in_data(&folder.path().join("data")));
    std::fs::write(folder.path().join("agent.toml"), file).unwrap();
    folder
}

fn write_plugin(folder: &Path, manifest: &Manifest) {
    let bytes = with_manifest(&std::fs::read(components().join("text.wasm")).unwrap(), manifest).unwrap();
    std::fs::write(folder.join(format!("plugins/{}.wasm", manifest.name)), bytes).unwrap();
}

/// Runs the binary, and returns its stdout followed by its stderr, without lines that show the progress of slow compilations.
fn output(folder: &Path, arguments: &[&str]) -> String {
    let mut command = agent_host();
    command.args(arguments).args(["--data", "data"]).current_dir(folder).env_remove("NO_COLOR");
    let output = command.env("GRANTED", "yes").env("A_TOKEN", "0123456789").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let messages = stderr.split_inclusive('\n').filter(|line| !line.starts_with('…'));
    String::from_utf8_lossy(&output.stdout).into_owned() + &messages.collect::<String>()
}

fn manifest_with_every_request() -> Manifest {
    let asks = Asks {
        files: Some(Access::ReadWrite),
        env: vec!["GRANTED".into(), "HOME".into()],
        config: vec!["region".into(), "a.b".into()],
        http: vec!["GET https://*.example.com".into(), "https://other.example/v1/".into()],
        secrets: vec!["TOKEN".into(), "KEY".into()],
        key_value: true,
        model_tokens: Some(5_000),
        events: vec!["com.example.paid".into(), "com.example.sent".into()],
        media: true,
        optional: vec!["KEY".into()],
    };
    Manifest {
        name: "wants".into(),
        version: "1.0.0".into(),
        description: "Wants all.".into(),
        asks,
        ..Manifest::default()
    }
}

const GRANTS: &str = "plugin_directory = \"plugins\"\n\n[plugins.wants.grants]\nread = [\"docs\"]\nenv = [\"GRANTED\", \"PATH\"]\n\
                      config = { region = \"north\" }\nevents = [\"com.example.paid\", \"com.example.other\"]\nhttp = [\"GET https://api.example.com/v1/\", \"https://elsewhere.example\"]\n\n\
                      [plugins.wants.secrets.TOKEN]\nenv = \"A_TOKEN\"\nhosts = [\"api.example.com\"]\n";

/// P6, P7: For each permission that the plugin requests, `plugin explain` shows one line that says whether the
/// permission is granted or denied. Below this line, it also shows the line to add to the
/// configuration if the permission is not fully granted. Configured values are not shown.
#[test]
fn p6_explain_shows_every_kind_of_request() {
    let folder = plugin_folder(GRANTS);
    write_plugin(folder.path(), &manifest_with_every_request());
    let output_text = output(folder.path(), &["plugin", "explain", "plugins/wants.wasm", "--agent", "agent.toml"]);
    let (heading, requests) = output_text.split_once('\n').unwrap();
    assert!(
        heading.starts_with("wants ") && !output_text.contains("north") && !output_text.contains("0123456789"),
        "{output_text}"
    );
    insta::assert_snapshot!(requests, @r#"
      always    clocks, random numbers and a limited number of log lines
      gets      reading below docs
      gets      the variable GRANTED
      gets      the configuration value region
      gets      the request GET https://api.example.com/v1/
      gets      the secret TOKEN, which the host puts into the header `authorization` for https://api.example.com
      gets      sending the service event com.example.paid through the host, if the service's own rules allow it
      partly    reading and writing files; the plugin gets reading
                to allow all of it: [plugins.wants.grants] write = ["."]
      partly    the request GET https://*.example.com; the plugin gets GET https://api.example.com/v1/
                to allow all of it: [plugins.wants.grants] http = ["GET https://*.example.com"]
      denied    the environment variable HOME
                to allow it: [plugins.wants.grants] env = ["HOME"]
      denied    the configuration value "a.b"
                to allow it: [plugins.wants.grants] config = { "a.b" = "…" }
      denied    the request https://other.example/v1/
                to allow it: [plugins.wants.grants] http = ["https://other.example/v1/"]
      denied    the secret KEY, which is optional
                to allow it: [plugins.wants.secrets] KEY = { env = "KEY", hosts = ["other.example"] }
      denied    keeping values between calls
                to allow it: [plugins.wants.grants] key_value_mib = 10
      denied    asking the agent's model
                to allow it: [plugins.wants.grants] model_tokens = 5000
      denied    sending the service event com.example.sent
                to allow it: [plugins.wants.grants] events = ["com.example.sent"]
      denied    reading the media of the conversation
                to allow it: [plugins.wants.grants] media = true
      requests  to allow all of them: [plugins.wants.grants] http = ["GET https://*.example.com", "https://other.example/v1/"]
      unused    `wants` does not ask for the variable PATH in its manifest, so this grant has no effect
      unused    `wants` does not ask for the request https://elsewhere.example in its manifest, so this grant has no effect
      unused    `wants` does not ask for the service event com.example.other in its manifest, so this grant has no effect
    "#);
    let without_agent = output(folder.path(), &["plugin", "explain", "plugins/wants.wasm"]);
    assert_eq!(without_agent.matches("  denied ").count(), 14, "{without_agent}");
    assert!(!without_agent.contains("gets"), "{without_agent}");
}

/// I2, P6: `plugin explain`, `inspect` and `list` need no value of a secret or a granted variable, and warn of those that are not
/// set. `config check` lists unset variables together with all other problems; `--agent` names the file as in other commands.
#[test]
fn i2_unset_variables_are_problems_only_for_a_start() {
    let folder = plugin_folder(GRANTS);
    write_plugin(folder.path(), &manifest_with_every_request());
    let run = |arguments: &[&str]| {
        let mut command = agent_host();
        command.args(arguments).args(["--data", "data"]).current_dir(folder.path());
        let output = command.env_remove("GRANTED").env_remove("A_TOKEN").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, explained, notes) = run(&["plugin", "explain", "wants", "--agent", "agent.toml"]);
    assert_eq!(code, Some(0), "{notes}");
    assert!(explained.contains("gets      the secret TOKEN") && explained.contains("gets      the variable GRANTED"));
    for name in ["A_TOKEN", "GRANTED"] {
        let warning = format!("the environment variable `{name}` is not set; set it before you start the agent");
        assert!(notes.contains(&warning), "{notes}");
    }
    assert!(!explained.contains("placeholder"), "{explained}");
    let (code, _, notes) = run(&["plugin", "inspect", "wants", "--agent", "agent.toml"]);
    assert_eq!(code, Some(0), "{notes}");
    let (code, listed, notes) = run(&["plugin", "list", "--agent", "agent.toml"]);
    assert!(code == Some(0) && listed.contains("wants") && notes.contains("`A_TOKEN` is not set"), "{listed}{notes}");
    let (code, _, problems) = run(&["plugin", "call", "wants", "text.count", "--agent", "agent.toml"]);
    assert!(code == Some(2) && problems.contains("`A_TOKEN` is not set"), "{problems}");

    let wrong = GRANTS.replace("read = [\"docs\"]", "read = [\"nowhere\"]");
    std::fs::write(folder.path().join("agent.toml"), format!("{wrong}\n[plugins.absent.grants]\nread = [\"docs\"]\n"))
        .unwrap();
    for arguments in [&["agent.toml"][..], &["--agent", "agent.toml"], &[]] {
        let (code, _, problems) = run(&[&["config", "check"], arguments].concat());
        assert_eq!(code, Some(2), "{problems}");
        let expected =
            ["`A_TOKEN` is not set; set it", "`GRANTED` is not set; set it", "nowhere", "no plugin `absent`"];
        expected
            .iter()
            .for_each(|words| assert!(problems.contains(words), "{arguments:?}: no `{words}` in {problems}"));
    }
    let (code, shown, _) = run(&["config", "show", "--agent", "agent.toml"]);
    assert!(code == Some(0) && shown.contains("agent.toml"), "{shown}");
}

/// P10: After a version of a plugin was rolled back, neither the list of a folder nor the list of an agent shows this
/// version as the version in use.
#[test]
fn p10_lists_show_the_versions_that_would_be_used() {
    let folder = plugin_folder("plugin_directory = \"plugins\"\n");
    let version = |number: &str| Manifest { name: "text".into(), version: number.into(), ..Manifest::default() };
    let use_version = |number| {
        write_plugin(folder.path(), &version(number));
        output(folder.path(), &["--agent", "agent.toml", "Hello."])
    };
    use_version("1.0.0");
    use_version("2.0.0");
    let list = || output(folder.path(), &["plugin", "list", "plugins"]);
    assert!(list().contains("text 2.0.0"), "{}", list());
    let rollback_output = output(folder.path(), &["plugin", "rollback", "text"]);
    for shown in [list(), output(folder.path(), &["plugin", "list", "--agent", "agent.toml"])] {
        assert!(shown.contains("text 1.0.0") && !shown.contains("text 2.0.0"), "{rollback_output}{shown}");
        assert!(shown.contains("is rolled back") && shown.contains("--undo"), "{shown}");
    }
    let checked = output(folder.path(), &["config", "check", "agent.toml"]);
    assert!(checked.contains("agent.toml: ok") && checked.contains("is rolled back"), "{checked}");
    output(folder.path(), &["plugin", "rollback", "text", "--undo"]);
    assert!(list().contains("text 2.0.0"), "{}", list());
}

/// P7: A secret that a plugin needs and does not get is reported before the plugin runs, by `plugin call` and by `test`. Optional
/// secrets are not reported.
#[test]
fn p7_missing_secrets_are_reported_before_the_plugin_runs() {
    let folder = plugin_folder("plugin_directory = \"plugins\"\nmodel = \"offline\"\n");
    let asks = Asks {
        http: vec!["https://api.example.com".into()],
        secrets: vec!["TOKEN".into(), "KEY".into()],
        optional: vec!["KEY".into()],
        ..Asks::default()
    };
    write_plugin(
        folder.path(),
        &Manifest { name: "wants".into(), version: "1.0.0".into(), asks, ..Manifest::default() },
    );
    let call = ["plugin", "call", "plugins/wants.wasm", "text.count", "{\"text\": \"one two\"}"];
    let called = output(folder.path(), &call);
    assert!(called.contains("! `wants` asks for the secret TOKEN, which is not granted"), "{called}");
    assert!(
        called.contains("[plugins.wants.secrets] TOKEN = { env = \"TOKEN\"") && !called.contains("KEY"),
        "{called}"
    );
    let scenario =
        "plugins = [\"plugins/wants.wasm\"]\n\n[[calls]]\nname = \"text.count\"\narguments = { text = \"one two\" }\n";
    std::fs::write(folder.path().join("words.scenario.toml"), scenario).unwrap();
    let tested = output(folder.path(), &["test", "words.scenario.toml"]);
    assert!(tested.contains("1 passed"), "{tested}");
    assert!(
        tested.contains("`wants` asks for the secret TOKEN, which the scenario's agent does not grant"),
        "{tested}"
    );
    assert!(!tested.contains("KEY"), "{tested}");
}
