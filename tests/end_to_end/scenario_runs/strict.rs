//! Scenarios that must fail (S4): typos in names, scripted replies that are not used, and service requests that differ
//! from the expected requests.

use super::{ScenarioFolder, plugins_line};
use crate::support::components;
use std::path::Path;

/// S4: A typo in a tool's name is reported as an error in the scenario and not as a failed tool call.
#[test]
fn reports_a_call_of_an_unknown_tool() {
    let call = |name: &str, fails: &str| {
        plugins_line("text") + &format!("[[calls]]\nname = \"{name}\"\narguments = {{ text = \"a\" }}\n{fails}")
    };
    let turn = "[[turns]]\nsay = \"Hi.\"\nreplies = [{ calls = [{ name = \"text.nosuch\" }] }, { text = \"a\" }]\n";
    let folder = ScenarioFolder::with(&[
        ("slip", &call("text.nosuch", "fails = true\n")),
        ("meant", &call("text.nosuch", "fails = \"no_such_tool\"\n")),
        ("there", &call("text.count", "fails = \"no_such_tool\"\n")),
        ("word", &call("text.count", "fails = \"maybe\"\n")),
        ("turn", &(plugins_line("text") + turn)),
    ]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "✓ meant",
        "slip.scenario.toml:2: calls[0].name\n    expected  an existing tool `text.nosuch`",
        "there.scenario.toml:2: calls[0].fails\n    expected  a call to a tool that does not exist",
        "turn.scenario.toml:2: turns[0]\n    expected  an existing tool `text.nosuch`",
        "expected true, false, or \"no_such_tool\"",
        "5 scenarios: 1 passed, 3 failed, 1 not run",
    ] {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
}

/// S4: The expectations of scripted summaries and scripted answers are checked like all other expectations. A scripted
/// summary or answer that is not used fails the scenario.
#[test]
fn checks_expectations_of_summaries_and_answers() {
    let long = "many words of which most must go ".repeat(60);
    let turns = (0..3).map(|turn| format!("[[turns]]\nsay = \"{turn} {long}\"\nreplies = [{{ text = \"a\" }}]\n"));
    let evicting = plugins_line("text")
        + "window = 3500\nsummaries = [{ text = \"short\", expect = { contains = \"moon\" } }, { text = \"never\" }, { text = \"never\" }, { text = \"never\" }]\n\
           [agent]\nreply_tokens = 300\nminimum_remaining = 100\nevict_at = 30\nevict_to = 10\n"
        + &turns.collect::<String>();
    let answers = |replies: &str| {
        plugins_line("summarize")
            + &format!(
                "answers = [{replies}]\n[agent.plugins.summarize.grants]\nmodel_tokens = 5000\n[[calls]]\nname = \"summarize.text\"\narguments = {{ text = \"Something.\" }}\n"
            )
    };
    let folder = ScenarioFolder::with(&[
        ("evicting", &evicting),
        ("wrong", &(answers("{ text = \"a\", expect = { contains = \"moon\" } }") + "fails = true\n")),
        ("unused", &answers("{ text = \"a\" }, { text = \"b\" }")),
        ("all", &answers("{ text = \"a\" }")),
        (
            "nobody",
            &(plugins_line("text")
                + "answers = [{ text = \"a\" }]\nagent = { model = \"offline\" }\n[[turns]]\nsay = \"Hi.\"\n"),
        ),
    ]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "evicting.scenario.toml:3: summaries[0]\n    expected  a request that matches `expect` of this reply",
        "evicting.scenario.toml:3: summaries[2]\n    expected  this reply to be used",
        "wrong.scenario.toml:2: answers[0]\n    expected  a request that matches `expect` of this reply",
        "unused.scenario.toml:2: answers[1]\n    expected  this reply to be used\n    found     1 of 2 replies were used",
        "nobody.scenario.toml:2: answers[0]\n    expected  this reply to be used\n    found     none of the replies was used",
        "✓ all",
    ] {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
}

const SERVICE: &str = "plugins = []\ngolden = true\n[agent.services.tide]\ntype = \"com.example.tide\"\n\
    [agent.services.tide.accepts]\ntype = \"object\"\n[[turns]]\nsay = \"When?\"\n\
    replies = [{ calls = [{ name = \"tide\", arguments = { day = \"Friday\" } }] }, { text = \"At four.\" }]\n\
    services = [{ name = \"tide\", type = \"com.example.tide.known\", data = { at = 4 }, request = { at = { \"/day\" = \"DAY\" } } }]\n";

/// L10: If a scenario expects requests to services, these expectations are checked like all other expectations, and the
/// transcript contains the requests.
#[test]
fn l10_checks_requests_to_services() {
    let folder = ScenarioFolder::with(&[("asked", &SERVICE.replace("DAY", "Friday"))]);
    let (code, printed) = folder.code_and_output(&["--update"]);
    assert_eq!(code, Some(0), "{printed}");
    let golden = std::fs::read_to_string(folder.path().join("asked.golden")).unwrap();
    assert!(golden.contains("\nwaits for the service: com.example.tide {\"day\":\"Friday\"}\n"), "{golden}");
    let (code, printed) = ScenarioFolder::with(&[("asked", &SERVICE.replace("DAY", "Monday"))]).code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    let failure = "asked.scenario.toml:10: turns[0].services[0].request\n    expected  \"Monday\" at \"/day\"\n    found     \"Friday\"";
    assert!(printed.contains(failure), "{printed}");
}

/// S4: If a scripted answer is invalid, the report contains the line of that answer.
#[test]
fn reports_invalid_answers_at_their_lines() {
    let service = SERVICE.replace("DAY", "Friday").replace("golden = true\n", "").replace(
        "[agent.services.tide.accepts]",
        "[agent.services.tide.emits.\"com.example.tide.other\"]\ntype = \"string\"\n[agent.services.tide.accepts]",
    );
    let approval = plugins_line("files")
        + "[agent.approval.tools]\n\"files.write\" = \"ask\"\n[[turns]]\nsay = \"Write.\"\n\
           replies = [{ calls = [{ name = \"files.write\", arguments = { path = \"a\", text = \"b\" } }] }, { text = \"a\" }]\n\
           approvals = [{ name = \"files.write\", verdict = \"allow\", arguments = { bad = 1 } }]\n";
    let folder = ScenarioFolder::with(&[("service", &service), ("approval", &approval)]);
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("service.scenario.toml:11: turns[0].services[0]\n"), "{printed}");
    assert!(printed.contains("approval.scenario.toml:7: turns[0].approvals[0]\n"), "{printed}");
}

/// S4: With `--plugins DIR`, only the components in the folder `DIR` are tested. If a component that a scenario needs
/// is missing from this folder, no scenario runs.
#[test]
fn tests_only_the_components_in_the_named_folder() {
    let folder = ScenarioFolder::with(&[(
        "own",
        "plugins = [\"text\"]\n[[calls]]\nname = \"text.count\"\narguments = { text = \"a\" }\n",
    )]);
    std::fs::create_dir_all(folder.path().join("plugins")).unwrap();
    std::fs::create_dir_all(folder.path().join("empty")).unwrap();
    std::fs::create_dir_all(folder.path().join("others")).unwrap();
    let component = components().join("text.wasm");
    std::fs::copy(&component, folder.path().join("plugins/text.wasm")).unwrap();
    std::fs::copy(&component, folder.path().join("others/other.wasm")).unwrap();
    for (plugins, message) in [
        ("typo", "--plugins: there is no folder `typo`"),
        ("own.scenario.toml", "--plugins: `own.scenario.toml` is not a folder"),
        ("empty", "--plugins: there is no component (*.wasm) in `empty`"),
        ("others", "own.scenario.toml:1: plugins[0]: there is no text.wasm in `others`"),
    ] {
        let (code, printed) = folder.code_and_output_with(Path::new(plugins), &[]);
        assert_eq!(code, Some(2), "{printed}");
        assert!(printed.contains(message), "{message} is not in {printed}");
    }
    assert_eq!(folder.code_and_output_with(Path::new("plugins"), &[]).0, Some(0));
}
