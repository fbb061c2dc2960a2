//! What scenarios write (S4): transcripts that stay good, reports that are there also when something is wrong; and the
//! files that are laid for them.

use super::{Folder, of};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// S4: a good transcript is not lost to a scenario that fails, or to a file that it only leads to.
#[test]
fn good_transcripts_stay() {
    let good = of("text") + "golden = true\n[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"Ho.\" }]\n";
    let folder = Folder::with(&[("one", &good)]);
    let golden = folder.path().join("one.golden");
    assert_eq!(folder.shown(&["--update"]).0, Some(0));
    std::fs::set_permissions(&golden, std::fs::Permissions::from_mode(0o640)).unwrap();
    let before = std::fs::read_to_string(&golden).unwrap();
    let slow = good
        .replace("golden = true\n", "golden = true\ntime_limit_ms = 200\n")
        .replace("\"Ho.\"", "\"Ho.\", delay_ms = 60000");
    for failing in [&slow, &(good.replace("Ho.", "Other.") + "output = \"Ho.\"\n")] {
        folder.write("one.scenario.toml", failing);
        let (code, printed) = folder.shown(&["--update"]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(
            printed.contains("one.golden is left as it is: a scenario that fails writes no transcript"),
            "{printed}"
        );
        assert_eq!(std::fs::read_to_string(&golden).unwrap(), before);
    }
    folder.write("one.scenario.toml", &good.replace("Ho.", "Hey."));
    assert_eq!(folder.shown(&["--update"]).0, Some(0));
    assert_eq!(std::fs::metadata(&golden).unwrap().permissions().mode() & 0o777, 0o640);
    let elsewhere = tempfile::tempdir().unwrap();
    let precious = elsewhere.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    std::fs::remove_file(&golden).unwrap();
    symlink(&precious, &golden).unwrap();
    let (code, printed) = folder.shown(&["--update"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("one.golden is a link, or no file: remove it"), "{printed}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// S4: a transcript is one text, whatever stands in it: once written, it is the same in the next run.
#[test]
fn transcripts_settle() {
    let scenario = of("text")
        + "golden = true\n[[turns]]\nsay = \"a\\r\\r\\nb\"\nreplies = [{ text = \"\\u001b[2Jgone\\u0000\" }]\n";
    let folder = Folder::with(&[("odd", &scenario)]);
    assert_eq!(folder.shown(&["--update"]).0, Some(0));
    let golden = std::fs::read_to_string(folder.path().join("odd.golden")).unwrap();
    assert!(golden.contains("user:\n  a\\u{d}\\u{d}\n  b\nmodel: \\u{1b}[2Jgone\\u{0}\n"), "{golden:?}");
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(0), "{printed}");
    folder.write("odd.golden", &golden.replace('\n', "\r\n"));
    assert_eq!(folder.shown(&[]).0, Some(0), "line ends of another system are none of its words");
}

/// S4: what cannot be built keeps nobody else from being played, and stands in the reports.
#[test]
fn what_cannot_be_built_is_reported() {
    let good = of("text") + "[[calls]]\nname = \"text.count\"\narguments = { text = \"a\" }\n";
    let folder = Folder::with(&[("good", &good)]);
    let broken = folder.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("plugin.toml"), "name = \n").unwrap();
    for name in ["a", "b"] {
        std::fs::write(broken.join(format!("{name}.scenario.toml")), "[[calls]]\nname = \"broken.x\"\n").unwrap();
    }
    let test = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(folder.path()).arg("test").args(arguments).arg("--data").arg(super::data());
        command.output().unwrap()
    };
    folder.write("report.xml", "<stale/>");
    let output = test(&["--junit", "report.xml"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("✓ good") && printed.contains("1 passed, 2 not played"), "{printed}");
    assert!(printed.contains("broken/b cannot be played, for the same reason as one above"), "{printed}");
    let report = || std::fs::read_to_string(folder.path().join("report.xml")).unwrap();
    assert!(
        report().contains("tests=\"3\" failures=\"0\" errors=\"2\"") && report().contains("plugin.toml"),
        "{}",
        report()
    );
    // A run that does not begin leaves no report of the one before.
    let output = test(&["nowhere", "--json", "--junit", "report.xml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(report().contains("there is no file or folder `nowhere`") && !report().contains("good"), "{}", report());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["not_played"], 1, "{document}");
}

/// S4: only files and folders are laid; what never ends is refused with its line, also deep in a folder.
#[test]
fn only_files_are_laid() {
    let laid = |from: &str| {
        of("text")
            + &format!(
                "files = {{ \"a\" = {{ copy = \"{from}\" }} }}\n[[turns]]\nsay = \"Hi.\"\nreplies = [{{ text = \"a\" }}]\n"
            )
    };
    let folder = Folder::with(&[
        ("pipe", &laid("pipe")),
        ("endless", &laid("/dev/zero")),
        ("deep", &laid("deep")),
        (
            "answer",
            &(of("text")
                + "[[http]]\nrequest = \"GET https://a.example.com/\"\nfile = \"pipe\"\n[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"a\" }]\n"),
        ),
    ]);
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    for pipe in ["pipe", "deep/pipe"] {
        assert!(Command::new("mkfifo").arg(folder.path().join(pipe)).status().unwrap().success());
    }
    let (code, printed) = folder.shown(&[]);
    assert_eq!(code, Some(2), "{printed}");
    for line in [
        "pipe.scenario.toml:2:17: files.\"a\": `./pipe` cannot be copied: it is neither a file nor a folder",
        "`/dev/zero` cannot be copied: it is neither a file nor a folder",
        "deep.scenario.toml:2: files.\"a\" cannot be laid into the scenario's folder: `./deep/pipe` is no regular file",
        "`./pipe` is no regular file",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
}
