//! Scenarios are isolated from events, folders, variables, programs and addresses outside of the scenario (S4).

use super::{ScenarioFolder, plugins_line};
use crate::support::components;
use serde_json::Value;

/// Creates a scenario whose agent delegates once to a second agent, the helper. `helper` is the content of the helper's
/// agent file.
fn with_helper(helper: &str) -> ScenarioFolder {
    let scenario = plugins_line("text")
        + "[agent.agents.helper]\nagent = \"helper.toml\"\ndescription = \"Helps.\"\n[[turns]]\nsay = \"Ask.\"\n\
           replies = [{ calls = [{ name = \"helper\", arguments = { task = \"go\" } }] }, { text = \"done\" }]\n";
    let folder = ScenarioFolder::with(&[("delegated", &scenario)]);
    folder.write("helper.toml", helper);
    folder
}

/// S4, I6: A child agent does not change anything outside of the scenario: it does not write events to its outbox
/// folder, or files to the folders that its agent file grants.
#[test]
fn s4_child_agents_have_no_effects_outside_the_scenario() {
    let tide = "[services.tide]\ntype = \"com.example.tide\"\n[outbox]\ndirectory = \"out\"\ncompletions = true\n";
    let folder = with_helper(&format!(
        "model = \"scripted:helper.json\"\nplugin_directory = {:?}\n{tide}\n[host.grants]\nread = [\"data\"]\n\
         [plugins.files.grants]\nwrite = [\"notes\"]\n",
        components().display().to_string()
    ));
    folder.write("helper.json", "[{\"text\": \"here\"}]");
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(0), "{printed}");
    let written: Vec<_> = std::fs::read_dir(folder.path().join("out")).unwrap().collect();
    assert!(written.is_empty(), "{written:?}");
    assert!(!folder.path().join("notes").exists(), "the granted folder is inside the scenario's own folder");
    let outside = with_helper("model = \"offline\"\n[host.grants]\nread = [\"/tmp\"]\n");
    let (code, printed) = outside.code_and_output(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(
        printed.contains("helper.toml:3: host.grants.read[0]: a scenario can read and write only in its own folder")
    );
}

/// S4: The secrets and grants of child agents can refer only to the variables in the scenario's `env` table, not to the
/// environment variables of the process.
#[test]
fn s4_child_agents_see_only_the_variables_of_the_scenario() {
    let helper = format!(
        "model = \"offline\"\nplugin_directory = {:?}\n[plugins.web.secrets.key]\nenv = \"PATH\"\nheader = \"x-key\"\nhosts = [\"a.example.com\"]\n",
        components().display().to_string()
    );
    let (code, printed) = with_helper(&helper).code_and_output(&[]);
    assert_eq!(code, Some(2), "{printed}");
    let expected = "helper.toml:3: plugins.web.secrets.key: the environment variable `PATH` is not set";
    assert!(printed.contains(expected), "{printed}");
}

/// S4: A scenario starts no MCP server, and the report states that. A scenario can expect that a call to an MCP
/// tool fails.
#[test]
fn s4_starts_no_mcp_server() {
    let scenario = |turn: &str| {
        plugins_line("text")
            + "[agent.mcp.tide]\ncommand = \"sh\"\nargs = [\"-c\", \"touch ran\"]\ndirectory = \".\"\n\
               [agent.mcp.far]\nurl = \"http://127.0.0.1:9/mcp\"\n[agent.approval.tools]\n\"tide.high\" = \"ask\"\n"
            + turn
    };
    let calls = "[[turns]]\nsay = \"When?\"\nreplies = [{ calls = [{ name = \"tide.high\" }] }, { text = \"a\" }]\n";
    let folder = ScenarioFolder::with(&[
        ("plain", &scenario("[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"a\" }]\n")),
        ("called", &scenario(calls)),
        ("expected", &scenario(&format!("{calls}calls = [{{ name = \"tide.high\", fails = \"no_such_tool\" }}]\n"))),
    ]);
    let (code, printed) = folder.code_and_output(&[".", "plain"]);
    assert_eq!(code, Some(0), "{printed}");
    let note = "! scenarios do not start MCP servers, so the tools of far, tide are missing";
    assert_eq!(printed.matches(note).count(), 1, "{printed}");
    let (code, printed) = folder.code_and_output(&[".", "called"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("`tide` is an MCP server, and scenarios do not start MCP servers"), "{printed}");
    assert_eq!(folder.code_and_output(&[".", "expected"]).0, Some(0));
    let document: Value = serde_json::from_slice(&folder.test(&[".", "plain", "--json"]).stdout).unwrap();
    assert!(document["scenarios"][0]["notes"][0].as_str().unwrap().contains("do not start MCP servers"), "{document}");
    let helper_scenario = with_helper(
        "model = \"offline\"\nname = \"aide\"\n[mcp.z]\ncommand = \"sh\"\nargs = [\"-c\", \"touch ran\"]\n",
    );
    let (code, printed) = helper_scenario.code_and_output(&[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the tools of z of aide are missing"), "{printed}");
    assert!(!folder.path().join("ran").exists() && !helper_scenario.path().join("ran").exists());
}

/// S4: A provider whose name merely begins with the name of a built-in model is a network provider. Scenarios refuse
/// network providers for parent and child agents.
#[test]
fn s4_distinguishes_providers_by_their_full_names() {
    let model = "model = \"offliner/gpt\"\n";
    let provider = "base_url = \"http://127.0.0.1:9/v1\"\n";
    let scenario = format!(
        "{}[agent]\n{model}[agent.providers.offliner]\n{provider}[[turns]]\nsay = \"hi\"\n",
        plugins_line("text")
    );
    let (code, printed) = ScenarioFolder::with(&[("far", &scenario)]).code_and_output(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("`offliner/gpt` would be called over the network"), "{printed}");
    let (code, printed) = with_helper(&format!("{model}[providers.offliner]\n{provider}")).code_and_output(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("helper.toml:1: model: `offliner/gpt` would be called over the network"), "{printed}");
}
