//! Tests that settings are combined from `agent.toml` and options, and that problems are reported.

use super::*;
use crate::grants::Grant;

fn no_environment() -> HostEnvironment {
    HostEnvironment::default()
}

fn agent(text: &str) -> (tempfile::TempDir, AgentOptions) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("plugins")).expect("created");
    std::fs::write(folder.path().join("agent.toml"), text).expect("written");
    let options = AgentOptions { agent: Some(folder.path().join("agent.toml")), ..AgentOptions::default() };
    (folder, options)
}

/// I2: relative paths in the file are relative to the folder of the file.
#[test]
fn reads_settings_from_the_file_alone() {
    let text = "name = \"reader\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\
                [plugins.files.grants]\nread = [\".\"]\n";
    let (folder, options) = agent(text);
    let settings = Settings::read(&options, &no_environment()).expect("read");
    let model = settings.models.named().remove(0);
    let location = folder.path().join("agent.toml").display().to_string();
    assert_eq!((settings.name.as_str(), model.name.as_str()), ("reader", "scripted:replies.json"));
    assert_eq!((model.base.as_path(), model.place), (folder.path(), format!("{location}:2: model")));
    assert_eq!(settings.plugins, Some(folder.path().join("plugins")));
    assert_eq!(settings.grants.plugins["files"].trees[0].host, folder.path().join("."));
    let expected = format!("{location}:4: plugins.files: there is no plugin `files`");
    assert_eq!(settings.unknown_plugins(&|_| false), [expected]);
    let shown = settings.problem("plugin_directory", "`plugin_directory`: no").to_string();
    assert_eq!(shown, format!("{location}:3: `plugin_directory`: no"));
    assert!(settings.unknown_plugins(&|name| name == "files").is_empty());
}

#[test]
fn options_override_the_file_and_add_grants() {
    let text = "name = \"reader\"\nmodel = \"scripted:replies.json\"\n[plugins.files.grants]\nread = [\".\"]\n";
    let (folder, mut options) = agent(text);
    options.model = Some("offline".into());
    options.plugins = Some(folder.path().join("plugins"));
    options.grants = vec![Grant::parse("files:write=/").expect("a grant")];
    let settings = Settings::read(&options, &no_environment()).expect("read");
    assert_eq!((settings.name.as_str(), settings.models.named()[0].name.as_str()), ("reader", "offline"));
    assert_eq!(settings.plugins, options.plugins);
    assert_eq!(settings.grants.plugins["files"].trees.len(), 2);
}

#[test]
fn missing_plugins_and_folders_are_explained() {
    let message = Settings::read(&AgentOptions::default(), &no_environment()).expect_err("nothing given").to_string();
    assert!(message.contains("--plugins DIR") && message.contains("--agent FILE"));
    let absent = AgentOptions { plugins: Some("absent".into()), ..AgentOptions::default() };
    let message = Settings::read(&absent, &no_environment()).expect_err("not a folder").to_string();
    assert_eq!(message, "--plugins: `absent` is not a folder; name the folder with the plugins");
    let (folder, options) = agent("name = \"reader\"\nplugin_directory = \"nope\"\n");
    let message = Settings::read(&options, &no_environment()).expect_err("not a folder").to_string();
    let shown = message.replace(&folder.path().display().to_string(), "/base");
    let expected =
        "/base/agent.toml:2: `plugin_directory`: `/base/nope` is not a folder; name the folder with the plugins";
    assert_eq!(shown, expected);
}

/// The options alone never select the `agent.toml` in the current folder. The error message explains how to name it.
#[test]
fn agent_toml_in_the_current_folder_is_mentioned_but_not_used() {
    let (folder, _) = agent("");
    let message = no_agent_error(folder.path()).to_string();
    assert!(
        message.contains("--agent agent.toml uses it") && message.contains("does not use the agent.toml"),
        "{message}"
    );
    let other = tempfile::tempdir().expect("a temporary folder");
    assert!(!no_agent_error(other.path()).to_string().contains("this folder by itself"));
}

