//! Tests of the commands `plugin history|rollback|prune` and `audit`, with the real binary.

use super::{probe_version, write_atomically};
use agent_plugins::digest_of;
use std::path::Path;
use std::process::{Output, Stdio};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = crate::support::agent_host();
    command.arg("--data").arg(folder.join("data")).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

fn fail(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// P10, O3: A user rolls a plugin back to an earlier version, and then undoes the rollback. The audit log contains an
/// entry for each of these two actions.
#[test]
fn p10_history_rollback_and_audit() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    std::fs::create_dir(folder.join("plugins")).unwrap();
    let short = |number: u32| digest_of(&probe_version(number)).short().to_owned();
    let ask = |words: &str| succeed(folder, &["--plugins", "plugins", "--json", "--", words]);
    assert!(fail(folder, &["plugin", "rollback", "probe"]).contains("has been used"));
    write_atomically(&folder.join("plugins/probe.wasm"), &probe_version(1));
    assert!(ask("hello").contains(&format!("probe@{}", short(1))));
    assert!(fail(folder, &["plugin", "rollback", "probe"]).contains("no earlier version"));
    write_atomically(&folder.join("plugins/probe.wasm"), &probe_version(2));
    assert!(ask("hello").contains(&format!("probe@{}", short(2))));

    let history = succeed(folder, &["plugin", "history", "probe"]);
    let lines: Vec<&str> = history.lines().collect();
    assert!(
        lines[0].contains(&short(2)) && lines[0].contains("in use") && lines[0].contains("probe.wasm"),
        "{history}"
    );
    assert!(lines[1].contains(&short(1)) && lines[1].contains("the file of the plugin changed"), "{history}");

    assert!(succeed(folder, &["plugin", "rollback", "probe"]).contains("until its file changes"));
    let json = ask("hello");
    assert!(json.contains(&format!("probe@{}", short(1))), "{json}");
    let history = succeed(folder, &["plugin", "history", "probe", "--json"]);
    assert!(history.lines().next().unwrap().contains("plugin store"), "{history}");
    assert!(history.contains(r#""why":"asked""#), "{history}");
    assert!(fail(folder, &["plugin", "rollback", "probe", "--to", &short(2)]).contains("--undo"));

    succeed(folder, &["plugin", "rollback", "probe", "--undo"]);
    assert!(ask("hello").contains(&format!("probe@{}", short(2))));
    assert!(fail(folder, &["plugin", "rollback", "probe", "--undo"]).contains("the version in its file is in use"));
    assert!(fail(folder, &["plugin", "rollback", "nobody"]).contains("plugin history"));
    assert!(succeed(folder, &["plugin", "prune"]).contains("0 components"));

    let log = succeed(folder, &["audit"]);
    assert!(log.contains("was rolled back") && log.contains("the user requested it"), "{log}");
    assert!(log.contains("is granted nothing"), "{log}");
    assert!(succeed(folder, &["audit", "--json", "--since", "1h"]).contains(r#""type":"rolled_back""#));
    assert!(succeed(folder, &["audit", "--since", "2999-01-01"]).contains("no entries for that time"));
}
