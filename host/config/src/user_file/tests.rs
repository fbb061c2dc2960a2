//! Tests of the user-wide file: its grants for the current folder, and the changes of `agent-host setup`.

use super::*;
use crate::HostEnvironment;
use crate::settings::{AgentOptions, Chain, Settings};
use std::collections::BTreeMap;

const FILE: &str = "model = \"offline/router\"\n[plugins.text.grants]\nread = [\".\", \"docs-of-project\", \"/tmp\"]\nenv = [\"HOME\"]\n";

fn file(text: &str) -> AgentFile {
    AgentFile::parse(text, Path::new("/config/agent.toml")).expect("a valid file")
}

/// P6: relative grants refer to the current folder, and never cover the home folder, a folder above it, or the root.
#[test]
fn p6_relative_grants_never_cover_the_home_folder_or_the_root() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let project = home.path().join("project");
    std::fs::create_dir_all(project.join("docs-of-project")).expect("created");
    let values = |current: &Path| {
        let mut file = file(FILE);
        let notes = apply_grants(&mut file, current, Some(home.path()));
        let values: Vec<String> = file.grants.iter().map(|grant| grant.value.clone()).collect();
        assert!(file.grants.iter().all(|grant| grant.base == current));
        (values, notes)
    };
    assert_eq!(values(&project), ([".", "docs-of-project", "/tmp", "HOME"].map(str::to_owned).into(), Vec::new()));
    for (folder, expected) in [
        (home.path(), "it would be your home folder"),
        (home.path().parent().expect("a parent"), "it would be a folder that contains your home folder"),
        (Path::new("/"), "it would be the whole file system"),
    ] {
        let (granted, notes) = values(folder);
        assert_eq!(granted, ["/tmp", "HOME"], "{}", folder.display());
        assert!(notes[0].contains(expected) && notes[0].contains("agent.toml:3"), "{notes:?}");
        assert!(notes[1].contains("`docs-of-project`") && notes[1].contains("does not exist"), "{notes:?}");
    }
}

/// The user-wide file is the file of an agent that belongs to the current folder, so sessions and approvals of different
/// folders are separate.
#[test]
fn user_wide_agents_are_named_after_the_current_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agent.toml");
    let choices = UserChoices { model: Some("offline".into()), ..UserChoices::default() };
    choices.write(&path).expect("written");
    let options = AgentOptions { user_file: Some(UserFile::Agent(path.clone())), ..AgentOptions::default() };
    let settings = Settings::read(&options, &HostEnvironment::default()).expect("read");
    let without_file = AgentOptions { plugins: Some(".".into()), ..AgentOptions::default() };
    let unnamed = Settings::read(&without_file, &HostEnvironment::default()).expect("read");
    assert_eq!(settings.name, unnamed.name);
    assert!(settings.is_user_wide() && !unnamed.is_user_wide());
    assert_eq!(settings.path, Some(path));
}

/// M2: the models of the user-wide file are used if neither the options nor the agent's file name a model. Its plugins and
/// grants do not apply to other agents.
#[test]
fn m2_the_default_model_applies_to_agents_without_a_model() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let user_file = folder.path().join("user.toml");
    let text = "model = \"office/large\"\nfallback_models = [\"offline\"]\n[providers.office]\n\
                base_url = \"http://127.0.0.1:9/v1\"\n[plugins.text.grants]\nread = [\".\"]\n";
    UserChoices::default().write(&user_file).expect("a private file");
    std::fs::write(&user_file, text).expect("written");
    let agent = folder.path().join("agent.toml");
    let read = |text: &str, model: Option<&str>| {
        std::fs::write(&agent, text).expect("written");
        let options = AgentOptions {
            agent: Some(agent.clone()),
            model: model.map(str::to_owned),
            user_file: Some(UserFile::DefaultModel(user_file.clone())),
            ..AgentOptions::default()
        };
        Settings::read(&options, &HostEnvironment::default()).unwrap_or_else(|error| panic!("{error}"))
    };
    let names = |settings: &Settings| {
        settings.models().expect("known").0.into_iter().map(|model| model.name).collect::<Vec<_>>()
    };
    let settings = read("instructions = \"Be brief.\"\n", None);
    assert_eq!(names(&settings), ["office/large", "offline"]);
    assert!(settings.models.named()[0].place.contains("user.toml:1"), "{:?}", settings.models.named());
    assert!(settings.grants.plugins.is_empty() && settings.plugins.is_none());
    assert_eq!(names(&read("model = \"offline/router\"\n", None)), ["offline/router"]);
    assert_eq!(names(&read("", Some("offline"))), ["offline"]);
    let settings = read("[providers.office]\nbase_url = \"http://127.0.0.1:7/v1\"\n", None);
    assert_eq!(settings.file.providers["office"].base_url.as_deref(), Some("http://127.0.0.1:7/v1"));
    assert!(matches!(settings.models.chain, Chain::Named(_)));
}