/// I2, L17: without `name`, an agent is named after its file or folder. Agents in different folders have different
/// default names, because agents with the same name share approvals, sessions and memory.
#[test]
fn default_names_are_readable_and_unique_to_the_folder() {
    let base = tempfile::tempdir().expect("a temporary folder");
    let (first, other) = (base.path().join("my harbour"), base.path().join("there"));
    for folder in [&first, &other] {
        std::fs::create_dir(folder).expect("created");
    }
    let unnamed = AgentFile::default();
    let named = AgentFile { name: Some("reader".into()), ..AgentFile::default() };
    let name =
        |folder: &Path, file: &str, read: &AgentFile| agent_name(Some(&folder.join(file)), read).expect("a name");
    let split = |name: String| {
        name.rsplit_once('-').map(|(name, digits)| (name.to_owned(), digits.to_owned())).expect("digits")
    };
    let (readable, digits) = split(name(&first, "agent.toml", &unnamed));
    assert_eq!((readable.as_str(), digits.len()), ("my-harbour", FOLDER_DIGITS));
    assert_eq!(split(name(&first, "writer.toml", &unnamed)), ("writer".to_owned(), digits.clone()));
    assert_eq!(split(name(&first, "my agent.toml", &unnamed)), ("my-agent".to_owned(), digits.clone()));
    assert_eq!(
        name(&other, "../my harbour/agent.toml", &unnamed),
        format!("my-harbour-{digits}"),
        "the spelling of the path does not matter"
    );
    assert_eq!(split(name(&first, ".hidden.toml", &unnamed)).0, "hidden");
    let (readable, other_digits) = split(name(&other, "writer.toml", &unnamed));
    assert!(readable == "writer" && other_digits != digits, "{other_digits}");
    assert_eq!(name(&first, "writer.toml", &named), "reader");
    let long = name(&first, &format!("{}.toml", "x".repeat(200)), &unnamed);
    assert!(is_name(&long), "{long}");
    let without_file = agent_name(None, &unnamed).expect("a name");
    assert!(
        is_name(&without_file) && without_file.starts_with("config-"),
        "named after the current folder: {without_file}"
    );
}

/// M2, M3: one error reports all problems with the models, each with its key and line.
#[test]
fn reports_all_problems_with_models_at_once() {
    let text = "model = \"openai/a\"\nfallback_models = [\"groq/b\", \"opnai/c\", \"ollama/d\"]\n";
    let (folder, options) = agent(text);
    let settings = Settings::read(&options, &no_environment()).expect("read");
    let message = settings.models().expect_err("three problems").to_string();
    insta::assert_snapshot!(message.replace(&folder.path().display().to_string(), "/base"), @r"
    /base/agent.toml:1: model: `openai/a` needs a key, and the environment variable `OPENAI_API_KEY` is not set (the default for `openai`; `key_env` in [providers.openai] names another variable). Set it, for example with `export OPENAI_API_KEY=YOUR_KEY`
    /base/agent.toml:2: fallback_models[0]: `groq/b` needs a key, and the environment variable `GROQ_API_KEY` is not set (the default for `groq`; `key_env` in [providers.groq] names another variable). Set it, for example with `export GROQ_API_KEY=YOUR_KEY`
    /base/agent.toml:2: fallback_models[1]: `opnai` in `opnai/c` is not a known provider. Did you mean `openai/c`? A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, anthropic, gemini, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm. Other providers need an address: set --base-url URL, or `base_url` in a table [providers.NAME]
    ");
    let (chain, providers) = settings_with("model = \"ollama/d\"\n").models().expect("no key is needed");
    assert_eq!(chain[0].name, "ollama/d");
    assert!(providers.iter().any(|provider| provider.name == "ollama" && provider.key.is_none()));
}

/// L24, L25: planner, executor and embedding model are read, and problems with them are reported together with all
/// other problems.
#[test]
fn reads_planner_executor_and_embedding_model() {
    let text = "planner = \"groq/large\"\nexecutor = \"opnai/small\"\nembedding_model = \"offline\"\n";
    let (folder, options) = agent(text);
    let settings = Settings::read(&options, &no_environment()).expect("read");
    let message = settings.models().expect_err("three problems").to_string();
    let message = message.replace(&folder.path().display().to_string(), "/base");
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].starts_with("/base/agent.toml:1: planner: `groq/large` needs a key"), "{message}");
    assert!(lines[1].starts_with("/base/agent.toml:2: executor: `opnai` in `opnai/small` is not a known"), "{message}");
    assert!(
        lines[2].starts_with("/base/agent.toml:3: embedding_model: `offline` cannot compute embeddings"),
        "{message}"
    );
    let settings = settings_with("planner = \"ollama/large\"\nembedding_model = \"ollama/nomic\"\n");
    let (chain, _) = settings.models().expect("no key is needed");
    assert_eq!(chain.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["offline"]);
    assert_eq!(settings.models.helpers.planner.map(|model| model.name).as_deref(), Some("ollama/large"));
    assert_eq!(settings.models.helpers.executor, None);
}

