//! `setup` writes the user-wide configuration, which applies in folders without an agent.toml (I1, I2, M2, P6).

use super::User;
use crate::support::{call_reply, components, text_reply};
use crate::terminal::CTRL_D;
use serde_json::json;

fn count() -> serde_json::Value {
    call_reply(&[("text.count_file", json!({"path": "a.txt"}))])
}

/// I1, P6: the questions are answered at the terminal; then `agent-host` works in every folder without options, and the
/// plugins read the current folder, but never the whole home folder.
#[test]
fn i1_answers_at_the_terminal_are_used_in_all_folders() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new(&[count(), text_reply("Two words.")]);
    let mut screen = user.start("home", &["setup"]);
    screen.wait_for("Model [");
    screen.send("nobody/model\r");
    screen.wait_for("`nobody` in `nobody/model` is not a known provider");
    screen.send(&format!("{}\r", user.model()));
    screen.wait_for("Plugin folder [");
    screen.send("/no/such/folder\r");
    screen.wait_for("`/no/such/folder` is not a folder");
    screen.send("\r");
    screen.wait_for("May files and text read the folder in which agent-host is started?");
    screen.send("\r");
    screen.wait_for("next: `agent-host` starts a session in any folder");
    assert_eq!(screen.exit_code(), Some(0));
    let file = user.path(&User::user_file().display().to_string());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let printed = user.run("home/project", &["Count the words."]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stdout.contains("Two words."), "{printed:?}");
    assert!(printed.stderr.contains("a.txt has"), "{printed:?}");
    let shown = user.run("home/project", &["config", "show"]);
    assert!(shown.stdout.contains("grant for files: read the folder in which agent-host is started"), "{shown:?}");
    let in_home = user.run("home", &["Count the words."]);
    assert!(in_home.stderr.contains("it would be your home folder"), "{in_home:?}");
    assert!(!in_home.stderr.contains("a.txt has"), "nothing was read: {in_home:?}");
}

