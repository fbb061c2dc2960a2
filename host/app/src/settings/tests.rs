//! agent.toml and the command line together.

use super::*;
use crate::grants::Grant;

fn none(_: &str) -> Option<String> {
    None
}

fn agent(text: &str) -> (tempfile::TempDir, AgentArguments) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir_all(folder.path().join("plugins")).expect("created");
    std::fs::write(folder.path().join("agent.toml"), text).expect("written");
    let arguments = AgentArguments { agent: Some(folder.path().join("agent.toml")), ..AgentArguments::default() };
    (folder, arguments)
}

/// I2: relative paths of the file are relative to the file.
#[test]
fn the_file_alone() {
    let text = "name = \"reader\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\
                [plugins.files.grants]\nread = [\".\"]\n";
    let (folder, arguments) = agent(text);
    let settings = Settings::read(&arguments, &none).expect("read");
    let model = settings.models.named().remove(0);
    let place = folder.path().join("agent.toml").display().to_string();
    assert_eq!((settings.name.as_str(), model.name.as_str()), ("reader", "scripted:replies.json"));
    assert_eq!((model.base.as_path(), model.place), (folder.path(), format!("{place}:2: model")));
    assert_eq!(settings.plugins, Some(folder.path().join("plugins")));
    assert_eq!(settings.grants.plugins["files"].trees[0].host, folder.path().join("."));
    let expected = format!("{place}:4: plugins.files: there is no plugin `files`");
    assert_eq!(settings.unknown_plugins(&|_| false), [expected]);
    let shown = settings.problem("plugin_directory", "`plugin_directory`: no").message;
    assert_eq!(shown, format!("{place}:3: `plugin_directory`: no"));
    assert!(settings.unknown_plugins(&|name| name == "files").is_empty());
}

#[test]
fn the_command_line_wins_and_its_grants_add() {
    let text = "name = \"reader\"\nmodel = \"scripted:replies.json\"\n[plugins.files.grants]\nread = [\".\"]\n";
    let (folder, mut arguments) = agent(text);
    arguments.model = Some("offline".into());
    arguments.plugins = Some(folder.path().join("plugins"));
    arguments.grant = vec![Grant::parse("files:write=/").expect("a grant")];
    let settings = Settings::read(&arguments, &none).expect("read");
    assert_eq!((settings.name.as_str(), settings.models.named()[0].name.as_str()), ("reader", "offline"));
    assert_eq!(settings.plugins, arguments.plugins);
    assert_eq!(settings.grants.plugins["files"].trees.len(), 2);
}

#[test]
fn without_plugins_and_file_it_says_what_to_do() {
    let failure = Settings::read(&AgentArguments::default(), &none).expect_err("nothing given");
    assert!(failure.message.contains("--plugins DIR") && failure.message.contains("--agent FILE"));
    let absent = AgentArguments { plugins: Some("absent".into()), ..AgentArguments::default() };
    let failure = Settings::read(&absent, &none).expect_err("no folder");
    assert_eq!(failure.message, "--plugins: `absent` is no folder; name the folder with the plugins");
    let (folder, arguments) = agent("name = \"reader\"\nplugin_directory = \"nope\"\n");
    let failure = Settings::read(&arguments, &none).expect_err("no folder");
    let shown = failure.message.replace(&folder.path().display().to_string(), "/base");
    let expected =
        "/base/agent.toml:2: `plugin_directory`: `/base/nope` is no folder; name the folder with the plugins";
    assert_eq!(shown, expected);
}

/// A file that lies around is not taken for what the user wants; it is named.
#[test]
fn an_agent_toml_that_is_here_is_named_and_not_taken() {
    let (folder, _) = agent("");
    let message = nothing_named(folder.path()).message;
    assert!(message.contains("`agent-host --agent agent.toml`") && message.contains("not taken unasked"), "{message}");
    let other = tempfile::tempdir().expect("a temporary folder");
    assert!(!nothing_named(other.path()).message.contains("unasked"));
}

