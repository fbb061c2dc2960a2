//! The isolation of scenarios from the outside (S4): events, folders, variables, programs, addresses.

use super::{ScenarioFolder, plugins_line};
use crate::support::components;
use serde_json::Value;

/// A scenario whose agent delegates once to a helper, which has this file.
fn with_helper(helper: &str) -> ScenarioFolder {
    let scenario = plugins_line("text")
        + "[agent.agents.helper]\nagent = \"helper.toml\"\ndescription = \"Helps.\"\n[[turns]]\nsay = \"Ask.\"\n\
           replies = [{ calls = [{ name = \"helper\", arguments = { task = \"go\" } }] }, { text = \"done\" }]\n";
    let folder = ScenarioFolder::with(&[("delegated", &scenario)]);
    folder.write("helper.toml", helper);
    folder
}

/// S4, I6: A scenario has no effects outside: no events of a child agent, and no files in the folders that it is
/// granted.
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
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(0), "{printed}");
    let written: Vec<_> = std::fs::read_dir(folder.path().join("out")).unwrap().collect();
    assert!(written.is_empty(), "{written:?}");
    assert!(!folder.path().join("notes").exists(), "its folders are the scenario's");
    let outside = with_helper("model = \"offline\"\n[host.grants]\nread = [\"/tmp\"]\n");
    let (code, printed) = outside.shown(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(
        printed.contains("helper.toml:3: host.grants.read[0]: a scenario can read and write only in its own folder")
    );
}

/// S4: The secrets and grants of child agents see only the `env` of the scenario.
#[test]
fn s4_child_agents_see_only_the_variables_of_the_scenario() {
    let helper = format!(
        "model = \"offline\"\nplugin_directory = {:?}\n[plugins.web.secrets.key]\nenv = \"PATH\"\nheader = \"x-key\"\nhosts = [\"a.example.com\"]\n",
        components().display().to_string()
    );
    let (code, printed) = with_helper(&helper).shown(&[]);
    assert_eq!(code, Some(2), "{printed}");
    let expected = "helper.toml:3: plugins.web.secrets.key: the environment variable `PATH` is not set";
    assert!(printed.contains(expected), "{printed}");
}

/// S4: An MCP server is a program or an address, so a scenario starts none and says so; calls of its tools are still
/// known.
#[test]
fn s4_starts_no_mcp_server() {
    let own = |turn: &str| {
        plugins_line("text")
            + "[agent.mcp.tide]\ncommand = \"sh\"\nargs = [\"-c\", \"touch ran\"]\ndirectory = \".\"\n\
               [agent.mcp.far]\nurl = \"http://127.0.0.1:9/mcp\"\n[agent.approval.tools]\n\"tide.high\" = \"ask\"\n"
            + turn
    };
    let calls = "[[turns]]\nsay = \"When?\"\nreplies = [{ calls = [{ name = \"tide.high\" }] }, { text = \"a\" }]\n";
    let folder = ScenarioFolder::with(&[
        ("plain", &own("[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"a\" }]\n")),
        ("called", &own(calls)),
        ("expected", &own(&format!("{calls}calls = [{{ name = \"tide.high\", fails = \"no_such_tool\" }}]\n"))),
    ]);
    let (code, printed) = folder.shown(&[".", "plain"]);
    assert_eq!(code, Some(0), "{printed}");
    let note = "! scenarios do not start MCP servers, so the tools of far, tide are missing";
    assert_eq!(printed.matches(note).count(), 1, "{printed}");
    let (code, printed) = folder.shown(&[".", "called"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("`tide` is an MCP server, and scenarios do not start MCP servers"), "{printed}");
    assert_eq!(folder.shown(&[".", "expected"]).0, Some(0));
    let document: Value = serde_json::from_slice(&folder.test(&[".", "plain", "--json"]).stdout).unwrap();
    assert!(document["scenarios"][0]["notes"][0].as_str().unwrap().contains("do not start MCP servers"), "{document}");
    let below = with_helper(
        "model = \"offline\"\nname = \"aide\"\n[mcp.z]\ncommand = \"sh\"\nargs = [\"-c\", \"touch ran\"]\n",
    );
    let (code, printed) = below.shown(&[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("the tools of z of aide are missing"), "{printed}");
    assert!(!folder.path().join("ran").exists() && !below.path().join("ran").exists());
}

/// S4: A provider whose name only begins like that of a built-in model is contacted over the network, for parents and
/// children.
#[test]
fn s4_distinguishes_providers_by_their_full_names() {
    let model = "model = \"offliner/gpt\"\n";
    let provider = "base_url = \"http://127.0.0.1:9/v1\"\n";
    let scenario = format!(
        "{}[agent]\n{model}[agent.providers.offliner]\n{provider}[[turns]]\nsay = \"hi\"\n",
        plugins_line("text")
    );
    let (code, printed) = ScenarioFolder::with(&[("far", &scenario)]).shown(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("`offliner/gpt` would be called over the network"), "{printed}");
    let (code, printed) = with_helper(&format!("{model}[providers.offliner]\n{provider}")).shown(&[]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("helper.toml:1: model: `offliner/gpt` would be called over the network"), "{printed}");
}
