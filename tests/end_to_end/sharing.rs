//! P11 and row 23 by hand: plugins that are pushed, added, updated, verified and removed with the real binary, over a registry
//! on loopback.

mod by_policy;
mod clock;
mod hostile;
pub(crate) mod peers;
mod required;
mod vetted;
mod while_running;

use crate::support::components;
use crate::test_registry::TestRegistry;
use agent_plugins::{Access, Asks, Manifest, with_manifest};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A small component under a name and a version of its own.
fn component(name: &str, version: &str, asks: Asks) -> Vec<u8> {
    let (name, version) = (name.to_owned(), version.to_owned());
    let manifest =
        Manifest { name, version, description: "Probes the depths.".to_owned(), asks, ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("bad-validator.wasm")).unwrap(), &manifest).unwrap()
}

/// A registry, and somebody's folder with `plugins` in it and a data folder of their own.
struct Desk {
    ground: TempDir,
    registry: TestRegistry,
}

impl Desk {
    fn new() -> Self {
        Self::beside(&TestRegistry::start())
    }

    /// Somebody else with the same registry.
    fn beside(registry: &TestRegistry) -> Self {
        let ground = tempfile::tempdir().unwrap();
        std::fs::create_dir(ground.path().join("plugins")).unwrap();
        Self { ground, registry: registry.clone() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.path().join(name)
    }

    fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.host())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
        command.current_dir(self.ground.path()).args(arguments).stdin(Stdio::null());
        let programs = std::env::var_os("PATH").unwrap_or_default();
        let programs = [self.path("bin")].into_iter().chain(std::env::split_paths(&programs));
        command.env("PATH", std::env::join_paths(programs).unwrap());
        command.env("AGENT_HOST_DATA", self.path("data")).env("DOCKER_CONFIG", self.path("docker"));
        command.env_remove("AGENT_HOST_KEY_PASSWORD");
        command
    }

    /// What it says on both outputs, and how it ends.
    fn said(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }

    fn done(&self, arguments: &[&str]) -> String {
        let (code, text) = self.said(arguments);
        assert_eq!(code, 0, "{arguments:?}: {text}");
        text
    }

    /// Ends with this code and says these things.
    fn fails(&self, code: i32, arguments: &[&str], said: &[&str]) -> String {
        let (found, text) = self.said(arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        said.iter().for_each(|words| assert!(text.contains(words), "{arguments:?}: no `{words}` in: {text}"));
        text
    }

    /// Pushes it under a name, a version and a tag.
    fn push(&self, name: &str, version: &str, rest: &[&str]) -> Vec<u8> {
        self.push_asking(name, version, Asks::default(), rest)
    }

    fn push_asking(&self, name: &str, version: &str, asks: Asks, rest: &[&str]) -> Vec<u8> {
        let bytes = component(name, version, asks);
        std::fs::write(self.path("pushed.wasm"), &bytes).unwrap();
        let reference = self.reference(&format!("team/{name}"));
        for tag in ["", ":latest"] {
            let reference = format!("{reference}{tag}");
            let arguments = [&["plugin", "push", &reference, "pushed.wasm"], rest].concat();
            self.done(&arguments);
        }
        bytes
    }

    fn lock(&self) -> String {
        std::fs::read_to_string(self.path("plugins/plugins.lock")).unwrap_or_default()
    }
}

const PLUGINS: [&str; 2] = ["--plugins", "plugins"];

fn in_plugins<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &PLUGINS].concat()
}

/// P11: pushed by one, added by another, the same bytes, locked; and removed.
#[test]
fn p11_a_plugin_goes_from_one_to_another() {
    let (author, user) = {
        let author = Desk::new();
        let user = Desk::beside(&author.registry);
        (author, user)
    };
    let bytes = author.push("tides", "1.0.0", &[]);
    let reference = user.reference("team/tides");
    let said = user.done(&in_plugins(&["plugin", "add", &reference]));
    assert!(said.contains("tides") && said.contains("1.0.0") && said.contains("it is not signed"), "{said}");
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    let lock = user.lock();
    assert!(lock.contains(&format!("reference = \"{reference}\"")), "{lock}");
    assert!(
        lock.contains(agent_plugins::digest_of(&bytes).as_str()) && lock.contains("manifest = \"sha256:"),
        "{lock}"
    );

    let listed = user.done(&["plugin", "list", "plugins"]);
    assert!(listed.contains("tides"), "{listed}");
    let verified = user.done(&in_plugins(&["plugin", "verify"]));
    assert!(verified.contains("tides") && verified.contains("it is not signed"), "{verified}");
    user.fails(2, &in_plugins(&["plugin", "remove", "tidse"]), &["no", "tides"]);
    user.done(&in_plugins(&["plugin", "remove", "tides"]));
    assert!(!user.path("plugins/tides.wasm").exists() && !user.lock().contains("tides"));
}

