//! Progress messages while components are compiled (P9), which takes some time at their first use.

use super::screen::Screen;
use crate::compiler_process::bomb;
use std::path::Path;
use std::process::Command;

/// Takes a compiler at least one second.
const ADDITIONS: usize = 120_000;

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.arg("--data").arg(data.join("data")).args(["plugin"]).args(arguments).current_dir(data);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command
}

/// P9: On a terminal, a line shows what is being compiled, with a count if there are several, and disappears with the
/// end; elsewhere there is no such line.
#[test]
fn p9_shows_progress_while_compiling() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(plugins.join("slow.wasm"), bomb(ADDITIONS)).unwrap();
    std::fs::write(plugins.join("slower.wasm"), bomb(ADDITIONS + 1)).unwrap();

    let mut one = Screen::start(command(folder.path(), &["inspect", "plugins/slow.wasm"]), 20, 100);
    // Its export has another type than the contract requires, which is found after it has been compiled.
    assert_eq!(one.exit_code(), Some(2), "{}", one.text());
    let is_over = |shown: &str| !shown.contains("compiling") && shown.contains("its export tool");
    one.wait("what is wrong, in place of the line", is_over);
    assert!(one.raw().contains("compiling slow ("), "{}", one.raw());

    let mut both = Screen::start(command(folder.path(), &["list", "plugins"]), 20, 100);
    assert_eq!(both.exit_code(), Some(2), "{}", both.text());
    both.wait("what is wrong, in place of the line", is_over);
    assert!(both.raw().contains("compiling 1 of 2: slow"), "{}", both.raw());

    let piped = command(folder.path(), &["inspect", "plugins/slow.wasm"]).output().unwrap();
    let output_text = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert!(!output_text.contains("compiling") && output_text.contains("its export tool"), "{output_text}");
}