/// I2, L17: without `name`, an agent is called as its file or folder, and is another one in each folder, since agents of
/// one name share approvals, sessions and memory.
#[test]
fn names_of_agents() {
    let base = tempfile::tempdir().expect("a temporary folder");
    let (here, there) = (base.path().join("my harbour"), base.path().join("there"));
    for folder in [&here, &there] {
        std::fs::create_dir(folder).expect("created");
    }
    let unnamed = AgentFile::default();
    let named = AgentFile { name: Some("reader".into()), ..AgentFile::default() };
    let name = |folder: &Path, file: &str, read: &AgentFile| name(Some(&folder.join(file)), read).expect("a name");
    let split =
        |name: String| name.rsplit_once('-').map(|(name, place)| (name.to_owned(), place.to_owned())).expect("a place");
    let (spoken, place) = split(name(&here, "agent.toml", &unnamed));
    assert_eq!((spoken.as_str(), place.len()), ("my-harbour", PLACE_DIGITS));
    assert_eq!(split(name(&here, "writer.toml", &unnamed)), ("writer".to_owned(), place.clone()));
    assert_eq!(split(name(&here, "my agent.toml", &unnamed)), ("my-agent".to_owned(), place.clone()));
    assert_eq!(
        name(&there, "../my harbour/agent.toml", &unnamed),
        format!("my-harbour-{place}"),
        "however it is written"
    );
    assert_eq!(split(name(&here, ".hidden.toml", &unnamed)).0, "hidden");
    let (spoken, elsewhere) = split(name(&there, "writer.toml", &unnamed));
    assert!(spoken == "writer" && elsewhere != place, "{elsewhere}");
    assert_eq!(name(&here, "writer.toml", &named), "reader");
    let long = name(&here, &format!("{}.toml", "x".repeat(200)), &unnamed);
    assert!(is_name(&long), "{long}");
    let of_nothing = super::name(None, &unnamed).expect("a name");
    assert!(is_name(&of_nothing) && of_nothing.starts_with("app-"), "of the folder it runs in: {of_nothing}");
}

/// M2, M3: everything that is wrong with the models is said at once, each with its key and line.
#[test]
fn what_is_wrong_with_models_is_said_at_once() {
    let text = "model = \"openai/a\"\nfallback_models = [\"groq/b\", \"opnai/c\", \"ollama/d\"]\n";
    let (folder, arguments) = agent(text);
    let settings = Settings::read(&arguments, &none).expect("read");
    let message = settings.models(&none).expect_err("three problems").message;
    insta::assert_snapshot!(message.replace(&folder.path().display().to_string(), "/base"), @r"
    /base/agent.toml:1: model: `openai/a` needs a key, and the environment variable `OPENAI_API_KEY` is not set (where `openai` has its key unless `key_env` in [providers.openai] names another one). Set it, such as with `export OPENAI_API_KEY=YOUR_KEY`
    /base/agent.toml:2: fallback_models[0]: `groq/b` needs a key, and the environment variable `GROQ_API_KEY` is not set (where `groq` has its key unless `key_env` in [providers.groq] names another one). Set it, such as with `export GROQ_API_KEY=YOUR_KEY`
    /base/agent.toml:2: fallback_models[1]: `opnai` in `opnai/c` is no known provider. Did you mean `openai/c`? A model is `PROVIDER/MODEL`, `offline` or `scripted:FILE`. Known providers: openai, groq, deepseek, mistral, openrouter, ollama, lmstudio, llama-cpp, vllm. Another one needs its address: --base-url URL, or `base_url` in a table [providers.NAME]
    ");
    let (chain, providers) = settings_with("model = \"ollama/d\"\n").models(&none).expect("no key is needed");
    assert_eq!(chain[0].name, "ollama/d");
    assert!(providers.iter().any(|provider| provider.name == "ollama" && provider.key.is_none()));
}

/// L24, L25: the models for a part of the work are found, and what is wrong with them is said with all else.
#[test]
fn models_for_a_part_of_the_work() {
    let text = "planner = \"groq/large\"\nexecutor = \"opnai/small\"\nembedding_model = \"offline\"\n";
    let (folder, arguments) = agent(text);
    let settings = Settings::read(&arguments, &none).expect("read");
    let message = settings.models(&none).expect_err("three problems").message;
    let message = message.replace(&folder.path().display().to_string(), "/base");
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].starts_with("/base/agent.toml:1: planner: `groq/large` needs a key"), "{message}");
    assert!(lines[1].starts_with("/base/agent.toml:2: executor: `opnai` in `opnai/small` is no known"), "{message}");
    assert!(lines[2].starts_with("/base/agent.toml:3: embedding_model: `offline` makes no embeddings"), "{message}");
    let settings = settings_with("planner = \"ollama/large\"\nembedding_model = \"ollama/nomic\"\n");
    let (chain, _) = settings.models(&none).expect("no key is needed");
    assert_eq!(chain.iter().map(|model| model.name.as_str()).collect::<Vec<_>>(), ["offline"]);
    assert_eq!(settings.models.helpers.planner.map(|model| model.name).as_deref(), Some("ollama/large"));
    assert_eq!(settings.models.helpers.executor, None);
}

fn settings_with(text: &str) -> Settings {
    let (_folder, arguments) = agent(text);
    Settings::read(&arguments, &none).expect("read")
}
