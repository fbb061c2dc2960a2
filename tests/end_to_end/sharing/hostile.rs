//! Rows 18 and 23: folders, locks and registries of somebody who means harm.

use super::by_policy::of_agent;
use super::{Desk, component, in_plugins};
use agent_plugins::Asks;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

impl Desk {
    /// Of a command that must end; what waits for ever is ended.
    fn ends(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        // Escape codes are shown as on a terminal.
        command.env("CLICOLOR_FORCE", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{arguments:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.wait_with_output().unwrap()
    }

    fn words(&self, arguments: &[&str]) -> String {
        let output = self.ends(arguments);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

/// Row 18: a file that lies in the current folder under the name of a reference is not what was asked for, and its signature
/// would be nobody's business.
#[test]
fn row_18_a_file_under_a_reference_s_name_is_not_taken() {
    let desk = Desk::new();
    let team = desk.key("team");
    desk.agent("required", &team);
    let reference = desk.reference("team/tides:latest");
    let signed = desk.push("tides", "1.0.0", &["--sign", "team.key"]);
    desk.done(&of_agent(&["plugin", "add", &reference]));
    let folder = desk.path(&desk.reference("team"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tides:latest"), component("tides", "6.6.6", Asks::default())).unwrap();
    assert!(desk.done(&of_agent(&["plugin", "update"])).contains("nothing is newer"));
    desk.done(&of_agent(&["plugin", "add", &reference]));
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), signed);
    // Nor is a reference a file because it ends like one: its signature is looked at at each load.
    let reference = desk.reference("others/tides.wasm");
    desk.done(&["plugin", "push", &format!("oci://{reference}:1.0.0"), "pushed.wasm"]);
    desk.agent("warn", &team);
    let add = ["plugin", "add", &format!("oci://{reference}"), "--replace"];
    desk.done(&of_agent(&add));
    desk.agent("required", &team);
    desk.fails(2, &of_agent(&["plugin", "list"]), &["it is not signed"]);
}

/// Row 18: what is no regular file is waited for by nobody, and a name steers no terminal.
#[cfg(unix)]
#[test]
fn row_18_a_folder_of_strange_files_hurts_nobody() {
    let desk = Desk::new();
    desk.push("tides", "1.0.0", &[]);
    desk.done(&in_plugins(&["plugin", "add", &desk.reference("team/tides")]));
    std::fs::write(desk.path("plugins/\u{1b}[2J\u{202e}x.wasm"), b"nothing").unwrap();
    for command in [&["plugin", "verify"][..], &["plugin", "update"], &["plugin", "add"]] {
        let words = desk.words(&in_plugins(command));
        assert!(!words.contains("\u{1b}[2J") && !words.contains('\u{202e}'), "{command:?}: {words:?}");
    }
    let listed = desk.words(&["plugin", "list", "plugins"]);
    assert!(!listed.contains("\u{1b}[2J") && !listed.contains('\u{202e}'), "{listed:?}");
    std::fs::remove_file(desk.path("plugins/\u{1b}[2J\u{202e}x.wasm")).unwrap();

    let pipe = |name: &str| {
        std::fs::remove_file(desk.path(name)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(desk.path(name)).status().unwrap().success());
    };
    pipe("plugins/tides.wasm");
    for command in [&["plugin", "verify"][..], &["plugin", "add"], &["plugin", "remove", "tides"]] {
        let words = desk.words(&in_plugins(command));
        assert!(words.contains("not a regular file"), "{command:?}: {words}");
    }
    pipe("plugins/plugins.lock");
    for command in [in_plugins(&["plugin", "verify"]), vec!["plugin", "list", "plugins"]] {
        let words = desk.words(&command);
        assert!(command[1] == "list" || words.contains("not a regular file"), "{command:?}: {words}");
    }
    assert!(desk.words(&in_plugins(&["plugin", "add", "./plugins/tides.wasm"])).contains("not a regular file"));
}

/// Row 18: a name that another file has is not taken from it.
#[test]
fn row_18_a_name_that_another_file_has_stays_there() {
    let desk = Desk::new();
    std::fs::write(desk.path("plugins/zzz.wasm"), component("tides", "0.1.0", Asks::default())).unwrap();
    desk.push("tides", "1.0.0", &[]);
    let reference = desk.reference("team/tides");
    for rest in [&[][..], &["--replace"]] {
        let add = [&["plugin", "add", &reference], rest].concat();
        desk.fails(2, &in_plugins(&add), &["zzz.wasm", "is the plugin `tides` already"]);
    }
    assert!(!desk.path("plugins/tides.wasm").exists() && desk.lock().is_empty());
}

/// P11: a server that is busy is asked again, and it is said.
#[test]
fn p11_a_busy_registry_is_asked_again_and_it_is_said() {
    let desk = Desk::new();
    desk.push("tides", "1.0.0", &[]);
    desk.registry.set(|faults| faults.refuse = vec![(503, ""), (429, "1")]);
    let said = desk.done(&in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]));
    for words in ["it answers 503 Service Unavailable; asked again in 0.3 s (2 of 4)", "429", "in 1.0 s (3 of 4)"] {
        assert!(said.contains(words), "no `{words}` in: {said}");
    }
}
