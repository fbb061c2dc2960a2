//! Shell completions and manual pages of the real binary (I1).

use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with two agents and a plugin, and a data folder.
struct Folder {
    files: TempDir,
    data: TempDir,
}

impl Folder {
    fn new() -> Self {
        let folder = Self { files: tempfile::tempdir().unwrap(), data: tempfile::tempdir().unwrap() };
        let write = |path: &str, text: &str| {
            let path = folder.files.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("plugins/reader.wasm", "");
        write("agents/clerk.toml", "model = \"scripted:replies.json\"\nplugin_directory = \"../empty\"\n");
        write("agents/$(touch hacked).toml", "name = \"$(touch hacked)\"\n");
        write("empty/README", "");
        write("agents/replies.json", &json!({"replies": [{"text": "Yes."}]}).to_string());
        folder
    }

    fn command(&self) -> Command {
        let mut command = crate::support::agent_host();
        command.current_dir(self.files.path()).env("AGENT_HOST_DATA", self.data.path().join("data"));
        command.stdin(Stdio::null());
        command
    }

    /// Returns what the program proposes for the last of these words.
    fn proposed(&self, words: &[&str]) -> Vec<String> {
        self.proposed_in("bash", words)
    }

    /// Returns what the program prints for a shell.
    fn proposed_in(&self, shell: &str, words: &[&str]) -> Vec<String> {
        let mut command = self.command();
        command.env("AGENT_HOST_COMPLETE", shell).env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).args(["--", "agent-host"]).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

/// I1: commands, options, agents, sessions, plugins, models and grants are completed. Values that a shell would interpret are not
/// proposed, and nothing is created.
#[test]
fn i1_commands_and_values_are_completed() {
    let folder = Folder::new();
    assert_eq!(folder.proposed(&["session", "sho"]), ["show"]);
    assert!(folder.proposed(&["--plug"]).contains(&"--plugins".to_owned()));
    let nothing_stored = folder.proposed(&["session", "show", ""]);
    assert!(nothing_stored.iter().all(|word| word.starts_with('-')), "there is no session yet: {nothing_stored:?}");
    assert!(!folder.data.path().join("data").exists(), "a completion creates no data folder");
    assert_eq!(folder.proposed(&["--agent", "cl"]), ["clerk"]);
    let agents = folder.proposed(&["--agent", ""]);
    assert!(agents.contains(&"agents/clerk.toml".to_owned()), "{agents:?}");
    assert!(!agents.iter().any(|agent| agent.contains("touch")), "{agents:?}");
    assert_eq!(folder.proposed(&["--model", "gemini"]).first().map(|model| model.starts_with("gemini/")), Some(true));
    assert!(folder.proposed(&["--model", "scripted"]).contains(&"scripted:replies.json".to_owned()));
    let grants = folder.proposed(&["--plugins", "plugins", "--grant", "reader:r"]);
    assert_eq!(grants, ["reader:read="]);
    let run = folder.command().args(["--agent", "clerk", "Is it open?"]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let sessions = folder.proposed(&["session", "show", "clerk"]);
    assert!(sessions.len() == 1 && sessions[0].starts_with("clerk"), "{sessions:?}");
    let data = folder.data.path().join("data");
    let other = folder.proposed(&["--data", folder.files.path().to_str().unwrap(), "--session", "clerk"]);
    assert!(!folder.files.path().join("cache").exists(), "a completion creates nothing in the folder of `--data`");
    assert_eq!(other, Vec::<String>::new(), "the option names another data folder than {}", data.display());
}

/// I1: commands on plugins complete the names of the plugins in the plugin folder that they use.
#[test]
fn i1_plugins_are_completed() {
    let folder = Folder::new();
    for command in ["explain", "inspect", "call", "remove", "update", "history", "rollback"] {
        for shell in ["bash", "zsh", "fish"] {
            let found = folder.proposed_in(shell, &["plugin", command, "rea"]);
            assert_eq!(found, ["reader"], "{shell}: {command}");
        }
    }
    let named = |words: &[&str]| folder.proposed(&[&["plugin", "explain"], words, &["rea"]].concat());
    assert_eq!(named(&["--plugins", "plugins"]), ["reader"]);
    for other in [["--plugins", "empty"], ["--agent", "clerk"]] {
        assert_eq!(named(&other), Vec::<String>::new(), "{other:?}");
    }
    // The folder of the user-wide configuration is used in a folder without plugins.
    let configuration = folder.files.path().join("configuration");
    std::fs::create_dir_all(configuration.join("agent-host")).unwrap();
    let plugins = folder.files.path().join("plugins").canonicalize().unwrap();
    let text = format!("plugin_directory = {:?}\n", plugins.display().to_string());
    std::fs::write(configuration.join("agent-host/agent.toml"), text).unwrap();
    let mut command = folder.command();
    command.current_dir(folder.files.path().join("empty")).env("XDG_CONFIG_HOME", configuration);
    command.env("AGENT_HOST_COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", "3");
    let output = command.args(["--", "agent-host", "plugin", "explain", "rea"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "reader", "{output:?}");
}

/// I1: the names of files and folders that a shell would interpret are not proposed.
#[test]
fn i1_names_of_files_cannot_contain_shell_code() {
    let folder = Folder::new();
    let hostile =
        ["$(touch hacked)", "`touch hacked`", "a;touch hacked", "a&&touch hacked", "a>hacked", "a b", "a'b", "a\nb"];
    for place in ["", "plugins/"] {
        for name in hostile {
            std::fs::write(folder.files.path().join(format!("{place}{name}.wasm")), "").unwrap();
            std::fs::create_dir(folder.files.path().join(format!("{place}{name}"))).unwrap();
        }
    }
    let is_harmful = |word: &String| word.contains(['$', '`', ';', '&', '>', '\'', ' ', '\\']);
    for shell in ["bash", "zsh", "fish"] {
        for words in [
            &["plugin", "explain", ""][..],
            &["plugin", "explain", "a"],
            &["plugin", "remove", ""],
            &["plugin", "check", ""],
            &["plugin", "build", ""],
            &["plugin", "call", "plugins/"],
            &["plugin", "add", ""],
            &["--plugins", ""],
            &["--image", ""],
            &["config", "check", ""],
            &["session", "import", ""],
            &["plugin", "new", "x", "--dir", ""],
        ] {
            let found = folder.proposed_in(shell, words);
            let values = found.iter().map(|line| line.split([':', '\t']).next().unwrap_or_default().to_owned());
            let harmful: Vec<_> = values.filter(is_harmful).collect();
            assert_eq!(harmful, Vec::<String>::new(), "{shell}: {words:?}: {found:?}");
        }
    }
    // Other names are still proposed.
    assert!(folder.proposed(&["plugin", "check", "plu"]).contains(&"plugins/".to_owned()));
    assert!(folder.proposed(&["plugin", "call", "plugins/rea"]).contains(&"plugins/reader.wasm".to_owned()));
}

/// I1: the script works in the real shell.
#[test]
fn i1_the_script_works_in_bash() {
    let folder = Folder::new();
    let program = Path::new(env!("CARGO_BIN_EXE_agent-host"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = "source <(agent-host completions bash)\n\
                  COMP_WORDS=(agent-host --agent cl) COMP_CWORD=2\n\
                  _clap_complete_agent_host agent-host cl --agent && echo \"${COMPREPLY[*]}\"";
    let mut bash = Command::new("bash");
    bash.current_dir(folder.files.path()).env("PATH", path).args(["--norc", "-c", script]).stdin(Stdio::null());
    let output = bash.output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "clerk", "{output:?}");
}

/// I1: the manual pages contain every command, and no internal one.
#[test]
fn i1_every_command_has_a_manual_page() {
    let folder = Folder::new();
    let page = folder.command().arg("man").output().unwrap();
    assert!(String::from_utf8(page.stdout).unwrap().starts_with(".ie"), "the page is in roff");
    let pages = folder.files.path().join("man");
    let written = folder.command().args(["man", "--output", pages.to_str().unwrap()]).output().unwrap();
    assert!(written.status.success(), "{written:?}");
    let names: Vec<String> =
        std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for expected in ["agent-host.1", "agent-host-session.1", "agent-host-session-show.1", "agent-host-serve.1"] {
        assert!(names.contains(&expected.to_owned()), "{expected}: {names:?}");
    }
    let internal = |name: &String| name.starts_with("agent-host-compile");
    assert!(!names.iter().any(internal), "{names:?}");
}