/// Row 23: a locked file that was changed does not load, what nobody has locked does, and both are said.
#[test]
fn row_23_a_changed_file_is_refused_at_load() {
    let desk = Desk::new();
    let bytes = desk.push("tides", "1.0.0", &[]);
    desk.done(&in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]));
    std::fs::write(desk.path("plugins/mine.wasm"), component("mine", "0.1.0", Asks::default())).unwrap();
    let listed = desk.done(&["plugin", "list", "plugins"]);
    assert!(listed.contains("mine") && listed.contains("tides"), "{listed}");

    std::fs::write(desk.path("plugins/tides.wasm"), component("tides", "1.0.1", Asks::default())).unwrap();
    let said = ["plugins.lock locks `tides`", "plugin add --replace --plugins plugins", "--keep-file"];
    desk.fails(2, &["plugin", "list", "plugins"], &said);
    desk.fails(2, &["--plugins", "plugins", "hello"], &said);
    desk.fails(1, &in_plugins(&["plugin", "verify"]), &["✗", "is another one", "mine.wasm  not locked"]);
    // Under another name, and another plugin under its name.
    std::fs::rename(desk.path("plugins/tides.wasm"), desk.path("plugins/other.wasm")).unwrap();
    desk.fails(2, &["plugin", "list", "plugins"], &["other.wasm: ", "locks `tides`"]);
    std::fs::rename(desk.path("plugins/mine.wasm"), desk.path("plugins/tides.wasm")).unwrap();
    std::fs::remove_file(desk.path("plugins/other.wasm")).unwrap();
    desk.fails(2, &["plugin", "list", "plugins"], &["tides.wasm: ", "locks `tides`"]);

    // It is put back as it was, without asking anybody.
    desk.registry.requests();
    desk.fails(1, &in_plugins(&["plugin", "add"]), &["changed since it was locked", "--replace"]);
    desk.done(&in_plugins(&["plugin", "add", "--replace"]));
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), bytes);
    assert!(desk.registry.requests().is_empty(), "it was in the plugin store");
    // Or it becomes one's own.
    std::fs::write(desk.path("plugins/tides.wasm"), component("tides", "1.0.1", Asks::default())).unwrap();
    desk.done(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    assert!(desk.done(&["plugin", "list", "plugins"]).contains("1.0.1"));
}

/// P11: with the lock alone, another one gets the same bytes, whatever the tag is by now; with the store also offline.
#[test]
fn p11_a_lock_brings_the_same_bytes() {
    let (author, user) = {
        let author = Desk::new();
        let user = Desk::beside(&author.registry);
        (author, user)
    };
    let bytes = author.push("tides", "1.0.0", &[]);
    author.done(&in_plugins(&["plugin", "add", &author.reference("team/tides:latest")]));
    author.push("tides", "2.0.0", &[]);
    std::fs::copy(author.path("plugins/plugins.lock"), user.path("plugins/plugins.lock")).unwrap();
    user.fails(1, &in_plugins(&["plugin", "verify"]), &["is not there"]);
    user.done(&in_plugins(&["plugin", "add"]));
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    assert!(user.done(&in_plugins(&["plugin", "add"])).contains("all that is locked is there"));

    // Nobody answers any more.
    let nowhere = user.lock().replace(&user.registry.host(), "127.0.0.1:1");
    std::fs::write(user.path("plugins/plugins.lock"), nowhere).unwrap();
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    let again = user.done(&in_plugins(&["plugin", "add", "127.0.0.1:1/team/tides:latest"]));
    assert!(again.contains("cannot be reached") && again.contains("plugin store"), "{again}");
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    std::fs::remove_dir_all(user.path("data")).unwrap();
    user.fails(1, &in_plugins(&["plugin", "add"]), &["cannot be reached"]);
    assert!(!user.path("plugins/tides.wasm").exists());
}

