//! `plugin history|rollback|prune` and `audit`, by hand.

use super::{put, version};
use agent_plugins::digest_of;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    command.arg("--data").arg(folder.join("data")).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// P10, O3: a person goes back to an earlier version, and lets the file decide again; the log has it.
#[test]
fn p10_history_rollback_and_audit() {
    let ground = tempfile::tempdir().unwrap();
    let folder = ground.path();
    std::fs::create_dir(folder.join("plugins")).unwrap();
    let short = |number: u32| digest_of(&version(number)).short().to_owned();
    let ask = |words: &str| said(folder, &["--plugins", "plugins", "--json", "--", words]);
    assert!(refused(folder, &["plugin", "rollback", "probe"]).contains("has served"));
    put(&folder.join("plugins/probe.wasm"), &version(1));
    assert!(ask("hello").contains(&format!("probe@{}", short(1))));
    assert!(refused(folder, &["plugin", "rollback", "probe"]).contains("no earlier version"));
    put(&folder.join("plugins/probe.wasm"), &version(2));
    assert!(ask("hello").contains(&format!("probe@{}", short(2))));

    let history = said(folder, &["plugin", "history", "probe"]);
    let lines: Vec<&str> = history.lines().collect();
    assert!(
        lines[0].contains(&short(2)) && lines[0].contains("serves") && lines[0].contains("probe.wasm"),
        "{history}"
    );
    assert!(lines[1].contains(&short(1)) && lines[1].contains("its file changed"), "{history}");

    assert!(said(folder, &["plugin", "rollback", "probe"]).contains("until its file changes"));
    let json = ask("hello");
    assert!(json.contains(&format!("probe@{}", short(1))), "{json}");
    let history = said(folder, &["plugin", "history", "probe", "--json"]);
    assert!(history.lines().next().unwrap().contains("plugin store"), "{history}");
    assert!(history.contains(r#""why":"asked""#), "{history}");
    assert!(refused(folder, &["plugin", "rollback", "probe", "--to", &short(2)]).contains("--undo"));

    said(folder, &["plugin", "rollback", "probe", "--undo"]);
    assert!(ask("hello").contains(&format!("probe@{}", short(2))));
    assert!(refused(folder, &["plugin", "rollback", "probe", "--undo"]).contains("its file serves"));
    assert!(refused(folder, &["plugin", "rollback", "nobody"]).contains("plugin history"));
    assert!(said(folder, &["plugin", "prune"]).contains("0 components"));

    let log = said(folder, &["audit"]);
    assert!(log.contains("was rolled back") && log.contains("somebody asked for it"), "{log}");
    assert!(log.contains("is granted nothing"), "{log}");
    assert!(said(folder, &["audit", "--json", "--since", "1h"]).contains(r#""type":"rolled_back""#));
    assert!(said(folder, &["audit", "--since", "2999-01-01"]).contains("nothing of that time"));
}
