//! Rows 18 and 23: Plugin folders, lock files and registries that an attacker controls.

use super::by_policy::with_agent;
use super::{TestCli, component, in_plugins};
use agent_plugins::Asks;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

impl TestCli {
    /// Runs a command that must not hang. If the command does not end in time, kills it and panics.
    fn run_to_end(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        // The variable makes the command print escape codes, as it does on a terminal.
        command.env("CLICOLOR_FORCE", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if started.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
                panic!("{arguments:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.wait_with_output().unwrap()
    }

    fn all_output(&self, arguments: &[&str]) -> String {
        let output = self.run_to_end(arguments);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

/// Row 18: If the current folder contains a file whose name equals a registry reference, `plugin add` uses the registry
/// and not the file, because the signature of a file would not be checked.
#[test]
fn row_18_does_not_use_a_file_in_place_of_a_reference() {
    let cli = TestCli::new();
    let team = cli.key("team");
    cli.agent("required", &team);
    let reference = cli.reference("team/tides:latest");
    let signed = cli.push("tides", "1.0.0", &["--sign", "team.key"]);
    cli.succeed(&with_agent(&["plugin", "add", &reference]));
    let folder = cli.path(&cli.reference("team"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tides:latest"), component("tides", "6.6.6", Asks::default())).unwrap();
    assert!(cli.succeed(&with_agent(&["plugin", "update"])).contains("all plugins are up to date"));
    cli.succeed(&with_agent(&["plugin", "add", &reference]));
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), signed);
    // A registry reference that ends with `.wasm` is not treated as a file name. The signature of the plugin is checked
    // at each load.
    let reference = cli.reference("others/tides.wasm");
    cli.succeed(&["plugin", "push", &format!("oci://{reference}:1.0.0"), "pushed.wasm"]);
    cli.agent("warn", &team);
    let add = ["plugin", "add", &format!("oci://{reference}"), "--replace"];
    cli.succeed(&with_agent(&add));
    cli.agent("required", &team);
    cli.fails(2, &with_agent(&["plugin", "list"]), &["it is not signed"]);
}

/// Row 18: The host does not wait for special files, and a file name cannot send control codes to the terminal.
#[cfg(unix)]
#[test]
fn row_18_special_files_and_file_names_are_handled_safely() {
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/tides")]));
    std::fs::write(cli.path("plugins/\u{1b}[2J\u{202e}x.wasm"), b"nothing").unwrap();
    for command in [&["plugin", "verify"][..], &["plugin", "update"], &["plugin", "add"]] {
        let output = cli.all_output(&in_plugins(command));
        assert!(!output.contains("\u{1b}[2J") && !output.contains('\u{202e}'), "{command:?}: {output:?}");
    }
    let listed = cli.all_output(&["plugin", "list", "plugins"]);
    assert!(!listed.contains("\u{1b}[2J") && !listed.contains('\u{202e}'), "{listed:?}");
    std::fs::remove_file(cli.path("plugins/\u{1b}[2J\u{202e}x.wasm")).unwrap();

    let pipe = |name: &str| {
        std::fs::remove_file(cli.path(name)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(cli.path(name)).status().unwrap().success());
    };
    pipe("plugins/tides.wasm");
    for command in [&["plugin", "verify"][..], &["plugin", "add"], &["plugin", "remove", "tides"]] {
        let output = cli.all_output(&in_plugins(command));
        assert!(output.contains("not a regular file"), "{command:?}: {output}");
    }
    pipe("plugins/plugins.lock");
    for command in [in_plugins(&["plugin", "verify"]), vec!["plugin", "list", "plugins"]] {
        let output = cli.all_output(&command);
        assert!(command[1] == "list" || output.contains("not a regular file"), "{command:?}: {output}");
    }
    assert!(cli.all_output(&in_plugins(&["plugin", "add", "./plugins/tides.wasm"])).contains("not a regular file"));
}

/// Row 18: If another file in the plugin folder already contains a plugin with the same name, `plugin add` refuses the
/// new plugin.
#[test]
fn row_18_a_plugin_name_stays_with_its_file() {
    let cli = TestCli::new();
    std::fs::write(cli.path("plugins/zzz.wasm"), component("tides", "0.1.0", Asks::default())).unwrap();
    cli.push("tides", "1.0.0", &[]);
    let reference = cli.reference("team/tides");
    for extra_arguments in [&[][..], &["--replace"]] {
        let add = [&["plugin", "add", &reference], extra_arguments].concat();
        cli.fails(2, &in_plugins(&add), &["zzz.wasm", "already contains the plugin `tides`"]);
    }
    assert!(!cli.path("plugins/tides.wasm").exists() && cli.lock().is_empty());
}

/// P11: A request to a busy registry is retried, and the retries are reported.
#[test]
fn p11_retries_a_busy_registry_and_reports_it() {
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    cli.registry.set(|faults| faults.refuse = vec![(503, ""), (429, "1")]);
    let output_text = cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]));
    for output in
        ["the server answered 503 Service Unavailable; retrying in 0.3 s (2 of 4)", "429", "in 1.0 s (3 of 4)"]
    {
        assert!(output_text.contains(output), "no `{output}` in: {output_text}");
    }
}

/// O3, row 23: if a server sends data that does not have the expected digest, nothing is installed, and the audit log
/// contains the refusal, for each command that downloads.
#[test]
fn o3_row_23_refused_downloads_are_audited() {
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    let reference = cli.reference("team/tides:latest");
    cli.registry.set(|faults| faults.flip_blobs_over = Some(1_000));
    cli.fails(1, &in_plugins(&["plugin", "add", &reference]), &["was changed in transit"]);
    assert!(!cli.path("plugins/tides.wasm").exists());
    let refusals = || cli.succeed(&["audit"]).matches("the received data has the digest").count();
    assert_eq!(refusals(), 1);
    cli.registry.set(|faults| faults.flip_blobs_over = None);
    cli.succeed(&in_plugins(&["plugin", "add", &reference]));
    let installed = std::fs::read(cli.path("plugins/tides.wasm")).unwrap();
    cli.push("tides", "1.1.0", &[]);
    cli.registry.set(|faults| faults.flip_blobs_over = Some(1_000));
    cli.fails(1, &in_plugins(&["plugin", "update"]), &["was changed in transit"]);
    assert_eq!(refusals(), 2);
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), installed);
}