/// I2: without a terminal, the options and the present values are used. A second run keeps comments and other keys, and
/// `--show` shows the values.
#[test]
fn i2_setup_without_a_terminal_keeps_the_rest_of_the_file() {
    let user = User::new(&[]);
    let refused = user.run("home", &["setup", "--model", "offline"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    let shown = user.run("home", &["setup", "--show"]);
    assert!(shown.stdout.contains("does not exist"), "{shown:?}");
    let plugins = user.path("installed").display().to_string();
    let written = user.run("home", &["setup", "--model", "openai/gpt-4.1-mini", "--plugins", &plugins, "--yes"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(written.stderr.contains("OPENAI_API_KEY is not set"), "{written:?}");
    let text = user
        .user_text()
        .replace("model = \"openai/gpt-4.1-mini\"", "model = \"openai/gpt-4.1-mini\" # mine\nmemory = \"off\"");
    let file = User::user_file().display().to_string();
    user.write(&file, &text);
    let again = user.run("home", &["setup", "--yes", "--no-read"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let text = user.user_text();
    assert!(text.contains("model = \"openai/gpt-4.1-mini\" # mine\nmemory = \"off\""), "{text}");
    assert!(text.contains(&format!("plugin_directory = \"{plugins}\"")) && !text.contains("\".\""), "{text}");
    let shown = user.run("home", &["setup", "--show"]);
    for expected in ["openai/gpt-4.1-mini", "in OPENAI_API_KEY, which is not set", &plugins, &file] {
        assert!(shown.stdout.contains(expected), "{expected}: {shown:?}");
    }
}

/// P7: a key is never stored and never repeated, even if the user types it in place of the variable's name.
#[test]
fn p7_a_key_is_neither_stored_nor_shown() {
    let user = User::new(&[]);
    let key = "sk-proj-0123456789abcdef";
    let refused = user.run("home", &["setup", "--model", "openai/gpt-4.1-mini", "--key-env", key, "--yes"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(!refused.stderr.contains(key) && !refused.stdout.contains(key), "{refused:?}");
    assert!(!user.path(&User::user_file().display().to_string()).exists());
    let written = user.run("home", &["setup", "--model", "openai/gpt-4.1-mini", "--key-env", "WORK_KEY", "--yes"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(user.user_text().contains("[providers.openai]\nkey_env = \"WORK_KEY\""), "{}", user.user_text());
}

/// M2: the options take precedence over the agent.toml of the folder, the agent.toml over the user-wide file, and the
/// user-wide file over the built-in model. `config check` and `config show` say where the model comes from.
#[test]
fn m2_the_nearest_configuration_takes_precedence() {
    let user = User::new(&[text_reply("Hello.")]);
    let model = |arguments: &[&str]| {
        let printed = user.run("home/project", &[&["config", "show"], arguments].concat());
        assert_eq!(printed.code, Some(0), "{printed:?}");
        let line = printed.stdout.lines().find(|line| line.contains("uses the model")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{printed:?}"))
    };
    user.write("home/project/agent.toml", "instructions = \"Be brief.\"\n");
    assert!(model(&[]).contains("offline (built in"), "{}", model(&[]));
    user.set_up();
    assert!(model(&[]).contains(&user.model()) && model(&[]).contains("(from "), "{}", model(&[]));
    let check = user.run("home/project", &["config", "check"]);
    assert!(check.stdout.contains("agent.toml: ok") && check.stdout.contains("(from "), "{check:?}");
    user.write("home/project/agent.toml", "model = \"offline/router\"\n");
    assert!(model(&[]).ends_with("offline/router"), "{}", model(&[]));
    std::fs::remove_file(user.path("home/project/agent.toml")).unwrap();
    let check = user.run("home/project", &["config", "check"]);
    assert!(check.stdout.contains("ok (the user-wide configuration)"), "{check:?}");
    let named = user.run("home/project", &["--model", "offline", "What can you do?"]);
    assert_eq!(named.code, Some(0), "{named:?}");
    assert!(named.stdout.contains("offline router"), "{named:?}");
}

/// Row 56: a user-wide file that other users can change is refused.
#[test]
fn row_56_a_user_wide_file_that_others_can_change_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new(&[text_reply("No.")]);
    user.set_up();
    let file = user.path(&User::user_file().display().to_string());
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).unwrap();
    let printed = user.run("home/project", &["Hello there."]);
    assert_eq!(printed.code, Some(2), "{printed:?}");
    assert!(printed.stderr.contains("chmod 600"), "{printed:?}");
}

/// I1: a session without a model says in one line how to choose one.
#[test]
fn i1_the_greeting_names_setup_if_no_model_is_configured() {
    let user = User::new(&[text_reply("Hello.")]);
    let plugins = user.path("installed").display().to_string();
    let mut screen = user.start("home/project", &["--plugins", &plugins]);
    screen.wait_for("no model is configured; `agent-host setup` chooses one for all folders");
    screen.wait_for_prompt(1);
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
    user.set_up();
    let mut screen = user.start("home/project", &[]);
    screen.wait_for_prompt(1);
    assert!(!screen.text().contains("no model is configured"), "{}", screen.text());
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// P11, I1: `setup` shows the standard plugins with what they ask for. A selection is copied into the user's own plugin
/// folder and locked, a second run can change it, and `plugin search` finds the plugins.
#[test]
fn p11_setup_offers_the_index_of_the_standard_plugins() {
    let user = User::new(&[text_reply("Hello.")]);
    let installed = user.path("installed").display().to_string();
    let refused = user.run("home", &["plugin", "search", "text"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--index"), "{refused:?}");
    let indexed = user.run("home", &["plugin", "index", &installed]);
    assert_eq!(indexed.code, Some(0), "{indexed:?}");
    let found = user.run("home", &["plugin", "search", "lists", "searches", "writes", "files"]);
    assert!(
        found.stdout.starts_with("files 0.1.0  tool\n") && found.stdout.contains("asks for reading and writing files"),
        "{found:?}"
    );

    let mut screen = user.start("home", &["setup", "--model", &user.model()]);
    screen.wait_for("Plugin folder [");
    screen.send("\r");
    screen.wait_for("Which standard plugins?");
    screen.wait_for("asks for reading and writing files");
    screen.wait_for("Plugins [all]:");
    screen.send("txt\r");
    screen.wait_for("there is no standard plugin `txt`; did you mean `text`?");
    screen.send("text\r");
    screen.wait_for("May text read the folder");
    screen.send("\r");
    screen.wait_for("next: `agent-host` starts a session");
    assert_eq!(screen.exit_code(), Some(0));
    let own = user.path("home/.config/agent-host/plugins");
    assert_eq!(std::fs::read(own.join("text.wasm")).unwrap(), std::fs::read(user.path("installed/text.wasm")).unwrap());
    assert!(!own.join("files.wasm").exists());
    assert!(user.user_text().contains(&own.display().to_string()), "{}", user.user_text());
    let verified = user.run("home", &["plugin", "verify", "--plugins", &own.display().to_string()]);
    assert!(verified.code == Some(0) && verified.stdout.contains("text"), "{verified:?}");

    // A second run replaces the selection. A component that is not the one in the index is refused.
    let changed = user.run("home", &["setup", "--model", &user.model(), "--standard", "files", "--yes"]);
    assert_eq!(changed.code, Some(0), "{changed:?}");
    assert!(own.join("files.wasm").exists() && !own.join("text.wasm").exists());
    std::fs::copy(user.path("installed/files.wasm"), user.path("installed/text.wasm")).unwrap();
    let tampered = user.run("home", &["setup", "--model", &user.model(), "--standard", "text", "--yes"]);
    assert!(tampered.code == Some(2) && tampered.stderr.contains("text.wasm"), "{tampered:?}");
    let unknown = user.run("home", &["setup", "--model", &user.model(), "--standard", "nothing", "--yes"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("no standard plugin `nothing`"), "{unknown:?}");
}

/// P6, row 53: a component that only has the file name of a standard plugin does not get the grant of the standard plugin
/// without the user's decision. The digest decides, wherever the component is.
#[test]
fn p6_a_foreign_component_is_not_granted_reading_by_default() {
    let user = User::new(&[]);
    let indexed = user.run("home", &["plugin", "index", &user.path("installed").display().to_string()]);
    assert_eq!(indexed.code, Some(0), "{indexed:?}");
    std::fs::create_dir(user.path("foreign")).unwrap();
    std::fs::copy(components().join("probe.wasm"), user.path("foreign/files.wasm")).unwrap();
    std::fs::copy(components().join("text.wasm"), user.path("foreign/text.wasm")).unwrap();
    let foreign = user.path("foreign").display().to_string();
    let written = user.run("home", &["setup", "--model", "offline", "--plugins", &foreign, "--yes"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let shown = user.run("home/project", &["config", "show"]);
    let reads = |plugin: &str| format!("grant for {plugin}: read the folder in which agent-host is started");
    assert!(shown.stdout.contains(&reads("text")) && !shown.stdout.contains(&reads("files")), "{shown:?}");
    let mut screen = user.start("home", &["setup"]);
    screen.wait_for("Model [");
    screen.send("\r");
    screen.wait_for("Plugin folder [");
    screen.send("\r");
    screen.wait_for("May text read the folder in which agent-host is started? [Y/n]");
    screen.send("\r");
    screen.wait_for("May files, which were not installed with agent-host, read the folder");
    screen.send("y\r");
    screen.wait_for("next: `agent-host` starts a session in any folder");
    assert_eq!(screen.exit_code(), Some(0));
    let again = user.run("home", &["setup", "--yes"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let shown = user.run("home/project", &["config", "show"]);
    assert!(shown.stdout.contains(&reads("files")), "the user's own answer stays: {shown:?}");
}