/// P11: what is newer is said with what it changes; `--check` changes nothing; a tag that goes back is not followed.
#[test]
fn p11_updates_say_what_they_change() {
    let desk = Desk::new();
    desk.push("tides", "1.0.0", &[]);
    desk.push("moon", "1.0.0", &[]);
    for name in ["tides", "moon"] {
        desk.done(&in_plugins(&["plugin", "add", &desk.reference(&format!("team/{name}:latest"))]));
    }
    assert!(desk.done(&in_plugins(&["plugin", "update", "--check"])).contains("nothing is newer"));
    let asks =
        Asks { files: Some(Access::Read), http: vec!["GET https://tides.example".to_owned()], ..Asks::default() };
    let newer = desk.push_asking("tides", "1.1.0", asks, &[]);
    let before = (desk.lock(), std::fs::read(desk.path("plugins/tides.wasm")).unwrap());
    let said = ["1.0.0", "→ 1.1.0", "+ asks for reading files", "+ asks for the request GET https://tides.example"];
    desk.fails(1, &in_plugins(&["plugin", "update", "--check"]), &said);
    assert_eq!((desk.lock(), std::fs::read(desk.path("plugins/tides.wasm")).unwrap()), before, "nothing is changed");
    desk.fails(2, &in_plugins(&["plugin", "update", "sun"]), &["no plugin `sun` is locked", "moon, tides"]);
    assert!(desk.done(&in_plugins(&["plugin", "update", "moon"])).contains("nothing is newer"));
    desk.done(&in_plugins(&["plugin", "update"]));
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), newer);
    assert!(desk.lock().contains("version = \"1.1.0\""));

    // Row 23: a tag that was moved back.
    let old = desk.push("tides", "1.0.0", &[]);
    desk.fails(1, &in_plugins(&["plugin", "update"]), &["older than 1.1.0", "--allow-downgrade"]);
    desk.fails(2, &in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]), &["older than 1.1.0"]);
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), newer);
    desk.done(&in_plugins(&["plugin", "update", "--allow-downgrade"]));
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), old);

    // A tag behind which another plugin stands.
    let bytes = component("moon", "9.0.0", Asks::default());
    std::fs::write(desk.path("pushed.wasm"), bytes).unwrap();
    desk.done(&["plugin", "push", &desk.reference("team/tides:latest"), "pushed.wasm"]);
    desk.fails(1, &in_plugins(&["plugin", "update", "tides"]), &["is the plugin `moon` now", "not taken"]);
}

/// Row 11, row 18, row 23: what is no plugin is not put there, and what is in the way stays.
#[test]
fn row_11_what_is_no_plugin_is_not_taken() {
    let desk = Desk::new();
    let wasm = |name: &str| format!("plugins/{name}.wasm");
    std::fs::write(desk.path("module.wasm"), b"\0asm\x01\0\0\0").unwrap();
    desk.fails(2, &["plugin", "push", &desk.reference("team/module:1"), "module.wasm"], &["core WebAssembly module"]);
    desk.fails(1, &in_plugins(&["plugin", "add", "./module.wasm"]), &["core WebAssembly module"]);
    desk.fails(2, &in_plugins(&["plugin", "add", "./absent.wasm"]), &["no file or folder `./absent.wasm`"]);
    desk.fails(2, &in_plugins(&["plugin", "add", "tides"]), &["names no registry", "HOST/PATH[:TAG]"]);
    desk.fails(1, &in_plugins(&["plugin", "add", &desk.reference("team/tides:1")]), &["no such repository"]);
    desk.fails(2, &["plugin", "add", "x.example/a", "--plugins", "module.wasm"], &["is no folder"]);
    assert!(!desk.path(&wasm("module")).exists() && desk.lock().is_empty());

    let bytes = desk.push("tides", "1.0.0", &[]);
    let mine = component("tides", "0.0.1", Asks::default());
    std::fs::write(desk.path(&wasm("tides")), &mine).unwrap();
    let add = desk.reference("team/tides");
    desk.fails(2, &in_plugins(&["plugin", "add", &add]), &["not locked", "--replace"]);
    assert_eq!(std::fs::read(desk.path(&wasm("tides"))).unwrap(), mine);
    desk.done(&in_plugins(&["plugin", "add", &add, "--replace"]));
    assert_eq!(std::fs::read(desk.path(&wasm("tides"))).unwrap(), bytes);
    // From a file, too, and then the file may go.
    std::fs::write(desk.path("moon.wasm"), component("moon", "1.0.0", Asks::default())).unwrap();
    desk.done(&in_plugins(&["plugin", "add", "moon.wasm"]));
    std::fs::remove_file(desk.path("moon.wasm")).unwrap();
    assert!(desk.done(&in_plugins(&["plugin", "verify"])).contains("from a file of this machine"));
}

