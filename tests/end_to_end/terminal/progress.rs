//! Progress messages: on a terminal as a spinner, and in a pipe as lines (I1, P9).

use super::screen::Screen;
use crate::compiler_process::compile_bomb;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of additions in the test's component. With so many additions, the compilation takes at least one second.
const ADDITIONS: usize = 120_000;

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = crate::support::agent_host();
    command.arg("--data").arg(data.join("data")).args(["plugin"]).args(arguments).current_dir(data);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command
}

/// P9: On a terminal, a line shows the name of the component that is being compiled. If several components are
/// compiled, the line also shows how many. The line disappears when the compilation ends. Without a terminal, a
/// compilation that takes more than 300 ms is shown as a line.
#[test]
fn p9_shows_progress_while_compiling() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(plugins.join("slow.wasm"), compile_bomb(ADDITIONS)).unwrap();
    std::fs::write(plugins.join("slower.wasm"), compile_bomb(ADDITIONS + 1)).unwrap();

    let mut inspect_screen = Screen::start(command(folder.path(), &["inspect", "plugins/slow.wasm"]), 20, 100);
    // The host refuses the component after the compilation, because the type of its export is not the type that the
    // contract requires.
    assert_eq!(inspect_screen.exit_code(), Some(2), "{}", inspect_screen.text());
    let is_over = |shown: &str| !shown.contains("compiling") && shown.contains("its export tool");
    inspect_screen.wait("the error instead of the progress line", is_over);
    assert!(inspect_screen.raw().contains("compiling slow ("), "{}", inspect_screen.raw());

    let mut list_screen = Screen::start(command(folder.path(), &["list", "plugins"]), 20, 100);
    assert_eq!(list_screen.exit_code(), Some(2), "{}", list_screen.text());
    list_screen.wait("the error instead of the progress line", is_over);
    assert!(list_screen.raw().contains("compiling 1 of 2: slow"), "{}", list_screen.raw());

    let piped = command(folder.path(), &["inspect", "plugins/slow.wasm"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert_eq!(stderr.matches("… compiling slow (").count(), 1, "{stderr}");
    assert!(stderr.contains("its export tool") && !stderr.contains('\u{1b}'), "{stderr}");
}

/// I1: in a pipe, a model call that takes more than 300 ms is shown as a line on stderr. Programs that
/// read JSON get no such line.
#[test]
fn i1_a_long_model_call_is_shown_in_a_pipe() {
    let words = |delay_ms: u64| json!({"chunks": ["one ", "two ", "three"], "delay_ms": delay_ms});
    let output = |reply: Value, arguments: &[&str]| {
        let cli = super::TestCli::new(&[reply]);
        let output = cli.command(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (answer, progress) = output(words(600), &["Count."]);
    assert_eq!(answer, "one two three\n");
    assert_eq!(progress.matches("… writing the answer\n").count(), 1, "{progress}");
    let (_, progress) = output(words(600), &["--json", "Count."]);
    assert!(!progress.contains("writing the answer"), "{progress}");
}
