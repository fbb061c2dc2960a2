//! Manifests in files beside components that have none (P3, P11): the real binary writes them, reads them, publishes them
//! and refuses changed or hostile ones.

use super::{TestCli, in_plugins};
use crate::generic_components::command;
use crate::support::components;
use agent_plugins::{DirectoryScan, PluginDirectory, Sandbox, SandboxOptions, read_claims};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

impl TestCli {
    /// Copies the command-line program of the fixture, which has no manifest.
    fn with_program(name: &str) -> Self {
        let cli = Self::new();
        std::fs::copy(command(), cli.path(name)).unwrap();
        cli
    }

    /// Replaces a text of a file, which must contain the text.
    fn edit(&self, file: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(from), "{file} contains `{from}`: {text}");
        std::fs::write(self.path(file), text.replace(from, to)).unwrap();
    }

    fn inspect(&self, file: &str) -> Value {
        let output = self.run(&["plugin", "inspect", file, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn digest(&self, file: &str) -> String {
        self.inspect(file)["digest"].as_str().unwrap().to_owned()
    }
}

/// P3, P6: `plugin describe` writes a manifest with what the host derives, and changes nothing else. The program gets a
/// grant only if a line of the manifest also asks for it, and the tool has the name, text, schema and traits of the file.
#[test]
fn p3_describes_a_command_line_program_in_a_file_beside_it() {
    let cli = TestCli::with_program("shout.wasm");
    let bare = cli.inspect("shout.wasm");
    let output = cli.succeed(&["plugin", "describe", "shout.wasm"]);
    assert!(output.contains("shout.plugin.toml") && output.contains("1 tool"), "{output}");
    let written = std::fs::read_to_string(cli.path("shout.plugin.toml")).unwrap();
    for expected in ["name = \"shout\"", "# env = [\"NAME\"]", "# files = \"read\"", "export = \"wasi:cli/run@0.2."] {
        assert!(written.contains(expected), "{expected}: {written}");
    }
    let described = cli.inspect("shout.wasm");
    assert_eq!(described["tools"], bare["tools"], "the file describes what the host derives");
    assert_eq!((&bare["asks"], described["asks"]["env"].clone()), (&Value::Null, json!([])));
    assert!(described["manifest_file"].as_str().unwrap().ends_with("shout.plugin.toml"));
    cli.fails(2, &["plugin", "describe", "shout.wasm"], &["exists already", "--replace", "--out"]);
    cli.succeed(&["plugin", "describe", "shout.wasm", "--out", "copy.toml"]);
    assert_eq!(std::fs::read_to_string(cli.path("copy.toml")).unwrap(), written);

    let environment = |grant: &str| {
        let call = ["plugin", "call", "shout.wasm", "shout", r#"{"args": ["environment"]}"#, "--grant", grant];
        let output = cli.command(&call).env("COLOUR", "teal").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!environment("shout:env=COLOUR").contains("teal"), "the manifest does not ask for it");
    cli.edit("shout.plugin.toml", "# env = [\"NAME\"]", "env = [\"COLOUR\"]");
    assert!(environment("shout:env=COLOUR").contains("COLOUR=teal"));
    assert!(!environment("shout:env=OTHER").contains("teal"), "the agent does not grant it");
    let explained = cli.succeed(&["plugin", "explain", "shout.wasm"]);
    assert!(
        explained.contains("shout.plugin.toml") && explained.contains("the environment variable COLOUR"),
        "{explained}"
    );
    let checked = cli.succeed(&["plugin", "check", "shout.wasm"]);
    assert!(checked.contains("shout.plugin.toml") && !checked.contains("has no manifest"), "{checked}");

    cli.edit("shout.plugin.toml", "[[tools]]", "[[tools]]\nneeds_approval = true\ndestructive = true");
    cli.edit("shout.plugin.toml", "name = \"shout\"", "name = \"loud\"");
    cli.edit("shout.plugin.toml", "\"args\": {", "\"args\": {\n      \"maxItems\": 1,");
    let tool = cli.inspect("shout.wasm")["tools"][0].clone();
    assert_eq!(
        (&tool["name"], &tool["traits"]["needs_approval"], &tool["traits"]["destructive"]),
        (&json!("loud"), &json!(true), &json!(true))
    );
    assert_eq!(tool["traits"]["read_only"], json!(false));
    let call = |arguments: &str| cli.run_with_merged_output(&["plugin", "call", "shout.wasm", "loud", arguments]);
    let (code, text) = call(r#"{"args": ["upper"], "stdin": "abc"}"#);
    assert!(code == 0 && text.contains("ABC"), "{text}");
    let (code, text) = call(r#"{"args": ["upper", "more"]}"#);
    assert!(code != 0 && text.contains("/args"), "{text}");
}

/// P3: every exported function of a foreign component is described, and the description changes nothing.
#[test]
fn p3_describes_every_function_of_a_foreign_component() {
    let cli = TestCli::new();
    std::fs::copy(components().join("every-type.wasm"), cli.path("types.wasm")).unwrap();
    let built = std::fs::read(cli.path("types.wasm")).unwrap();
    if read_claims("types", &built).unwrap().manifest.is_some() {
        cli.fails(2, &["plugin", "describe", "types.wasm"], &["contains a manifest already", "plugin inspect"]);
        std::fs::write(cli.path("types.wasm"), without_manifest(&built)).unwrap();
    }
    let bare = cli.inspect("types.wasm");
    cli.succeed(&["plugin", "describe", "types.wasm"]);
    let described = cli.inspect("types.wasm");
    assert!(described["tools"].as_array().unwrap().len() > 20);
    assert_eq!(described["tools"], bare["tools"]);
    cli.edit("types.plugin.toml", "export = \"greet\"", "export = \"great\"");
    cli.fails(2, &["plugin", "inspect", "types.wasm"], &["describes the function `great`, which is not a tool"]);
    cli.edit("types.plugin.toml", "export = \"great\"", "export = \"greet\"\nread_only = true");
    cli.fails(2, &["plugin", "inspect", "types.wasm"], &["types.plugin.toml:", "unknown field `read_only`"]);
}

/// Removes the last section, which is the manifest.
fn without_manifest(component: &[u8]) -> Vec<u8> {
    let name = agent_plugins::MANIFEST_SECTION.as_bytes();
    let start = component.windows(name.len()).rposition(|window| window == name).unwrap();
    // The section begins with its id 0, its length in at most five bytes, and the length of the name.
    let found = (start.saturating_sub(7)..start).find(|begin| {
        component[*begin] == 0
            && leb(&component[begin + 1..]).is_some_and(|(length, size)| begin + 1 + size + length == component.len())
    });
    component[..found.unwrap()].to_vec()
}

fn leb(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// P11: `plugin push` publishes the component with the manifest inside, and a signature covers both files. The user who
/// adds the plugin needs no second file.
#[test]
fn p11_push_publishes_the_manifest_inside_the_component() {
    let cli = TestCli::with_program("shout.wasm");
    cli.succeed(&["plugin", "describe", "shout.wasm"]);
    cli.edit("shout.plugin.toml", "version = \"0.1.0\"", "version = \"2.5.0\"");
    cli.succeed(&["key", "new", "team.key", "--no-password"]);
    let pushed = cli.succeed(&["plugin", "push", &cli.reference("team/shout"), "shout.wasm", "--sign", "team.key"]);
    let digest = cli.digest("shout.wasm");
    assert!(pushed.contains("2.5.0") && pushed.contains(&digest), "{digest}: {pushed}");
    let other = TestCli::with_registry(&cli.registry);
    let key = std::fs::read_to_string(cli.path("team.pub")).unwrap();
    let key = key.lines().find(|line| line.starts_with("RW")).unwrap();
    let sharing = format!(
        "plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"required\"\n[sharing.trusted_keys]\n\"{}/team\" = \"{key}\"\n",
        cli.registry.host()
    );
    std::fs::write(other.path("agent.toml"), sharing).unwrap();
    other.succeed(&["plugin", "add", &cli.reference("team/shout"), "--agent", "agent.toml"]);
    assert!(!other.path("plugins/shout.plugin.toml").exists());
    let added = other.inspect("plugins/shout.wasm");
    assert_eq!((&added["version"], added["digest"].as_str()), (&json!("2.5.0"), Some(digest.as_str())));
    assert!(other.succeed(&["plugin", "verify", "--agent", "agent.toml"]).contains("signed by"));
    // P6: another manifest beside the component changes nothing: the host refuses the component with two manifests.
    std::fs::write(other.path("plugins/shout.plugin.toml"), "name = \"shout\"\n[asks]\nfiles = \"read-write\"\n")
        .unwrap();
    other.fails(2, &["plugin", "inspect", "plugins/shout.wasm"], &["two manifests", "delete that file"]);
    let listed = other.run_with_merged_output(&["plugin", "list", "plugins"]).1;
    assert!(listed.contains("two manifests"), "{listed}");
}

/// P11, P14: plugins.lock and a local signature are bound to both files. After a change of the manifest file, the host
/// refuses the plugin until the user decides, and `plugin add --replace` restores the locked version.
#[test]
fn p11_a_changed_manifest_file_is_not_the_locked_plugin() {
    let cli = TestCli::with_program("plugins/shout.wasm");
    cli.succeed(&["plugin", "describe", "plugins/shout.wasm"]);
    cli.succeed(&["key", "new", "team.key", "--no-password"]);
    cli.succeed(&["plugin", "sign", "./plugins/shout.wasm", "--key", "team.key"]);
    let program = std::fs::read(cli.path("plugins/shout.wasm")).unwrap();
    cli.succeed(&in_plugins(&["plugin", "add", "./plugins/shout.wasm"]));
    assert_eq!(std::fs::read(cli.path("plugins/shout.wasm")).unwrap(), program, "the author's files are kept");
    assert!(cli.path("plugins/shout.plugin.toml").exists());
    cli.succeed(&in_plugins(&["plugin", "verify"]));
    let digest = cli.digest("plugins/shout.wasm");

    cli.edit("plugins/shout.plugin.toml", "# files = \"read\"", "files = \"read-write\"");
    assert_ne!(cli.digest("plugins/shout.wasm"), digest);
    cli.fails(1, &in_plugins(&["plugin", "verify"]), &["differs"]);
    let (_, listed) = cli.run_with_merged_output(&["plugin", "list", "plugins"]);
    assert!(listed.contains("it is not the locked file"), "{listed}");
    cli.fails(2, &in_plugins(&["plugin", "remove", "shout"]), &["differs from its entry"]);
    let key = std::fs::read_to_string(cli.path("team.pub")).unwrap();
    let key = key.lines().find(|line| line.starts_with("RW")).unwrap();
    let agent = format!(
        "plugin_directory = \"signed\"\n[sharing]\nsignatures = \"required\"\n[sharing.trusted_keys]\nlocal = \"{key}\"\n"
    );
    std::fs::write(cli.path("agent.toml"), agent).unwrap();
    std::fs::create_dir(cli.path("signed")).unwrap();
    for name in ["shout.wasm", "shout.wasm.minisig", "shout.plugin.toml"] {
        std::fs::copy(cli.path(&format!("plugins/{name}")), cli.path(&format!("signed/{name}"))).unwrap();
    }
    let (_, refused) = cli.run_with_merged_output(&["plugin", "list", "--agent", "agent.toml"]);
    assert!(refused.contains("signature") && !refused.contains("shout Runs"), "{refused}");
    cli.edit("signed/shout.plugin.toml", "files = \"read-write\"", "# files = \"read\"");
    let (code, accepted) = cli.run_with_merged_output(&["plugin", "list", "--agent", "agent.toml"]);
    assert_eq!(code, 0, "{accepted}");

    cli.fails(1, &in_plugins(&["plugin", "add"]), &["differs from its entry", "--replace"]);
    cli.succeed(&in_plugins(&["plugin", "add", "--replace"]));
    assert!(!cli.path("plugins/shout.plugin.toml").exists(), "the locked version contains its manifest");
    assert_eq!(cli.digest("plugins/shout.wasm"), digest);
    // A manifest file that somebody puts beside the place of a new plugin does not become a part of that plugin.
    cli.succeed(&in_plugins(&["plugin", "remove", "shout"]));
    std::fs::write(cli.path("plugins/tides.plugin.toml"), "name = \"tides\"\n").unwrap();
    cli.push("tides", "1.0.0", &[]);
    let reference = cli.reference("team/tides");
    let add = in_plugins(&["plugin", "add", &reference]);
    cli.fails(2, &add, &["tides.plugin.toml", "--replace"]);
    cli.succeed(&[add.as_slice(), &["--replace"]].concat());
    assert!(!cli.path("plugins/tides.plugin.toml").exists());
}

/// P6, row 47: a manifest file that is hostile makes only its own plugin unusable, and no plugin gets the grants of
/// another one.
#[test]
fn row_47_hostile_manifest_files_affect_only_their_own_component() {
    let cli = TestCli::with_program("plugins/shout.wasm");
    std::fs::copy(command(), cli.path("plugins/whisper.wasm")).unwrap();
    for (manifest, reason) in [
        ("name = \"shout\"\n".to_owned(), "is already used by"),
        ("name = \"../shout\"\n".to_owned(), "whisper.plugin.toml:1: `name`"),
        (format!("name = \"whisper\"\n#{}", " ".repeat(70_000)), "more than 64 KiB"),
        ("name = \"whisper\"\n[grants]\nread = [\"/\"]\n".to_owned(), "unknown field `grants`"),
        ("name = \"whisper\"\n[[tools]]\nexport = \"wasi:cli/run@0.2.0 other\"\n".to_owned(), "which is not a tool"),
    ] {
        std::fs::write(cli.path("plugins/whisper.plugin.toml"), manifest).unwrap();
        let (_, listed) = cli.run_with_merged_output(&["plugin", "list", "plugins"]);
        assert!(listed.contains(reason) && listed.contains("shout Runs"), "{reason}: {listed}");
    }
}

/// P10: a new, changed or deleted manifest file is a new version of its plugin, which a running session notices.
#[tokio::test(flavor = "multi_thread")]
async fn p10_a_watched_folder_notices_manifest_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(command(), folder.path().join("shout.wasm")).unwrap();
    let sandbox = Sandbox::new(SandboxOptions::default()).unwrap();
    let mut directory = PluginDirectory::new(sandbox, folder.path().to_owned());
    let mut names = Vec::new();
    let manifest = folder.path().join("shout.plugin.toml");
    for text in [None, Some("name = \"loud\"\n"), Some("name = \"louder\"\n"), None] {
        match text {
            Some(text) => std::fs::write(&manifest, text).unwrap(),
            None => drop(std::fs::remove_file(&manifest)),
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        let contents = loop {
            assert!(Instant::now() < deadline, "the folder settles");
            match directory.scan().await.unwrap() {
                DirectoryScan::Settled(contents) => break contents,
                DirectoryScan::Changing => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        assert!(contents.problems.is_empty(), "{:?}", contents.problems);
        names.extend(contents.plugins.iter().map(|(_, plugin)| plugin.name().to_owned()));
    }
    assert_eq!(names, ["shout", "loud", "louder", "shout"]);
}
