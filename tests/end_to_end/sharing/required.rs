//! Row 45: with `signatures = "required"` nothing unsigned serves, whatever became of the lock; and row 47, for plugins and the
//! lock.

use super::by_policy::of_agent;
use super::while_running::until;
use super::{Desk, component};
use agent_plugins::{Asks, PluginDirectory, Sandbox, SandboxOptions, digest_of};
use agent_registry::{Locked, SignaturePolicy, Trust};
use std::sync::Arc;

const UNSIGNED: [&str; 2] = ["it is not signed", "signatures = \"required\""];

impl Desk {
    /// An agent that requires signatures, with these lines below [sharing].
    fn requiring(&self, lines: &str) {
        let text = format!("plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"required\"\n{lines}\n");
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// Puts a component of this name into the folder, under a file of that name.
    fn built(&self, file: &str, name: &str) -> Vec<u8> {
        let bytes = component(name, "0.1.0", Asks::default());
        std::fs::write(self.path(&format!("plugins/{file}.wasm")), &bytes).unwrap();
        bytes
    }
}

/// Row 45: what was built here does not serve by being there, and does by the word of the agent's own file: a name for the file
/// of that name, a digest for exactly these bytes.
#[test]
fn row_45_local_builds_need_a_word() {
    let desk = Desk::new();
    let bytes = desk.built("mine", "mine");
    let list = of_agent(&["plugin", "list"]);
    desk.requiring("");
    desk.fails(2, &list, &UNSIGNED);
    desk.fails(2, &of_agent(&["hello"]), &UNSIGNED);
    desk.fails(1, &of_agent(&["plugin", "verify"]), &UNSIGNED);
    desk.fails(1, &of_agent(&["plugin", "add", "./plugins/mine.wasm", "--replace"]), &UNSIGNED);
    desk.requiring("unsigned = [\"mine\"]");
    assert!(desk.done(&list).contains("mine"));
    // Another file does not take the name, even one that would be read first.
    desk.built("a", "mine");
    desk.fails(2, &list, &["a.wasm: ", UNSIGNED[0]]);
    std::fs::remove_file(desk.path("plugins/a.wasm")).unwrap();
    desk.requiring(&format!("unsigned = [\"{}\"]", digest_of(&bytes)));
    desk.done(&list);
    std::fs::write(desk.path("plugins/mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    desk.fails(2, &list, &UNSIGNED);
}

/// Row 45: an entry of the lock for one name lets no component with another name serve.
#[test]
fn row_45_a_lock_entry_is_for_its_own_name() {
    let desk = Desk::new();
    let bytes = desk.built("mine", "files");
    desk.requiring("unsigned = [\"mine\"]");
    let list = of_agent(&["plugin", "list"]);
    desk.fails(2, &list, &UNSIGNED);
    let file = desk.path("plugins/mine.wasm");
    let entry = format!(
        "format = 1\n[[plugin]]\nname = \"mine\"\nversion = \"0.1.0\"\nreference = \"{}\"\ncomponent = \"{}\"\n",
        file.display(),
        digest_of(&bytes)
    );
    std::fs::write(desk.path("plugins/plugins.lock"), entry).unwrap();
    desk.fails(2, &list, &["it is the plugin `files`", "as `mine`"]);
}

/// Row 45: an agent that requires signatures requires them when it works for another one, too.
#[test]
fn row_45_a_delegate_requires_its_own_signatures() {
    let desk = Desk::new();
    desk.built("mine", "mine");
    desk.requiring("");
    std::fs::rename(desk.path("agent.toml"), desk.path("reader.toml")).unwrap();
    let lead = "name = \"lead\"\n[agents.reader]\nagent = \"reader.toml\"\ndescription = \"Reads.\"\n";
    std::fs::write(desk.path("agent.toml"), lead).unwrap();
    desk.fails(2, &of_agent(&["hello"]), &UNSIGNED);
    desk.requiring("unsigned = [\"mine\"]");
    std::fs::rename(desk.path("agent.toml"), desk.path("reader.toml")).unwrap();
    std::fs::write(desk.path("agent.toml"), lead).unwrap();
    desk.done(&of_agent(&["hello"]));
}

/// Row 45: what was built here serves with a signature of a key that is trusted for local builds, and of no other; a changed
/// file needs a new one.
#[test]
fn row_45_local_builds_are_signed() {
    let desk = Desk::new();
    let (mine, other) = (desk.key("mine"), desk.key("other"));
    desk.built("mine", "mine");
    let list = of_agent(&["plugin", "list"]);
    let trusting = |space: &str, key: &str| desk.requiring(&format!("[sharing.trusted_keys]\n\"{space}\" = \"{key}\""));
    trusting("local", &mine);
    desk.fails(2, &list, &UNSIGNED);
    desk.done(&["plugin", "sign", "plugins/mine.wasm", "--key", "mine.key"]);
    assert!(desk.done(&list).contains("mine"));
    assert!(desk.done(&of_agent(&["plugin", "verify"])).contains("mine.wasm"));
    trusting("local", &other);
    desk.fails(2, &list, &["not trusted for local"]);
    trusting("registry.example", &mine);
    desk.fails(2, &list, &["no key is trusted for local"]);
    trusting("local", &mine);
    let plugins = desk.path("plugins");
    std::fs::copy(plugins.join("mine.wasm"), plugins.join("renamed.wasm")).unwrap();
    desk.fails(2, &list, &["renamed.wasm: ", UNSIGNED[0]]);
    std::fs::remove_file(plugins.join("renamed.wasm")).unwrap();
    std::fs::write(plugins.join("mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    desk.fails(2, &list, &["does not fit"]);
    desk.done(&["plugin", "sign", "plugins/mine.wasm", "--key", "mine.key"]);
    desk.done(&list);
}

/// Row 45: a lock that is deleted, emptied, or edited to make its plugin look local, lets nothing unsigned serve.
#[test]
fn row_45_an_edited_lock_lets_nothing_through() {
    let desk = Desk::new();
    let team = desk.key("team");
    desk.agent("required", &team);
    desk.push("tides", "1.0.0", &["--sign", "team.key"]);
    desk.done(&of_agent(&["plugin", "add", &desk.reference("team/tides:latest")]));
    let list = of_agent(&["plugin", "list"]);
    desk.done(&list);
    let (lock, file) = (desk.path("plugins/plugins.lock"), desk.path("plugins/tides.wasm"));
    let signed = desk.lock();
    let evil = component("tides", "1.0.0", Asks { files: None, ..Asks::default() });
    let evil = [evil.as_slice(), &[0, 2, 1, b'x']].concat();
    std::fs::write(&file, &evil).unwrap();
    desk.fails(2, &list, &["it is not the locked file"]);
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
        desk.fails(2, &list, &["tides.wasm: "]);
    }
    std::fs::remove_file(&lock).unwrap();
    desk.fails(2, &list, &UNSIGNED);
    // A link to nothing is no missing lock.
    std::os::unix::fs::symlink("gone.lock", &lock).unwrap();
    desk.fails(2, &list, &["plugins.lock", "a link to a file that does not exist"]);
    desk.agent("warn", &team);
    desk.fails(2, &list, &["plugins.lock", "a link to a file that does not exist"]);
}

/// P15, row 45: bytes behind the end of a locked file make it another file, and that is what is said of it.
#[test]
fn row_45_appended_bytes_are_not_the_locked_file() {
    let desk = Desk::new();
    desk.push("tides", "1.0.0", &[]);
    desk.done(&super::in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]));
    let file = desk.path("plugins/tides.wasm");
    let whole = std::fs::read(&file).unwrap();
    for tail in [&b"more"[..], &[0; 64], &[0xff; 64]] {
        std::fs::write(&file, [whole.as_slice(), tail].concat()).unwrap();
        desk.fails(2, &["plugin", "list", "plugins"], &["it is not the locked file"]);
        // Under another file name as well: its manifest says whose it is.
        std::fs::rename(&file, desk.path("plugins/other.wasm")).unwrap();
        desk.fails(2, &["plugin", "list", "plugins"], &["other.wasm: ", "it is not the locked file"]);
        std::fs::remove_file(desk.path("plugins/other.wasm")).unwrap();
    }
    std::fs::write(&file, &whole).unwrap();
    desk.done(&["plugin", "list", "plugins"]);
}

/// Row 47: pipes, devices and endless files in place of plugins and of the lock are refused at once, and the watcher goes on.
#[tokio::test(flavor = "multi_thread")]
async fn row_47_what_is_no_file_is_refused_and_the_watcher_continues() {
    let desk = Desk::new();
    let plugins = desk.path("plugins");
    let options = SandboxOptions {
        vetting: Some(Arc::new(Locked { trust: Trust { policy: SignaturePolicy::Warn, ..Trust::default() } })),
        ..SandboxOptions::default()
    };
    let mut directory = PluginDirectory::new(Sandbox::new(options).unwrap(), plugins.clone());
    let fifo = |path: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    fifo(&plugins.join("pipe.wasm"));
    std::os::unix::fs::symlink("/dev/zero", plugins.join("zero.wasm")).unwrap();
    std::os::unix::fs::symlink("/proc/kmsg", plugins.join("kernel.wasm")).unwrap();
    desk.built("mine", "mine");
    let said = until(&mut directory, |seen| seen.plugins.len() == 1).await.concat();
    assert!(said.matches("not a regular file").count() >= 2, "{said}");
    // A lock that is a pipe: what is read anew is refused, and loads again with a lock that can be read.
    fifo(&plugins.join("plugins.lock"));
    std::fs::write(plugins.join("mine.wasm"), component("mine", "0.2.0", Asks::default())).unwrap();
    let said = until(&mut directory, |seen| !seen.problems.is_empty()).await.concat();
    assert!(said.contains("plugins.lock") && said.contains("not a regular file"), "{said}");
    std::fs::remove_file(plugins.join("plugins.lock")).unwrap();
    until(&mut directory, |seen| seen.plugins.len() == 1).await;
}
