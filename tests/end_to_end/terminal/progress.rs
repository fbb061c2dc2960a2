//! Progress messages while the host compiles components (P9). The compilation takes some time when a component is used
//! for the first time.

use super::screen::Screen;
use crate::compiler_process::compile_bomb;
use std::path::Path;
use std::process::Command;

/// The number of additions in the test's component. With so many additions, the compilation takes at least one second.
const ADDITIONS: usize = 120_000;

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.arg("--data").arg(data.join("data")).args(["plugin"]).args(arguments).current_dir(data);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    command
}

/// P9: On a terminal, a line shows the name of the component that is being compiled. If several components are
/// compiled, the line also shows how many. The line disappears when the compilation ends. Without a terminal, the host
/// shows no progress line.
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
    assert!(!stderr.contains("compiling") && stderr.contains("its export tool"), "{stderr}");
}
