//! A new author's way, as a new project's README says it and step by step read from there: from `plugin new` to a turn of somebody
//! else, on another data folder (S1, S2, S4, S5, P11).

use super::CTRL_D;
use super::walk::Walk;
use crate::kit::peer;
use crate::page::{Block, Typed, blocks};
use crate::sharing::peers::DebianRegistry;
use crate::support::cargo;
use crate::test_registry::TestRegistry;
use std::path::PathBuf;

/// A text of a file, and what the author writes in its place. The change counts one more.
type Change = (&'static str, &'static str, &'static str);

/// Puts one text in the place of another in a file of the project.
fn edit(author: &Walk, (file, before, after): Change) {
    let path = author.place.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(before), "{text}");
    std::fs::write(path, text.replace(before, after)).unwrap();
}

/// The whole way.
fn way(language: &str, variables: &[(&'static str, PathBuf)], change: Change, registry: &str) {
    let mut author = Walk::begin(&format!("author-{language}"), variables);
    let made = author.done(&format!("agent-host plugin new words --lang {language}"));
    author.place.push("words");
    let readme = blocks(&std::fs::read_to_string(author.place.join("README.md")).unwrap());
    let of_language = |language: &'static str| readme.iter().filter(move |block| block.language == language);
    let call = of_language("text").map(|block| block.text.trim()).next().expect("what a model would call");
    let mut steps = of_language("console").flat_map(Block::typed).map(|typed| format!("  {}\n", typed.command));
    for line in made.lines().skip(2) {
        assert!(steps.any(|step| step.trim_end() == line), "README has not what `plugin new` says: {line}");
    }
    for block in &readme {
        match (block.language.as_str(), block.section.as_str()) {
            ("text", _) => {}
            ("console", "To others") => share(&author, language, &block.typed(), (call, registry)),
            ("console", _) => {
                for typed in block.typed() {
                    match typed.command.as_str() {
                        "agent-host dev ." => develop(&author, &typed.command, call, change),
                        _ => author.do_as_typed(&typed),
                    }
                }
            }
            other => panic!("nothing is done with what README has as {other:?}"),
        }
    }
}

/// A session in which the source is changed, and the scenario that does not hold any more.
fn develop(author: &Walk, command: &str, call: &str, change: Change) {
    let mut screen = author.session(command);
    screen.wait_for_prompt(1);
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 2");
    screen.wait_for_end("\n>");
    edit(author, change);
    screen.wait_for("serves from the next turn on");
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 3");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));

    let (code, printed, said) = author.run("agent-host test .");
    let said = printed + &said;
    assert!(code == Some(1) && said.contains("words.scenario.toml:") && said.contains("times"), "{said}");
    edit(author, ("words.scenario.toml", "times = 2", "times = 3"));
    edit(author, ("words.scenario.toml", "last_contains = \"2\"", "last_contains = \"3\""));
    author.done("agent-host test .");
    author.done("agent-host plugin check .");
}

/// The author shares it, and somebody else has it.
fn share(author: &Walk, language: &str, steps: &[Typed], (call, registry): (&str, &str)) {
    let commands: Vec<String> = steps.iter().map(|typed| typed.command.replace("registry.example", registry)).collect();
    let [push, add, session] = &commands[..] else { panic!("README shares in other steps: {commands:?}") };
    author.done(push);
    let user = Walk::begin(&format!("user-{language}"), &[]);
    user.done(add);
    // Without asking which model of this machine it shall be.
    let mut screen = user.session(&format!("{session} --model offline"));
    screen.wait_for_prompt(1);
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 3");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// With a toolchain and a registry of others.
fn way_in(language: &'static str, change: Change) {
    let (Some((variables, _)), Some(registry)) = (peer(language), DebianRegistry::start()) else { return };
    // The toolchain is found where README's installation puts it.
    let kept = ["PATH", "ZIG_GLOBAL_CACHE_DIR"];
    let variables: Vec<_> = variables.into_iter().filter(|(name, _)| kept.contains(name)).collect();
    way(language, &variables, change, &registry.host);
}

/// In Rust, with what other tests have compiled of what the SDK is built of.
#[test]
fn the_way_of_an_author_in_rust() {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("new-projects/target");
    let variables = [("CARGO_TARGET_DIR", target), ("CARGO", cargo())];
    let change = ("src/lib.rs", "filter(|other| *other == word).count()", "filter(|other| *other == word).count() + 1");
    way("rust", &variables, change, &TestRegistry::start().host());
}

#[test]
fn the_way_of_an_author_in_python() {
    way_in("python", ("logic.py", "count(word.lower())", "count(word.lower()) + 1"));
}

#[test]
fn the_way_of_an_author_in_javascript() {
    way_in("js", ("app.js", "word.toLowerCase()).length", "word.toLowerCase()).length + 1"));
}

#[test]
fn the_way_of_an_author_in_c() {
    way_in("c", ("app.c", "count(text, word));", "count(text, word) + 1);"));
}
