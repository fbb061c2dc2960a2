//! Row 56: sessions belong to their users, and the data folder to its owner.

use crate::by_hand::Desk;
use crate::support::saying;
use serde_json::Value;

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

/// Row 56: no command opens, shows, finds or changes another user's session.
#[test]
fn row_56_another_users_session_is_refused() {
    let desk = Desk::new("", &[saying("The walrus."), saying("The seal."), saying("Mine.")]);
    let (code, _, said) = desk.run(&[&AGENT[..], &["--user", "ada", "Who swims?"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let (_, listed, _) = desk.run(&["session", "list", "--json", "--user", "ada"]);
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
            let (code, printed, said) = desk.run(&[command, user].concat());
            assert_eq!((code, printed.as_str()), (Some(2), ""), "{command:?} {user:?}: {said}");
            assert!(said.contains("belongs to the user `ada`"), "{command:?} {user:?}: {said}");
        }
        for goes_on in [&["--session", session][..], &["--continue"]] {
            let (code, printed, said) = desk.run(&[&AGENT[..], goes_on, user, &["And now?"]].concat());
            assert_eq!((code, printed.as_str()), (Some(2), ""), "{goes_on:?} {user:?}: {said}");
        }
        let (_, found, _) = desk.run(&[&["session", "search", "walrus"], user].concat());
        let (_, listed, _) = desk.run(&[&["session", "list"], user].concat());
        let (_, replayed, said) = desk.run(&[&["replay", session], user].concat());
        assert!(said.contains("belongs to the user `ada`"), "{said}");
        assert_eq!((found.as_str(), listed.as_str(), replayed.as_str()), ("", "", ""), "{user:?}");
    }
    let (_, found, _) = desk.run(&["session", "search", "walrus", "--user", "ada"]);
    assert!(found.contains(session), "{found}");
    let (code, _, said) = desk.run(&[&AGENT[..], &["--user", "ada", "--session", session, "Again?"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = desk.run(&["session", "delete", session, "--yes", "--user", "ada"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Row 56: the data folder is its owner's alone: made so, and refused where it is not.
#[cfg(unix)]
#[test]
fn row_56_an_open_data_folder_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let desk = Desk::new("", &[saying("The walrus."), saying("The seal.")]);
    let asks = || desk.run(&[&AGENT[..], &["Who swims?"]].concat());
    assert_eq!(asks().0, Some(0));
    let data = desk.path("my data");
    let mode = |mode: u32| std::fs::set_permissions(&data, PermissionsExt::from_mode(mode)).unwrap();
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    for open in [0o755, 0o750, 0o707] {
        mode(open);
        let (code, _, said) = asks();
        assert!(code == Some(2) && said.contains("chmod 700"), "{open:o}: {said}");
    }
    mode(0o700);
    for name in ["agent-host.db-wal", "history", "downloads"] {
        let (link, elsewhere) = (data.join(name), desk.path("elsewhere"));
        let _ = std::fs::remove_file(&link);
        symlink(&elsewhere, &link).unwrap();
        let (code, _, said) = desk.run(&["session", "list"]);
        assert!(code == Some(2) && said.contains(name) && said.contains("symbolic link"), "{name}: {said}");
        assert!(!elsewhere.exists());
        std::fs::remove_file(&link).unwrap();
    }
    // What is missing above it is made for its owner only, too.
    let deep = desk.path("a/b/c");
    let (code, _, said) = desk.run_in(&deep, &["session", "list"]);
    assert_eq!(code, Some(0), "{said}");
    for folder in [desk.path("a"), desk.path("a/b"), deep] {
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
    }
}
