//! Row 45: With `signatures = "required"`, no unsigned plugin is used, even if the lock file is changed or deleted. Row
//! 47: If a plugin file or the lock file is replaced by a special file, the host refuses the special file.

use super::by_policy::with_agent;
use super::while_running::scan_until;
use super::{TestCli, component};
use agent_plugins::{Asks, PluginDirectory, Sandbox, SandboxOptions, digest_of};
use agent_registry::{LockFileVerifier, SignaturePolicy, Trust};
use std::sync::Arc;

const UNSIGNED: [&str; 2] = ["it is not signed", "signatures = \"required\""];

impl TestCli {
    /// Writes an agent file that requires signatures. `lines` are added below `[sharing]`.
    fn write_requiring_agent(&self, lines: &str) {
        let text = format!("plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"required\"\n{lines}\n");
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// Writes a component with this plugin name to the file with this name in the plugin folder.
    fn put_local_build(&self, file: &str, name: &str) -> Vec<u8> {
        let bytes = component(name, "0.1.0", Asks::default());
        std::fs::write(self.path(&format!("plugins/{file}.wasm")), &bytes).unwrap();
        bytes
    }
}

/// Row 45: A local build is used only if the agent's own file allows it, either by the name of the build's file or by
/// the digest of its bytes.
#[test]
fn row_45_local_builds_must_be_allowed_by_the_agent() {
    let cli = TestCli::new();
    let bytes = cli.put_local_build("mine", "mine");
    let list = with_agent(&["plugin", "list"]);
    cli.write_requiring_agent("");
    cli.fails(2, &list, &UNSIGNED);
    cli.fails(2, &with_agent(&["hello"]), &UNSIGNED);
    cli.fails(1, &with_agent(&["plugin", "verify"]), &UNSIGNED);
    cli.fails(1, &with_agent(&["plugin", "add", "./plugins/mine.wasm", "--replace"]), &UNSIGNED);
    cli.write_requiring_agent("unsigned = [\"mine\"]");
    assert!(cli.succeed(&list).contains("mine"));
    // The host refuses another file that contains a plugin of the same name, even if its file name comes first in
    // alphabetical order.
    cli.put_local_build("a", "mine");
    cli.fails(2, &list, &["a.wasm: ", UNSIGNED[0]]);
    std::fs::remove_file(cli.path("plugins/a.wasm")).unwrap();
    cli.write_requiring_agent(&format!("unsigned = [\"{}\"]", digest_of(&bytes)));
    cli.succeed(&list);
    std::fs::write(cli.path("plugins/mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    cli.fails(2, &list, &UNSIGNED);
}

/// Row 45: An entry in the lock file for one plugin name does not allow a component with another plugin name.
#[test]
fn row_45_a_lock_entry_allows_only_the_plugin_that_it_names() {
    let cli = TestCli::new();
    let bytes = cli.put_local_build("mine", "files");
    cli.write_requiring_agent("unsigned = [\"mine\"]");
    let list = with_agent(&["plugin", "list"]);
    cli.fails(2, &list, &UNSIGNED);
    let file = cli.path("plugins/mine.wasm");
    let entry = format!(
        "format = 1\n[[plugin]]\nname = \"mine\"\nversion = \"0.1.0\"\nreference = \"{}\"\ncomponent = \"{}\"\n",
        file.display(),
        digest_of(&bytes)
    );
    std::fs::write(cli.path("plugins/plugins.lock"), entry).unwrap();
    cli.fails(2, &list, &["it contains the plugin `files`", "as `mine`"]);
}

/// Row 45: An agent that requires signatures requires them even if another agent delegates to it.
#[test]
fn row_45_a_delegate_requires_its_own_signatures() {
    let cli = TestCli::new();
    cli.put_local_build("mine", "mine");
    cli.write_requiring_agent("");
    std::fs::rename(cli.path("agent.toml"), cli.path("reader.toml")).unwrap();
    let lead = "name = \"lead\"\n[agents.reader]\nagent = \"reader.toml\"\ndescription = \"Reads.\"\n";
    std::fs::write(cli.path("agent.toml"), lead).unwrap();
    cli.fails(2, &with_agent(&["hello"]), &UNSIGNED);
    cli.write_requiring_agent("unsigned = [\"mine\"]");
    std::fs::rename(cli.path("agent.toml"), cli.path("reader.toml")).unwrap();
    std::fs::write(cli.path("agent.toml"), lead).unwrap();
    cli.succeed(&with_agent(&["hello"]));
}

/// Row 45: The host uses a local build that is signed with a key trusted for local builds. The host refuses a local
/// build that is signed with any other key, or that was changed after it was signed.
#[test]
fn row_45_local_builds_can_be_signed() {
    let cli = TestCli::new();
    let (mine, other) = (cli.key("mine"), cli.key("other"));
    cli.put_local_build("mine", "mine");
    let list = with_agent(&["plugin", "list"]);
    let trusting = |namespace: &str, key: &str| {
        cli.write_requiring_agent(&format!("[sharing.trusted_keys]\n\"{namespace}\" = \"{key}\""))
    };
    trusting("local", &mine);
    cli.fails(2, &list, &UNSIGNED);
    cli.succeed(&["plugin", "sign", "plugins/mine.wasm", "--key", "mine.key"]);
    assert!(cli.succeed(&list).contains("mine"));
    assert!(cli.succeed(&with_agent(&["plugin", "verify"])).contains("mine.wasm"));
    trusting("local", &other);
    cli.fails(2, &list, &["not trusted for local"]);
    trusting("registry.example", &mine);
    cli.fails(2, &list, &["no key is trusted for local"]);
    trusting("local", &mine);
    let plugins = cli.path("plugins");
    std::fs::copy(plugins.join("mine.wasm"), plugins.join("renamed.wasm")).unwrap();
    cli.fails(2, &list, &["renamed.wasm: ", UNSIGNED[0]]);
    std::fs::remove_file(plugins.join("renamed.wasm")).unwrap();
    std::fs::write(plugins.join("mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    cli.fails(2, &list, &["does not match the component"]);
    cli.succeed(&["plugin", "sign", "plugins/mine.wasm", "--key", "mine.key"]);
    cli.succeed(&list);
}

/// Row 45: If the lock file is deleted, emptied, or edited so that a plugin from the registry looks like a local build,
/// no unsigned plugin is used.
#[test]
fn row_45_an_edited_lock_does_not_allow_unsigned_plugins() {
    let cli = TestCli::new();
    let team = cli.key("team");
    cli.agent("required", &team);
    cli.push("tides", "1.0.0", &["--sign", "team.key"]);
    cli.succeed(&with_agent(&["plugin", "add", &cli.reference("team/tides:latest")]));
    let list = with_agent(&["plugin", "list"]);
    cli.succeed(&list);
    let (lock, file) = (cli.path("plugins/plugins.lock"), cli.path("plugins/tides.wasm"));
    let signed = cli.lock();
    let evil = component("tides", "1.0.0", Asks { files: None, ..Asks::default() });
    let evil = [evil.as_slice(), &[0, 2, 1, b'x']].concat();
    std::fs::write(&file, &evil).unwrap();
    cli.fails(2, &list, &["it is not the locked file"]);
    let component_line = |digest: &str| {
        let lines = signed.lines().map(|line| match line.starts_with("component = ") {
            true => format!("component = \"{digest}\""),
            false => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let to_evil = component_line(digest_of(&evil).as_str());
    let entry = format!(
        "format = 1\n[[plugin]]\nname = \"tides\"\nversion = \"1.0.0\"\nreference = \"{}\"\ncomponent = \"{}\"\n",
        file.display(),
        digest_of(&evil)
    );
    for edited in [to_evil.as_str(), entry.as_str(), "format = 1\n"] {
        std::fs::write(&lock, edited).unwrap();
        cli.fails(2, &list, &["tides.wasm: "]);
    }
    std::fs::remove_file(&lock).unwrap();
    cli.fails(2, &list, &UNSIGNED);
    // The host does not treat a lock file that is a dangling link as missing.
    std::os::unix::fs::symlink("gone.lock", &lock).unwrap();
    cli.fails(2, &list, &["plugins.lock", "a link to a file that does not exist"]);
    cli.agent("warn", &team);
    cli.fails(2, &list, &["plugins.lock", "a link to a file that does not exist"]);
}

/// P15, row 45: If bytes were appended to a plugin file that has an entry in the lock file, the file is refused. The
/// error says that the file is not the file that the lock entry names.
#[test]
fn row_45_a_locked_file_with_appended_bytes_is_refused() {
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    cli.succeed(&super::in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]));
    let file = cli.path("plugins/tides.wasm");
    let original_bytes = std::fs::read(&file).unwrap();
    for tail in [&b"more"[..], &[0; 64], &[0xff; 64]] {
        std::fs::write(&file, [original_bytes.as_slice(), tail].concat()).unwrap();
        cli.fails(2, &["plugin", "list", "plugins"], &["it is not the locked file"]);
        // If the file has another file name, it is refused as well, because the manifest in the file contains the
        // plugin's name.
        std::fs::rename(&file, cli.path("plugins/other.wasm")).unwrap();
        cli.fails(2, &["plugin", "list", "plugins"], &["other.wasm: ", "it is not the locked file"]);
        std::fs::remove_file(cli.path("plugins/other.wasm")).unwrap();
    }
    std::fs::write(&file, &original_bytes).unwrap();
    cli.succeed(&["plugin", "list", "plugins"]);
}

/// Row 47: If a plugin file or the lock file is replaced by a pipe, a device or an endless file, it is refused
/// immediately, and the watcher continues.
#[tokio::test(flavor = "multi_thread")]
async fn row_47_refuses_special_files_and_the_watcher_continues() {
    let cli = TestCli::new();
    let plugins = cli.path("plugins");
    let options = SandboxOptions {
        verifier: Some(Arc::new(LockFileVerifier {
            trust: Trust { policy: SignaturePolicy::Warn, ..Trust::default() },
        })),
        ..SandboxOptions::default()
    };
    let mut directory = PluginDirectory::new(Sandbox::new(options).unwrap(), plugins.clone());
    let fifo = |path: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    fifo(&plugins.join("pipe.wasm"));
    std::os::unix::fs::symlink("/dev/zero", plugins.join("zero.wasm")).unwrap();
    std::os::unix::fs::symlink("/proc/kmsg", plugins.join("kernel.wasm")).unwrap();
    cli.put_local_build("mine", "mine");
    let output_text = scan_until(&mut directory, |seen| seen.plugins.len() == 1).await.concat();
    assert!(output_text.matches("not a regular file").count() >= 2, "{output_text}");
    // While the lock file is a pipe, the watcher loads no new plugin. When the pipe has been removed, the watcher loads
    // the new plugin.
    fifo(&plugins.join("plugins.lock"));
    std::fs::write(plugins.join("mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    let output_text = scan_until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(output_text.contains("plugins.lock") && output_text.contains("not a regular file"), "{output_text}");
    std::fs::remove_file(plugins.join("plugins.lock")).unwrap();
    scan_until(&mut directory, |seen| seen.plugins.len() == 1).await;
}
