//! Row 56: A session can be used only by its user, and the data folder only by its owner.

use crate::session_cli::TestCli;
use crate::support::text_reply;
use serde_json::Value;

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

/// Row 56: No command opens, shows, finds or changes another user's session.
#[test]
fn row_56_refuses_the_session_of_another_user() {
    let cli = TestCli::new("", &[text_reply("The walrus."), text_reply("The seal."), text_reply("Mine.")]);
    let (code, _, stderr) = cli.run(&[&AGENT[..], &["--user", "ada", "Who swims?"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let (_, listed, _) = cli.run(&["session", "list", "--json", "--user", "ada"]);
    let listed: Value = serde_json::from_str(listed.trim()).unwrap();
    let session = listed["subject"].as_str().unwrap();

    let commands: [&[&str]; 12] = [
        &["session", "show", session],
        &["session", "show", session, "--json"],
        &["session", "export", session],
        &["session", "fork", session],
        &["session", "undo", session],
        &["session", "cancel", session],
        &["session", "answer", session, "yes"],
        &["session", "delete", session, "--yes"],
        &["session", "list", "--children-of", session],
        &["session", "approve", session, "--agent", "agent.toml"],
        &["session", "resume", session, "--agent", "agent.toml"],
        &["outbox", "list", "--session", session],
    ];
    for user in [&[][..], &["--user", "eve"]] {
        for command in commands {
            let (code, printed, stderr) = cli.run(&[command, user].concat());
            assert_eq!((code, printed.as_str()), (Some(2), ""), "{command:?} {user:?}: {stderr}");
            assert!(stderr.contains("belongs to the user `ada`"), "{command:?} {user:?}: {stderr}");
        }
        for continuing in [&["--session", session][..], &["--continue"]] {
            let (code, printed, stderr) = cli.run(&[&AGENT[..], continuing, user, &["And now?"]].concat());
            assert_eq!((code, printed.as_str()), (Some(2), ""), "{continuing:?} {user:?}: {stderr}");
        }
        let (_, found, _) = cli.run(&[&["session", "search", "walrus"], user].concat());
        let (_, listed, _) = cli.run(&[&["session", "list"], user].concat());
        let (_, replayed, stderr) = cli.run(&[&["replay", session], user].concat());
        assert!(stderr.contains("belongs to the user `ada`"), "{stderr}");
        assert_eq!((found.as_str(), listed.as_str(), replayed.as_str()), ("", "", ""), "{user:?}");
    }
    let (_, found, _) = cli.run(&["session", "search", "walrus", "--user", "ada"]);
    assert!(found.contains(session), "{found}");
    let (code, _, stderr) = cli.run(&[&AGENT[..], &["--user", "ada", "--session", session, "Again?"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let (code, _, stderr) = cli.run(&["session", "delete", session, "--yes", "--user", "ada"]);
    assert_eq!(code, Some(0), "{stderr}");
}

/// Row 56: The host creates the data folder with access for its owner only, and refuses a data folder that others can
/// access.
#[cfg(unix)]
#[test]
fn row_56_refuses_a_data_folder_that_others_can_access() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let cli = TestCli::new("", &[text_reply("The walrus."), text_reply("The seal.")]);
    let ask = || cli.run(&[&AGENT[..], &["Who swims?"]].concat());
    assert_eq!(ask().0, Some(0));
    let data = cli.path("my data");
    let mode = |mode: u32| std::fs::set_permissions(&data, PermissionsExt::from_mode(mode)).unwrap();
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    for open in [0o755, 0o750, 0o707] {
        mode(open);
        let (code, _, stderr) = ask();
        assert!(code == Some(2) && stderr.contains("chmod 700"), "{open:o}: {stderr}");
    }
    mode(0o700);
    for name in ["agent-host.db-wal", "history", "downloads"] {
        let (link, elsewhere) = (data.join(name), cli.path("elsewhere"));
        let _ = std::fs::remove_file(&link);
        symlink(&elsewhere, &link).unwrap();
        let (code, _, stderr) = cli.run(&["session", "list"]);
        assert!(code == Some(2) && stderr.contains(name) && stderr.contains("symbolic link"), "{name}: {stderr}");
        assert!(!elsewhere.exists());
        std::fs::remove_file(&link).unwrap();
    }
    // If the host creates parent folders of the data folder, only the owner can access them.
    let deep = cli.path("a/b/c");
    let (code, _, stderr) = cli.run_in(&deep, &["session", "list"]);
    assert_eq!(code, Some(0), "{stderr}");
    for folder in [cli.path("a"), cli.path("a/b"), deep] {
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
    }
}