fn settings_with(text: &str) -> Settings {
    let (_folder, options) = agent(text);
    Settings::read(&options, &no_environment()).expect("read")
}

/// I9, row 16: keys of event tables come from the environment. Problems name the variable, and never contain its value.
#[test]
fn i9_row_16_keys_of_event_tables_come_from_the_environment() {
    let text = "[outbox.server]\nurl = \"https://a.example\"\nsigning_key_env = \"KEY\"\nheader_env = { X-Key = \"HEADER\" }\n\
                [webhooks.tickets]\nkey_env = \"KEY\"\n[schedules.a]\ntimes = \"every 1 day\"\nprompt = \"Go.\"\n";
    let read = |key: &'static str| {
        let file = AgentFile::parse(text, Path::new("/base/agent.toml")).expect("the file is valid");
        let environment = HostEnvironment::new(move |name| match name {
            "KEY" => Some(key.to_owned()),
            "HEADER" => Some("header-value-4711".to_owned()),
            _ => None,
        });
        let options = AgentOptions { plugins: Some(std::env::temp_dir()), ..AgentOptions::default() };
        Settings::of_file((None, file), &options, &environment).expect("the settings are read")
    };
    let (settings, problems) = read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    assert!(problems.is_empty(), "{problems:?}");
    let events = settings.events;
    assert!(events.server.is_some() && events.webhooks.contains_key("tickets") && events.schedules.contains_key("a"));
    let shown = format!("{events:?}");
    assert!(!shown.contains("header-value-4711") && !shown.contains("MfKQ9"), "{shown}");
    for (key, problem) in [("", "is not set"), ("too-short-key", "is no key")] {
        let (settings, problems) = read(key);
        assert!(settings.events.server.is_none() && settings.events.webhooks.is_empty());
        let problems = format!("{problems:?}");
        assert!(problems.contains("`KEY`") && problems.contains(problem), "{problems}");
        assert!(key.is_empty() || !problems.contains(key), "{problems}");
    }
    let delegate = read("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").0.of_delegate().events;
    assert!(delegate.webhooks.is_empty() && delegate.schedules.is_empty() && delegate.server.is_some());
}

/// O1, row 16: the key of a collector comes from the environment and is never shown. Problems name the file, the line and
/// the key, and what has problems is left out.
#[test]
fn o1_row_16_telemetry_is_read_without_showing_keys() {
    let read = |redact: &str, key: Option<&'static str>| {
        let text = format!(
            "[telemetry]\nendpoint = \"http://localhost:4318\"\nredact = [{redact}]\nheader_env = {{ Authorization = \"KEY\" }}\n"
        );
        let file = AgentFile::parse(&text, Path::new("/base/agent.toml")).expect("the file is valid");
        let environment = HostEnvironment::new(move |_| key.map(str::to_owned));
        let options = AgentOptions { plugins: Some(std::env::temp_dir()), ..AgentOptions::default() };
        Settings::of_file((None, file), &options, &environment).expect("the settings are read")
    };
    let (settings, problems) = read("'\\d+'", Some("Bearer collector-4711"));
    assert!(problems.is_empty(), "{problems:?}");
    let url = settings.telemetry.collector().map(|collector| collector.url().to_string());
    assert_eq!(url.as_deref(), Some("http://localhost:4318/v1/traces"));
    assert!(!format!("{:?}", settings.telemetry).contains("4711"));
    let none = agent_core::redaction::Redaction::default();
    assert!(settings.telemetry.group("a".to_owned(), &[], &none).is_some());
    let (settings, problems) = read("'\\d+', '('", None);
    let problems = format!("{problems:?}");
    assert!(settings.telemetry.collector().is_none(), "a collector without its key is not used");
    assert!(problems.contains("agent.toml:4") && problems.contains("`KEY` is not set"), "{problems}");
    assert!(problems.contains("agent.toml:3") && problems.contains("`(` is not a usable regular"), "{problems}");
    assert!(
        settings_with("name = \"a\"\nplugin_directory = \"plugins\"\n")
            .telemetry
            .group(String::new(), &[], &none)
            .is_none()
    );
}