/// Row 18: another plugin of a name does not get what that name is granted, unasked; a folder gives all that is in it.
#[test]
fn row_18_a_name_stays_with_its_plugin() {
    let desk = Desk::new();
    let first = desk.push("tides", "1.0.0", &[]);
    desk.done(&in_plugins(&["plugin", "add", &desk.reference("team/tides:latest")]));
    std::fs::write(desk.path("other.wasm"), component("tides", "2.0.0", Asks::default())).unwrap();
    desk.done(&["plugin", "push", &desk.reference("evil/tides"), "other.wasm"]);
    let evil = desk.reference("evil/tides");
    let said =
        ["`tides` is locked to", "team/tides:latest", "--replace puts it there, with all that `tides` is granted"];
    desk.fails(2, &in_plugins(&["plugin", "add", &evil]), &said);
    desk.fails(2, &in_plugins(&["plugin", "add", "other.wasm"]), &said);
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), first);
    desk.done(&in_plugins(&["plugin", "add", &evil, "--replace"]));
    assert!(desk.lock().contains(&format!("reference = \"{evil}\"")));

    std::fs::create_dir(desk.path("shared")).unwrap();
    desk.fails(2, &in_plugins(&["plugin", "add", "./shared"]), &["there is no plugin (*.wasm) in"]);
    for name in ["moon", "sun"] {
        std::fs::write(desk.path(&format!("shared/{name}.wasm")), component(name, "1.0.0", Asks::default())).unwrap();
    }
    desk.done(&in_plugins(&["plugin", "add", "./shared"]));
    assert!(desk.lock().contains("name = \"moon\"") && desk.lock().contains("name = \"sun\""));
}

/// P11, row 16: credentials come from the helper that the Docker configuration names, and are shown nowhere.
#[cfg(unix)]
#[test]
fn p11_credential_helpers_are_asked() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    desk.push("tides", "1.0.0", &[]);
    desk.registry
        .set(|faults| (faults.login, faults.tokens) = (Some(("ann".to_owned(), "top secret".to_owned())), true));
    let add = in_plugins(&["plugin", "add"]);
    let reference = desk.reference("team/tides");
    let add = [&add[..2], &[reference.as_str(), "-vv"], &add[2..]].concat();
    desk.fails(1, &add, &["there are no credentials for", "docker login"]);
    let helper = desk.path("bin/docker-credential-desk");
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(&desk.path("docker/config.json"), r#"{"auths": {}, "credsStore": "desk"}"#);
    desk.fails(1, &add, &["`docker-credential-desk`, which the Docker configuration names, cannot be used"]);
    write(&helper, "#!/bin/sh\necho credentials not found in native keychain\nexit 1\n");
    desk.fails(1, &add, &["there are no credentials for"]);
    let answer = r#"{"ServerURL": "x", "Username": "ann", "Secret": "top secret"}"#;
    write(
        &helper,
        &format!("#!/bin/sh\n[ \"$1\" = get ] && [ \"$(cat)\" = {} ] && echo '{answer}'\n", desk.registry.host()),
    );
    let said = desk.done(&add);
    assert!(!said.contains("secret") && !said.contains("a-token"), "{said}");
}

/// P11: a team's index is made by pushing, and searched.
#[test]
fn p11_an_index_is_searched() {
    let desk = Desk::new();
    let index = desk.reference("team/index");
    desk.fails(1, &["plugin", "search", "depths", "--index", &index], &["the first `plugin push --index` makes it"]);
    desk.push("tides", "1.0.0", &["--index", &index]);
    desk.push("moon", "1.0.0", &["--index", &index]);
    desk.push("moon", "1.1.0", &["--index", &index]);
    let found = desk.done(&["plugin", "search", "moon", "depths", "--index", &index]);
    assert!(found.find("moon").unwrap() < found.find("tides").unwrap(), "the nearest first: {found}");
    assert!(found.contains("1.1.0 and 1 older") && found.contains("not signed"), "{found}");
    let json = desk.done(&["plugin", "search", "--index", &index, "--json"]);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["versions"], serde_json::json!(["1.1.0", "1.0.0"]));
    assert_eq!(lines[0]["newest"]["reference"], desk.reference("team/moon:latest"));
}

fn files(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
