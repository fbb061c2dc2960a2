//! The commands on plugins, `config init` and `session pick` in folders without plugins and without an agent.toml, after
//! `setup` (I1, I2, P6, S3).

use super::User;
use crate::support::{components, text_reply};
use crate::terminal::CTRL_D;

/// S3, P6: in a folder without plugins, the commands use the plugin folder of the user-wide configuration, with its grants, and
/// say so. The folder's own plugins and a named file take precedence.
#[test]
fn s3_commands_use_the_user_wide_plugins() {
    let user = User::new(&[]);
    let installed = user.path("installed").display().to_string();
    let of_installation = format!("using the installed plugins in `{installed}`");
    let listed = user.run("home/project", &["plugin", "list"]);
    assert!(listed.code == Some(0) && listed.stdout.contains("text "), "{listed:?}");
    assert!(listed.stderr.contains(&of_installation), "without a user-wide configuration: {listed:?}");

    user.set_up();
    let file = user.path(&User::user_file().display().to_string()).display().to_string();
    let used = format!("using the plugin folder `{installed}` of the user-wide configuration `{file}`");
    for arguments in [&["list"][..], &["explain", "text"], &["inspect", "text"], &["inspect", "text", "--json"]] {
        let shown = user.run("home/project", &[&["plugin"], arguments].concat());
        assert!(shown.code == Some(0) && shown.stdout.contains("text"), "{arguments:?}: {shown:?}");
        assert!(shown.stderr.contains(&used) && !shown.stdout.contains(&used), "{arguments:?}: {shown:?}");
    }
    let explained = user.run("home/project", &["plugin", "explain", "text"]);
    assert!(explained.stdout.contains("gets      reading below"), "the user-wide grants apply: {explained:?}");
    let called = user.run("home/project", &["plugin", "call", "text", "text.count_file", r#"{"path": "a.txt"}"#]);
    assert!(called.code == Some(0) && called.stderr.contains(&used), "{called:?}");
    let absent = user.run("home/project", &["plugin", "explain", "txt"]);
    assert!(absent.code == Some(2) && absent.stderr.contains("did you mean `text`?"), "{absent:?}");

    // The file of a component gets no grant of the user-wide configuration.
    std::fs::copy(components().join("text.wasm"), user.path("home/project/text.wasm")).unwrap();
    let named = user.run("home/project", &["plugin", "explain", "text.wasm"]);
    assert!(named.code == Some(0) && !named.stderr.contains("user-wide"), "{named:?}");
    assert!(!named.stdout.contains("gets"), "{named:?}");
    std::fs::create_dir(user.path("home/project/plugins")).unwrap();
    std::fs::copy(components().join("calc.wasm"), user.path("home/project/plugins/calc.wasm")).unwrap();
    let own = user.run("home/project", &["plugin", "explain", "text"]);
    assert!(own.code == Some(2) && own.stderr.contains("the folder `plugins` has no plugin"), "{own:?}");
    let listed = user.run("home/project", &["plugin", "list"]);
    assert!(listed.stdout.contains("calc ") && listed.stderr.contains("using the folder `plugins`"), "{listed:?}");
}

/// S3, P11: without a named folder, plugins are added to the user's own plugin folder, and verified, updated and removed there.
#[test]
fn p11_plugins_are_added_to_the_user_wide_folder() {
    let user = User::new(&[]);
    let calc = components().join("calc.wasm").display().to_string();
    let add = |folder: &str| user.run(folder, &["plugin", "add", &calc]);
    let nowhere = add("home/project");
    assert!(nowhere.code == Some(2) && nowhere.stderr.contains("name the plugin folder with --plugins"), "{nowhere:?}");
    user.set_up();
    let of_installation = add("home/project");
    assert!(of_installation.stderr.contains("agent-host setup --standard"), "{of_installation:?}");
    assert!(!user.path("installed/calc.wasm").exists(), "the installation stays as it is");
    assert_eq!(user.run("home/project", &["plugin", "verify"]).code, Some(0), "reading is allowed");

    let own = user.path("home/own plugins").display().to_string();
    std::fs::create_dir(&own).unwrap();
    let chosen = user.run("home", &["setup", "--plugins", &own, "--yes"]);
    assert_eq!(chosen.code, Some(0), "{chosen:?}");
    let added = add("home/project");
    assert_eq!(added.code, Some(0), "{added:?}");
    let used = format!("using the plugin folder `{own}` of the user-wide configuration");
    assert!(added.stderr.contains(&used) && !added.stdout.contains(&used), "{added:?}");
    let called = user.run("home/project", &["plugin", "call", "calc", "calc.evaluate", r#"{"expression": "6 * 7"}"#]);
    assert!(called.code == Some(0) && called.stdout.contains("42"), "{called:?}");
    for arguments in [&["verify"][..], &["update", "--check"], &["remove", "calc"]] {
        let run = user.run("home/project", &[&["plugin"], arguments].concat());
        assert!(run.code == Some(0) && run.stderr.contains(&used), "{arguments:?}: {run:?}");
    }
    assert!(!user.path("home/own plugins/calc.wasm").exists());

    // In a subfolder of a project, nothing is changed that belongs to another place.
    std::fs::create_dir_all(user.path("home/app/src")).unwrap();
    user.write("home/app/agent.toml", "plugin_directory = \"plugins\"\n");
    let inside = add("home/app/src");
    assert!(inside.code == Some(2) && inside.stderr.contains("is in the project of"), "{inside:?}");

    // The folder's own plugins take precedence. The file of an agent decides about keys, so it must be named.
    std::fs::create_dir(user.path("home/project/plugins")).unwrap();
    let local = add("home/project");
    assert!(local.code == Some(0) && local.stderr.contains("using the folder `plugins`"), "{local:?}");
    assert!(user.path("home/project/plugins/calc.wasm").exists());
    user.write("home/project/agent.toml", "plugin_directory = \"plugins\"\n");
    let agents = user.run("home/project", &["plugin", "verify"]);
    assert!(agents.code == Some(2) && agents.stderr.contains("--agent agent.toml"), "{agents:?}");
    assert_eq!(user.run("home/project", &["plugin", "verify", "--agent", "agent.toml"]).code, Some(0));
}

/// I2: without any plugins, the errors say what to do.
#[test]
fn i2_commands_without_plugins_say_what_to_do() {
    let user = User::new(&[]);
    std::fs::remove_dir_all(user.path("installed")).unwrap();
    let listed = user.run("home/project", &["plugin", "list"]);
    assert!(listed.code == Some(2) && listed.stderr.contains("agent-host setup"), "{listed:?}");
    let explained = user.run("home/project", &["plugin", "explain", "text"]);
    assert!(explained.code == Some(2) && explained.stderr.contains("agent-host setup"), "{explained:?}");
    std::fs::create_dir_all(user.path("home/.config/agent-host")).unwrap();
    user.write(&User::user_file().display().to_string(), "model = \"offline\"\n");
    let explained = user.run("home/project", &["plugin", "explain", "text"]);
    assert!(explained.code == Some(2) && explained.stderr.contains("names no `plugin_directory`"), "{explained:?}");
}

/// I2: a file that `config init` writes after `setup` keeps the user's plugins.
#[test]
fn i2_config_init_keeps_the_user_wide_plugins() {
    let user = User::new(&[text_reply("Unused.")]);
    user.set_up();
    assert_eq!(user.run("home/project", &["config", "init"]).code, Some(0));
    let written = user.read("home/project/agent.toml");
    let installed = user.path("installed").display().to_string();
    assert!(written.contains(&format!("\nplugin_directory = \"{installed}\"\n")), "{written}");
    assert!(written.lines().count() <= 40, "{written}");
    let checked = user.run("home/project", &["config", "check"]);
    assert!(checked.code == Some(0), "{checked:?}");
    assert!(checked.stdout.contains(&format!("files, text (in {installed})")), "{checked:?}");
    // The folder's own plugins take precedence.
    std::fs::create_dir_all(user.path("home/other/plugins")).unwrap();
    assert_eq!(user.run("home/other", &["config", "init"]).code, Some(0));
    assert!(user.read("home/other/agent.toml").contains("\nplugin_directory = \"plugins\"\n"));
}

/// I1: `session pick` lists only sessions that it can continue, and says how to continue the others.
#[test]
fn i1_session_pick_lists_the_sessions_of_this_agent() {
    let user = User::new(&[text_reply("Yes."), text_reply("No.")]);
    user.set_up();
    std::fs::create_dir(user.path("home/other")).unwrap();
    for (folder, prompt) in [("home/project", "Is it open?"), ("home/other", "Is it late?")] {
        let printed = user.run(folder, &[prompt]);
        assert_eq!(printed.code, Some(0), "{printed:?}");
    }
    let others = "1 session of other agents is not listed";
    let picked = user.run("home/project", &["session", "pick"]);
    assert!(picked.code == Some(0) && picked.stderr.contains(others), "{picked:?}");
    assert!(picked.stdout.contains("Is it open?") && !picked.stdout.contains("late"), "{picked:?}");
    let mut screen = user.start("home/other", &["session", "pick"]);
    screen.wait_for(others);
    screen.wait_for_end("Ctrl-D quits >");
    assert!(!screen.text().contains("open"), "{}", screen.text());
    screen.send("1\r");
    screen.wait_for("Is it late?\n");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}
