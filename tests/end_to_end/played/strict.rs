//! Scenarios that must not pass (S4): slips in names, replies that nobody asks for, requests of services that are others.

use super::{Folder, of};
use crate::support::components;
use std::path::Path;

/// S4: a slip in a tool's name is no tool that fails.
#[test]
fn a_call_of_no_tool_is_a_problem() {
    let call = |name: &str, fails: &str| {
        of("text") + &format!("[[calls]]\nname = \"{name}\"\narguments = {{ text = \"a\" }}\n{fails}")
    };
    let turn = "[[turns]]\nsay = \"Hi.\"\nreplies = [{ calls = [{ name = \"text.nosuch\" }] }, { text = \"a\" }]\n";
    let folder = Folder::with(&[
        ("slip", &call("text.nosuch", "fails = true\n")),
        ("meant", &call("text.nosuch", "fails = \"no_such_tool\"\n")),
        ("there", &call("text.count", "fails = \"no_such_tool\"\n")),
        ("word", &call("text.count", "fails = \"maybe\"\n")),
        ("turn", &(of("text") + turn)),
    ]);
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "✓ meant",
        "slip.scenario.toml:2: calls[0].name\n    expected  a tool `text.nosuch` that is there",
        "there.scenario.toml:2: calls[0].fails\n    expected  a call of a tool that is not there",
        "turn.scenario.toml:2: turns[0]\n    expected  a tool `text.nosuch` that is there",
        "expected true, false, or \"no_such_tool\"",
        "5 scenarios: 1 passed, 3 failed, 1 not played",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
}

/// S4: summaries and answers are replies like others: as they expect, and all of them asked for.
#[test]
fn summaries_and_answers_are_held_to_what_they_expect() {
    let long = "many words of which most must go ".repeat(60);
    let turns = (0..3).map(|turn| format!("[[turns]]\nsay = \"{turn} {long}\"\nreplies = [{{ text = \"a\" }}]\n"));
    let evicting = of("text")
        + "window = 3500\nsummaries = [{ text = \"short\", expect = { contains = \"moon\" } }, { text = \"never\" }, { text = \"never\" }, { text = \"never\" }]\n\
           [agent]\nreply_tokens = 300\nminimum_remaining = 100\nevict_at = 30\nevict_to = 10\n"
        + &turns.collect::<String>();
    let answers = |list: &str| {
        of("summarize")
            + &format!(
                "answers = [{list}]\n[agent.plugins.summarize.grants]\nmodel_tokens = 5000\n[[calls]]\nname = \"summarize.text\"\narguments = {{ text = \"Something.\" }}\n"
            )
    };
    let folder = Folder::with(&[
        ("evicting", &evicting),
        ("wrong", &(answers("{ text = \"a\", expect = { contains = \"moon\" } }") + "fails = true\n")),
        ("unused", &answers("{ text = \"a\" }, { text = \"b\" }")),
        ("all", &answers("{ text = \"a\" }")),
        (
            "nobody",
            &(of("text") + "answers = [{ text = \"a\" }]\nagent = { model = \"offline\" }\n[[turns]]\nsay = \"Hi.\"\n"),
        ),
    ]);
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(1), "{printed}");
    for line in [
        "evicting.scenario.toml:3: summaries[0]\n    expected  the request that this reply expects",
        "evicting.scenario.toml:3: summaries[2]\n    expected  this reply to be asked for",
        "wrong.scenario.toml:2: answers[0]\n    expected  the request that this reply expects",
        "unused.scenario.toml:2: answers[1]\n    expected  this reply to be asked for\n    found     1 of 2 were",
        "nobody.scenario.toml:2: answers[0]\n    expected  this reply to be asked for\n    found     none of them was",
        "✓ all",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
}

const SERVICE: &str = "plugins = []\ngolden = true\n[agent.services.tide]\ntype = \"com.example.tide\"\n\
    [agent.services.tide.accepts]\ntype = \"object\"\n[[turns]]\nsay = \"When?\"\n\
    replies = [{ calls = [{ name = \"tide\", arguments = { day = \"Friday\" } }] }, { text = \"At four.\" }]\n\
    services = [{ name = \"tide\", type = \"com.example.tide.known\", data = { at = 4 }, request = { at = { \"/day\" = \"DAY\" } } }]\n";

/// L10: what a service is asked is expected as other things are, and stands in the transcript.
#[test]
fn what_services_are_asked_is_expected() {
    let folder = Folder::with(&[("asked", &SERVICE.replace("DAY", "Friday"))]);
    let (code, printed) = folder.shown(&["--update"]);
    assert_eq!(code, Some(0), "{printed}");
    let golden = std::fs::read_to_string(folder.path().join("asked.golden")).unwrap();
    assert!(golden.contains("\nwaits for the service: com.example.tide {\"day\":\"Friday\"}\n"), "{golden}");
    let (code, printed) = Folder::with(&[("asked", &SERVICE.replace("DAY", "Monday"))]).shown(&[]);
    assert_eq!(code, Some(1), "{printed}");
    let place = "asked.scenario.toml:10: turns[0].services[0].request\n    expected  \"Monday\" at \"/day\"\n    found     \"Friday\"";
    assert!(printed.contains(place), "{printed}");
}

/// S4: an answer that cannot be taken is told at its own line.
#[test]
fn answers_that_cannot_be_taken_are_told_at_their_lines() {
    let service = SERVICE.replace("DAY", "Friday").replace("golden = true\n", "").replace(
        "[agent.services.tide.accepts]",
        "[agent.services.tide.emits.\"com.example.tide.other\"]\ntype = \"string\"\n[agent.services.tide.accepts]",
    );
    let approval = of("files")
        + "[agent.approval.tools]\n\"files.write\" = \"ask\"\n[[turns]]\nsay = \"Write.\"\n\
           replies = [{ calls = [{ name = \"files.write\", arguments = { path = \"a\", text = \"b\" } }] }, { text = \"a\" }]\n\
           approvals = [{ name = \"files.write\", verdict = \"allow\", arguments = { bad = 1 } }]\n";
    let folder = Folder::with(&[("service", &service), ("approval", &approval)]);
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("service.scenario.toml:11: turns[0].services[0]\n"), "{printed}");
    assert!(printed.contains("approval.scenario.toml:7: turns[0].approvals[0]\n"), "{printed}");
}

/// S4: what --plugins names is what is tested, or nothing is.
#[test]
fn the_named_components_are_tested_or_none() {
    let folder = Folder::with(&[(
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
        ("own.scenario.toml", "--plugins: `own.scenario.toml` is no folder"),
        ("empty", "--plugins: there is no component (*.wasm) in `empty`"),
        ("others", "own.scenario.toml:1: plugins[0]: there is no text.wasm in `others`"),
    ] {
        let (code, printed) = folder.shown_with(Path::new(plugins), &[]);
        assert_eq!(code, Some(2), "{printed}");
        assert!(printed.contains(message), "{message} is not in {printed}");
    }
    assert_eq!(folder.shown_with(Path::new("plugins"), &[]).0, Some(0));
}
