//! The files that scenarios write (S4): a failed run does not change golden transcripts but writes its reports. The
//! tests also cover the files that a scenario creates before it runs.

use super::{ScenarioFolder, plugins_line};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// S4: A golden transcript is not overwritten if its scenario fails, or if its path is a link to another file.
#[test]
fn does_not_overwrite_transcripts_of_failed_scenarios() {
    let good = plugins_line("text") + "golden = true\n[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"Ho.\" }]\n";
    let folder = ScenarioFolder::with(&[("one", &good)]);
    let golden = folder.path().join("one.golden");
    assert_eq!(folder.code_and_output(&["--update"]).0, Some(0));
    std::fs::set_permissions(&golden, std::fs::Permissions::from_mode(0o640)).unwrap();
    let before = std::fs::read_to_string(&golden).unwrap();
    let slow = good
        .replace("golden = true\n", "golden = true\ntime_limit_ms = 200\n")
        .replace("\"Ho.\"", "\"Ho.\", delay_ms = 60000");
    for failing in [&slow, &(good.replace("Ho.", "Other.") + "output = \"Ho.\"\n")] {
        folder.write("one.scenario.toml", failing);
        let (code, printed) = folder.code_and_output(&["--update"]);
        assert_eq!(code, Some(1), "{printed}");
        assert!(
            printed.contains("one.golden was not changed: a scenario that fails does not update its transcript"),
            "{printed}"
        );
        assert_eq!(std::fs::read_to_string(&golden).unwrap(), before);
    }
    folder.write("one.scenario.toml", &good.replace("Ho.", "Hey."));
    assert_eq!(folder.code_and_output(&["--update"]).0, Some(0));
    assert_eq!(std::fs::metadata(&golden).unwrap().permissions().mode() & 0o777, 0o640);
    let elsewhere = tempfile::tempdir().unwrap();
    let precious = elsewhere.path().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    std::fs::remove_file(&golden).unwrap();
    symlink(&precious, &golden).unwrap();
    let (code, printed) = folder.code_and_output(&["--update"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("one.golden is a link or not a regular file: remove it"), "{printed}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

/// S4: After a transcript was written, the next run produces the same text, whatever the transcript contains.
#[test]
fn transcripts_are_stable() {
    let scenario = plugins_line("text")
        + "golden = true\n[[turns]]\nsay = \"a\\r\\r\\nb\"\nreplies = [{ text = \"\\u001b[2Jgone\\u0000\" }]\n";
    let folder = ScenarioFolder::with(&[("odd", &scenario)]);
    assert_eq!(folder.code_and_output(&["--update"]).0, Some(0));
    let golden = std::fs::read_to_string(folder.path().join("odd.golden")).unwrap();
    assert!(golden.contains("user:\n  a\\u{d}\\u{d}\n  b\nmodel: \\u{1b}[2Jgone\\u{0}\n"), "{golden:?}");
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(0), "{printed}");
    folder.write("odd.golden", &golden.replace('\n', "\r\n"));
    assert_eq!(folder.code_and_output(&[]).0, Some(0), "line endings of another system are not part of the text");
}

/// S4: If a project cannot be built, the other scenarios still run, and the reports contain the failed build.
#[test]
fn reports_projects_that_cannot_be_built() {
    let good = plugins_line("text") + "[[calls]]\nname = \"text.count\"\narguments = { text = \"a\" }\n";
    let folder = ScenarioFolder::with(&[("good", &good)]);
    let broken = folder.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("plugin.toml"), "name = \n").unwrap();
    for name in ["a", "b"] {
        std::fs::write(broken.join(format!("{name}.scenario.toml")), "[[calls]]\nname = \"broken.x\"\n").unwrap();
    }
    let test = |arguments: &[&str]| {
        let mut command = crate::support::agent_host();
        command.current_dir(folder.path()).arg("test").args(arguments).arg("--data").arg(super::data());
        command.output().unwrap()
    };
    folder.write("report.xml", "<stale/>");
    let output = test(&["--junit", "report.xml"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("✓ good") && printed.contains("1 passed, 2 not run"), "{printed}");
    assert!(printed.contains("broken/b cannot run, for the same reason as a scenario above"), "{printed}");
    let report = || std::fs::read_to_string(folder.path().join("report.xml")).unwrap();
    assert!(
        report().contains("tests=\"3\" failures=\"0\" errors=\"2\"") && report().contains("plugin.toml"),
        "{}",
        report()
    );
    // If a run cannot start, it still writes a report, which replaces the report of the previous run.
    let output = test(&["nowhere", "--json", "--junit", "report.xml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(report().contains("there is no file or folder `nowhere`") && !report().contains("good"), "{}", report());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["not_played"], 1, "{document}");
}

/// S4: A scenario can create only regular files and folders. Any other kind of file is refused, even inside a folder,
/// and the error contains the line of the scenario.
#[test]
fn sets_up_only_files_and_folders() {
    let scenario_with_copy_of = |from: &str| {
        plugins_line("text")
            + &format!(
                "files = {{ \"a\" = {{ copy = \"{from}\" }} }}\n[[turns]]\nsay = \"Hi.\"\nreplies = [{{ text = \"a\" }}]\n"
            )
    };
    let folder = ScenarioFolder::with(&[
        ("pipe", &scenario_with_copy_of("pipe")),
        ("endless", &scenario_with_copy_of("/dev/zero")),
        ("deep", &scenario_with_copy_of("deep")),
        (
            "answer",
            &(plugins_line("text")
                + "[[http]]\nrequest = \"GET https://a.example.com/\"\nfile = \"pipe\"\n[[turns]]\nsay = \"Hi.\"\nreplies = [{ text = \"a\" }]\n"),
        ),
    ]);
    std::fs::create_dir(folder.path().join("deep")).unwrap();
    for pipe in ["pipe", "deep/pipe"] {
        assert!(Command::new("mkfifo").arg(folder.path().join(pipe)).status().unwrap().success());
    }
    let (code, printed) = folder.code_and_output(&[]);
    assert_eq!(code, Some(2), "{printed}");
    for line in [
        "pipe.scenario.toml:2:17: files.\"a\": `./pipe` cannot be copied: the path is neither a file nor a folder",
        "`/dev/zero` cannot be copied: the path is neither a file nor a folder",
        "deep.scenario.toml:2: files.\"a\" cannot be created in the scenario's folder: `./deep/pipe` is not a regular file",
        "`./pipe` is not a regular file",
    ] {
        assert!(printed.contains(line), "`{line}` is missing in: {printed}");
    }
}
