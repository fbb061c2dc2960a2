//! Runs the commands in the README of a new plugin project, from `plugin new` to a turn in which another user, who has
//! a different data folder, uses the plugin (S1, S2, S4, S5, P11).

use crate::documentation_page::{Block, TypedCommand, blocks};
use crate::plugin_authoring::peer;
use crate::sharing::peers::DebianRegistry;
use crate::support::cargo;
use crate::terminal::CTRL_D;
use crate::terminal::walk::ShellUser;
use crate::test_registry::TestRegistry;
use std::path::PathBuf;

/// A change that the plugin's author makes to a file: the path of a file, a text in the file, and the text that
/// replaces it. After the change, the count that the plugin returns is too high by one.
type TextChange = (&'static str, &'static str, &'static str);

/// Replaces a text in a file of the project.
fn edit(author: &ShellUser, (file, before, after): TextChange) {
    let path = author.current_folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(before), "{text}");
    std::fs::write(path, text.replace(before, after)).unwrap();
}

/// Follows all steps of the README of a new project.
fn follow_all_steps(language: &str, variables: &[(&'static str, PathBuf)], change: TextChange, registry: &str) {
    let mut author = ShellUser::begin(&format!("author-{language}"), variables);
    let printed = author.succeed(&format!("agent-host plugin new words --lang {language}"));
    author.current_folder.push("words");
    let readme = blocks(&std::fs::read_to_string(author.current_folder.join("README.md")).unwrap());
    let blocks_in = |language: &'static str| readme.iter().filter(move |block| block.language == language);
    let call = blocks_in("text").map(|block| block.text.trim()).next().expect("the call that a model would make");
    let mut steps = blocks_in("console").flat_map(Block::typed).map(|typed| format!("  {}\n", typed.command));
    for line in printed.lines().skip(2) {
        assert!(
            steps.any(|step| step.trim_end() == line),
            "the README does not contain the output of `plugin new`: {line}"
        );
    }
    for block in &readme {
        match (block.language.as_str(), block.section.as_str()) {
            ("text", _) | ("toml", "Share the plugin") => {}
            ("console", "Share the plugin") => share(&author, language, &block.typed(), (call, registry)),
            ("console", _) => {
                for typed in block.typed() {
                    match typed.command.as_str() {
                        "agent-host dev ." => develop(&author, &typed.command, call, change),
                        _ => author.run_typed(&typed),
                    }
                }
            }
            other => panic!("the test does not handle this block of the README: {other:?}"),
        }
    }
}

/// Changes the source during a session, and then corrects the scenario that fails because of the change.
fn develop(author: &ShellUser, command: &str, call: &str, change: TextChange) {
    let mut screen = author.session(command);
    screen.wait_for_prompt(1);
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 2");
    screen.wait_for_end("\n>");
    edit(author, change);
    screen.wait_for("is used from the next turn on");
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 3");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));

    let (code, printed, stderr) = author.run("agent-host test .");
    let stderr = printed + &stderr;
    assert!(code == Some(1) && stderr.contains("words.scenario.toml:") && stderr.contains("times"), "{stderr}");
    edit(author, ("words.scenario.toml", "times = 2", "times = 3"));
    edit(author, ("words.scenario.toml", "last_contains = \"2\"", "last_contains = \"3\""));
    author.succeed("agent-host test .");
    author.succeed("agent-host plugin check .");
}

/// The author pushes the plugin to a registry, and another user installs the plugin from the registry.
fn share(author: &ShellUser, language: &str, steps: &[TypedCommand], (call, registry): (&str, &str)) {
    let commands: Vec<String> = steps.iter().map(|typed| typed.command.replace("registry.example", registry)).collect();
    let [build, key, push, add, session] = &commands[..] else {
        panic!("the README has other steps for sharing: {commands:?}")
    };
    author.succeed(build);
    // The key's password is asked for on a terminal.
    author.succeed(&format!("{key} --no-password"));
    let pushed = author.succeed(push);
    assert!(pushed.contains("signed    "), "{pushed}");
    let user = ShellUser::begin(&format!("user-{language}"), &[]);
    user.succeed(add);
    // With `--model`, the session does not ask which model to use.
    let mut screen = user.session(&format!("{session} --model offline"));
    screen.wait_for_prompt(1);
    screen.send(&format!("{call}\r"));
    screen.wait_for("times: 3");
    screen.wait_for_end("\n>");
    screen.send(CTRL_D);
    assert_eq!(screen.exit_code(), Some(0));
}

/// Follows all steps of the README with a third-party toolchain and a third-party registry.
fn follow_steps_in(language: &'static str, change: TextChange) {
    let (Some((variables, _)), Some(registry)) = (peer(language), DebianRegistry::start()) else { return };
    // The README's commands install the toolchain into a folder, and the test uses the toolchain in this folder.
    let kept_variables = ["PATH", "ZIG_GLOBAL_CACHE_DIR"];
    let variables: Vec<_> = variables.into_iter().filter(|(name, _)| kept_variables.contains(name)).collect();
    follow_all_steps(language, &variables, change, &registry.host);
}

/// S1: All steps that a plugin's author performs succeed for a plugin in Rust. The test uses the crates that other
/// tests have compiled for the SDK.
#[test]
fn s1_all_author_steps_succeed_in_rust() {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("new-projects/target");
    let variables = [("CARGO_TARGET_DIR", target), ("CARGO", cargo())];
    let change = ("src/lib.rs", "filter(|other| *other == word).count()", "filter(|other| *other == word).count() + 1");
    follow_all_steps("rust", &variables, change, &TestRegistry::start().host());
}

#[test]
fn s1_all_author_steps_succeed_in_python() {
    follow_steps_in("python", ("app.py", "count(word.lower())", "count(word.lower()) + 1"));
}

#[test]
fn s1_all_author_steps_succeed_in_javascript() {
    follow_steps_in("js", ("app.js", "word.toLowerCase()).length", "word.toLowerCase()).length + 1"));
}

#[test]
fn s1_all_author_steps_succeed_in_c() {
    follow_steps_in("c", ("app.c", "count(text, word)))", "count(text, word) + 1))"));
}