/// Class 14: a file that other users can change is refused.
#[cfg(unix)]
#[test]
fn refuses_a_file_that_other_users_can_change() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config/agent.toml");
    UserChoices { model: Some("offline".into()), ..UserChoices::default() }.write(&path).expect("written");
    let mode = |path: &Path| std::fs::metadata(path).expect("exists").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    read(&path).expect("private");
    for open_to_others in [0o620, 0o602] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(open_to_others)).expect("set");
        let message = read(&path).expect_err("open to others").to_string();
        assert!(message.contains("chmod 600") && message.contains("agent.toml"), "{message}");
    }
}

/// A new file contains the choices and no key. A second run keeps comments and all other keys.
#[test]
fn setup_keeps_comments_and_other_keys() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agent.toml");
    let mut choices = UserChoices {
        model: Some("openai/gpt-4.1-mini".into()),
        key_variable: Some("WORK_KEY".into()),
        plugins: Some("/usr/lib/agent-host/plugins".into()),
        reads: BTreeMap::from([("files".into(), true), ("text".into(), true)]),
    };
    let written = choices.write(&path).expect("written");
    assert!(written.starts_with("# The user-wide configuration"), "{written}");
    let settings = &written[written.find("model =").expect("a model")..];
    let expected = "model = \"openai/gpt-4.1-mini\"\nplugin_directory = \"/usr/lib/agent-host/plugins\"\n\n\
                    [providers.openai]\nkey_env = \"WORK_KEY\"\n\n[plugins.files.grants]\nread = [\".\"]\n\n\
                    [plugins.text.grants]\nread = [\".\"]\n";
    assert_eq!(settings, expected);
    assert_eq!(UserChoices::of(&AgentFile::parse(&written, &path).expect("valid")), choices);
    assert_eq!(choices.write(&path).expect("written"), written, "the same choices change nothing");
    let edited = written.replace(
        "model = \"openai/gpt-4.1-mini\"",
        "# Mine.\nmodel = \"openai/gpt-4.1-mini\" # cheap\nmemory = \"off\"",
    );
    std::fs::write(&path, edited.replace("read = [\".\"]\n\n", "read = [\".\", \"/srv\"] # both\n\n"))
        .expect("written");
    choices.model = Some("ollama/qwen3:8b".into());
    choices.key_variable = None;
    choices.reads = BTreeMap::from([("files".into(), false), ("text".into(), true), ("web".into(), false)]);
    let text = choices.write(&path).expect("written");
    for kept in
        ["# Mine.\nmodel = \"ollama/qwen3:8b\" # cheap\nmemory = \"off\"", "key_env = \"WORK_KEY\"", "\"/srv\"] # both"]
    {
        assert!(text.contains(kept), "{kept} is missing in:\n{text}");
    }
    assert!(!text.contains("web") && !text.contains("[\".\", \"/srv\"]"), "{text}");
}

/// An invalid file is not changed, and its error names the line.
#[test]
fn setup_does_not_change_an_invalid_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("agent.toml");
    for text in ["modle = 1\n", "model = \n"] {
        std::fs::write(&path, text).expect("written");
        let message = UserChoices::default().write(&path).expect_err("invalid").to_string();
        assert!(message.contains("agent.toml:1"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text);
    }
}

#[test]
fn keys_are_not_accepted_as_names_of_variables() {
    for name in ["OPENAI_API_KEY", "_X", "A1"] {
        assert!(is_variable_name(name, false), "{name}");
    }
    assert!(is_variable_name("openai_key", true));
    for text in ["", "sk-proj-abc", "gsk_abcDEF123", "AIzaSyAbc", "1A", "A B", "openai_key"] {
        assert!(!is_variable_name(text, false), "{text}");
    }
}
