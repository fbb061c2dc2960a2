//! The real binary pushes, adds, updates, verifies and removes plugins, with a registry on loopback (P11, row 23).

mod by_policy;
mod clock;
mod hostile;
mod manifest_files;
pub(crate) mod peers;
mod required;
mod verification;
mod while_running;

use crate::generic_components::command;
use crate::support::{agent_host, components};
use crate::test_registry::TestRegistry;
use agent_plugins::{Access, Asks, Manifest, with_manifest};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Creates a small component with a name and a version.
fn component(name: &str, version: &str, asks: Asks) -> Vec<u8> {
    let (name, version) = (name.to_owned(), version.to_owned());
    let manifest =
        Manifest { name, version, description: "Probes the depths.".to_owned(), asks, ..Manifest::default() };
    with_manifest(&std::fs::read(components().join("bad-validator.wasm")).unwrap(), &manifest).unwrap()
}

/// A registry, and the folder of a user. The user's folder contains the plugin folder `plugins` and a data folder.
struct TestCli {
    folder: TempDir,
    registry: TestRegistry,
}

impl TestCli {
    fn new() -> Self {
        Self::with_registry(&TestRegistry::start())
    }

    /// Creates the folder of another user, who uses the same registry as an existing user.
    fn with_registry(registry: &TestRegistry) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        Self { folder, registry: registry.clone() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reference(&self, path: &str) -> String {
        format!("{}/{path}", self.registry.host())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = agent_host();
        command.current_dir(self.folder.path()).args(arguments).stdin(Stdio::null());
        let programs = std::env::var_os("PATH").unwrap_or_default();
        let programs = [self.path("bin")].into_iter().chain(std::env::split_paths(&programs));
        command.env("PATH", std::env::join_paths(programs).unwrap());
        command.env("AGENT_HOST_DATA", self.path("data")).env("DOCKER_CONFIG", self.path("docker"));
        command.env_remove("AGENT_HOST_KEY_PASSWORD");
        command
    }

    /// Runs the binary, and returns its exit code, and its stdout followed by its stderr.
    fn run_with_merged_output(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let (code, text) = self.run_with_merged_output(arguments);
        assert_eq!(code, 0, "{arguments:?}: {text}");
        text
    }

    /// Checks that the command ends with this exit code and prints all of these texts.
    fn fails(&self, code: i32, arguments: &[&str], expected: &[&str]) -> String {
        let (found, text) = self.run_with_merged_output(arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        expected.iter().for_each(|words| assert!(text.contains(words), "{arguments:?}: no `{words}` in: {text}"));
        text
    }

    /// Pushes a component with a name, a version and a tag.
    fn push(&self, name: &str, version: &str, extra_arguments: &[&str]) -> Vec<u8> {
        self.push_with_requests(name, version, Asks::default(), extra_arguments)
    }

    /// Pushes a component whose manifest requests the permissions in `asks`.
    fn push_with_requests(&self, name: &str, version: &str, asks: Asks, extra_arguments: &[&str]) -> Vec<u8> {
        let bytes = component(name, version, asks);
        std::fs::write(self.path("pushed.wasm"), &bytes).unwrap();
        let reference = self.reference(&format!("team/{name}"));
        for tag in ["", ":latest"] {
            let reference = format!("{reference}{tag}");
            let arguments = [&["plugin", "push", &reference, "pushed.wasm"], extra_arguments].concat();
            self.succeed(&arguments);
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

/// P11: One user pushes a plugin and another user adds it. Both users then have files with equal bytes, and the lock
/// file of the second user contains the plugin. At the end of the test, the second user removes the plugin.
#[test]
fn p11_one_user_pushes_a_plugin_and_another_adds_it() {
    let (author, user) = {
        let author = TestCli::new();
        let user = TestCli::with_registry(&author.registry);
        (author, user)
    };
    let bytes = author.push("tides", "1.0.0", &[]);
    let reference = user.reference("team/tides");
    let output_text = user.succeed(&in_plugins(&["plugin", "add", &reference]));
    assert!(
        output_text.contains("tides") && output_text.contains("1.0.0") && output_text.contains("it is not signed"),
        "{output_text}"
    );
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    let lock = user.lock();
    assert!(lock.contains(&format!("reference = \"{reference}\"")), "{lock}");
    assert!(
        lock.contains(agent_plugins::digest_of(&bytes).as_str()) && lock.contains("manifest = \"sha256:"),
        "{lock}"
    );

    let listed = user.succeed(&["plugin", "list", "plugins"]);
    assert!(listed.contains("tides"), "{listed}");
    let verified = user.succeed(&in_plugins(&["plugin", "verify"]));
    assert!(verified.contains("tides") && verified.contains("it is not signed"), "{verified}");
    user.fails(2, &in_plugins(&["plugin", "remove", "tidse"]), &["no", "tides"]);
    user.succeed(&in_plugins(&["plugin", "remove", "tides"]));
    assert!(!user.path("plugins/tides.wasm").exists() && !user.lock().contains("tides"));
}

/// Row 23: The host does not load a plugin file that differs from its entry in the lock file. A file without an entry
/// in the lock file is loaded. `plugin verify` reports a changed file and a file without an entry.
#[test]
fn row_23_refuses_a_changed_file_at_load() {
    let cli = TestCli::new();
    let bytes = cli.push("tides", "1.0.0", &[]);
    cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]));
    std::fs::write(cli.path("plugins/mine.wasm"), component("mine", "0.1.0", Asks::default())).unwrap();
    let listed = cli.succeed(&["plugin", "list", "plugins"]);
    assert!(listed.contains("mine") && listed.contains("tides"), "{listed}");

    std::fs::write(cli.path("plugins/tides.wasm"), component("tides", "1.0.1", Asks::default())).unwrap();
    let output_text = ["plugins.lock locks `tides`", "plugin add --replace --plugins plugins", "--keep-file"];
    cli.fails(2, &["plugin", "list", "plugins"], &output_text);
    cli.fails(2, &["--plugins", "plugins", "hello"], &output_text);
    cli.fails(1, &in_plugins(&["plugin", "verify"]), &["✗", " differs: its digest is ", "mine.wasm  not in"]);
    // The changed file is also refused if it has another file name. A file is also refused if its plugin is not
    // the plugin that the file's entry in the lock file names.
    std::fs::rename(cli.path("plugins/tides.wasm"), cli.path("plugins/other.wasm")).unwrap();
    cli.fails(2, &["plugin", "list", "plugins"], &["other.wasm: ", "locks `tides`"]);
    std::fs::rename(cli.path("plugins/mine.wasm"), cli.path("plugins/tides.wasm")).unwrap();
    std::fs::remove_file(cli.path("plugins/other.wasm")).unwrap();
    cli.fails(2, &["plugin", "list", "plugins"], &["tides.wasm: ", "locks `tides`"]);

    // `plugin add --replace` restores the original file without a request to the registry.
    cli.registry.requests();
    cli.fails(1, &in_plugins(&["plugin", "add"]), &["differs from its entry", "--replace"]);
    cli.succeed(&in_plugins(&["plugin", "add", "--replace"]));
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), bytes);
    assert!(cli.registry.requests().is_empty(), "the component was in the plugin store");
    // `plugin remove --keep-file` turns the changed file into a local plugin.
    std::fs::write(cli.path("plugins/tides.wasm"), component("tides", "1.0.1", Asks::default())).unwrap();
    cli.succeed(&in_plugins(&["plugin", "remove", "tides", "--keep-file"]));
    assert!(cli.succeed(&["plugin", "list", "plugins"]).contains("1.0.1"));
}

/// P11: A second user who has only the lock file of the first user gets the same plugin bytes, even if the tag
/// refers to another version by then. If the plugin store contains the component, the user gets the plugin even
/// without a network.
#[test]
fn p11_the_lock_file_restores_the_same_bytes() {
    let (author, user) = {
        let author = TestCli::new();
        let user = TestCli::with_registry(&author.registry);
        (author, user)
    };
    let bytes = author.push("tides", "1.0.0", &[]);
    author.succeed(&in_plugins(&["plugin", "add", &author.reference("team/tides:latest")]));
    author.push("tides", "2.0.0", &[]);
    std::fs::copy(author.path("plugins/plugins.lock"), user.path("plugins/plugins.lock")).unwrap();
    user.fails(1, &in_plugins(&["plugin", "verify"]), &["is missing"]);
    user.succeed(&in_plugins(&["plugin", "add"]));
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    assert!(user.succeed(&in_plugins(&["plugin", "add"])).contains("all plugins of plugins.lock are present"));

    // The registry is no longer reachable.
    let nowhere = user.lock().replace(&user.registry.host(), "127.0.0.1:1");
    std::fs::write(user.path("plugins/plugins.lock"), nowhere).unwrap();
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    let second_output = user.succeed(&in_plugins(&["plugin", "add", "127.0.0.1:1/team/tides:latest"]));
    assert!(second_output.contains("cannot be reached") && second_output.contains("plugin store"), "{second_output}");
    assert_eq!(std::fs::read(user.path("plugins/tides.wasm")).unwrap(), bytes);
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    std::fs::remove_dir_all(user.path("data")).unwrap();
    user.fails(1, &in_plugins(&["plugin", "add"]), &["cannot be reached"]);
    assert!(!user.path("plugins/tides.wasm").exists());
}

/// P11: the lock file contains the path of a file relative to its folder, so that it is right in another copy of the project. All
/// commands that read the lock file accept such a path, and the absolute path that earlier versions wrote.
#[test]
fn p11_the_lock_file_has_relative_paths() {
    let author = TestCli::new();
    std::fs::create_dir(author.path("src")).unwrap();
    std::fs::write(author.path("src/tides.wasm"), component("tides", "1.0.0", Asks::default())).unwrap();
    author.succeed(&in_plugins(&["plugin", "add", "src/tides.wasm"]));
    assert!(author.lock().contains("reference = \"../src/tides.wasm\"\n"), "{}", author.lock());
    author.succeed(&in_plugins(&["plugin", "verify"]));

    // Another user has the project in another folder, and no data of the author.
    let user = TestCli::with_registry(&author.registry);
    std::fs::create_dir(user.path("src")).unwrap();
    for file in ["src/tides.wasm", "plugins/plugins.lock"] {
        std::fs::copy(author.path(file), user.path(file)).unwrap();
    }
    drop(author);
    user.succeed(&in_plugins(&["plugin", "add"]));
    assert!(user.succeed(&in_plugins(&["plugin", "verify"])).contains("tides"));
    assert!(user.succeed(&in_plugins(&["plugin", "update"])).contains("up to date"));
    std::fs::write(user.path("src/tides.wasm"), component("tides", "1.1.0", Asks::default())).unwrap();
    user.succeed(&in_plugins(&["plugin", "update"]));
    let updated = user.lock();
    assert!(updated.contains("1.1.0") && updated.contains("reference = \"../src/tides.wasm\"\n"), "{updated}");

    let absolute = user.path("src/tides.wasm").canonicalize().unwrap().display().to_string();
    std::fs::write(user.path("plugins/plugins.lock"), updated.replace("../src/tides.wasm", &absolute)).unwrap();
    std::fs::remove_file(user.path("plugins/tides.wasm")).unwrap();
    user.succeed(&in_plugins(&["plugin", "add"]));
    user.succeed(&in_plugins(&["plugin", "verify"]));
    assert_eq!(user.lock(), updated, "the next change writes the relative path");
    user.succeed(&in_plugins(&["plugin", "remove", "tides"]));
    assert!(!user.path("plugins/tides.wasm").exists() && user.path("src/tides.wasm").exists());
}

/// Returns the digests of all files below a folder, by their paths.
fn contents_of(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(contents_of(&path)),
            false => {
                drop(found.insert(path.clone(), agent_plugins::digest_of(&std::fs::read(&path).unwrap()).to_string()))
            }
        }
    }
    found
}

/// P11, row 23: `plugin update --check` reports the changes of tools, schemas, traits and size, and marks what lets the
/// plugin do more, in lines that fit a terminal of 60 columns. It refuses what an update would refuse.
#[test]
fn p11_check_reports_changes_of_tools_schemas_and_traits() {
    let cli = TestCli::new();
    std::fs::copy(command(), cli.path("shout.wasm")).unwrap();
    let publish = |manifest: &str| {
        std::fs::write(cli.path("shout.plugin.toml"), manifest).unwrap();
        for tag in ["", ":latest"] {
            cli.succeed(&["plugin", "push", &cli.reference(&format!("team/shout{tag}")), "shout.wasm"]);
        }
    };
    let export = cli.succeed(&["plugin", "describe", "shout.wasm", "--out", "derived.toml"]);
    assert!(export.contains("derived.toml"), "{export}");
    let derived = std::fs::read_to_string(cli.path("derived.toml")).unwrap();
    let export = derived.lines().find(|line| line.starts_with("export = ")).unwrap();
    let schema = |limit: u32| {
        format!(
            r#"{{"type":"object","properties":{{"args":{{"type":"array","maxItems":{limit}}}}},"required":["args"]}}"#
        )
    };
    let first = format!(
        "name = \"shout\"\nversion = \"1.0.0\"\n[[tools]]\n{export}\nneeds_approval = true\ninput_schema = '{}'\n",
        schema(3)
    );
    publish(&first);
    cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/shout:latest")]));
    let second =
        first.replace("1.0.0", "1.1.0").replace("needs_approval = true", "destructive = true").replace(":3}", ":9}");
    publish(&second.replace("[[tools]]", "[asks]\nenv = [\"HOME\"]\n[[tools]]"));
    let report = cli.fails(
        1,
        &in_plugins(&["plugin", "update", "--check"]),
        &[
            "! it asks for the variable HOME",
            "! its tool shout may now delete or overwrite something",
            "! its tool shout no longer needs an approval",
            "+ asks for the variable HOME",
            "~ changes shout",
            "/input_schema/properties/args/maxItems",
            "3 → 9",
            "/traits/needs_approval true → false",
            "size ",
        ],
    );
    assert!(!report.contains("imports"), "the imports are the same: {report}");
    cli.fails(2, &in_plugins(&["plugin", "update", "--json"]), &["--check"]);
    // An older version is refused by the check as well.
    publish(&first.replace("1.0.0", "0.9.0"));
    cli.fails(1, &in_plugins(&["plugin", "update", "--check"]), &["older than 1.0.0", "--allow-downgrade"]);
}

/// P11: The update of a plugin reports the changes of the newer version. With `--check`, the command does not change
/// files. If a tag was moved back to an older version, the update installs that version only with `--allow-downgrade`.
#[test]
fn p11_reports_the_changes_of_an_update() {
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    cli.push("moon", "1.0.0", &[]);
    for name in ["tides", "moon"] {
        cli.succeed(&in_plugins(&["plugin", "add", &cli.reference(&format!("team/{name}:latest"))]));
    }
    assert!(cli.succeed(&in_plugins(&["plugin", "update", "--check"])).contains("all plugins are up to date"));
    let asks =
        Asks { files: Some(Access::Read), http: vec!["GET https://tides.example".to_owned()], ..Asks::default() };
    let newer = cli.push_with_requests("tides", "1.1.0", asks, &[]);
    let before = contents_of(cli.folder.path());
    let output_text = [
        "1.0.0",
        "→ 1.1.0",
        "! it asks for reading files",
        "+ asks for reading files",
        "+ asks for the request GET https://tides.example",
    ];
    cli.fails(1, &in_plugins(&["plugin", "update", "--check"]), &output_text);
    let (code, reports) = cli.run_with_merged_output(&in_plugins(&["plugin", "update", "--check", "--json"]));
    let reports: Vec<Value> = reports.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!((code, reports.len()), (1, 2), "{reports:?}");
    assert_eq!((&reports[0]["name"], &reports[0]["status"]), (&json!("moon"), &json!("current")));
    assert_eq!((&reports[1]["status"], &reports[1]["after"]["version"]), (&json!("newer"), &json!("1.1.0")));
    assert_eq!(reports[1]["changes"]["requests"]["added"][0], "reading files");
    assert_eq!(contents_of(cli.folder.path()), before, "nothing is written, not even to the data folder");
    cli.fails(2, &in_plugins(&["plugin", "update", "sun"]), &["`sun` is not in plugins.lock", "moon, tides"]);
    assert!(cli.succeed(&in_plugins(&["plugin", "update", "moon"])).contains("all plugins are up to date"));
    cli.succeed(&in_plugins(&["plugin", "update"]));
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), newer);
    assert!(cli.lock().contains("version = \"1.1.0\""));

    // Row 23: Here, the tag was moved back to an older version of the plugin.
    let old = cli.push("tides", "1.0.0", &[]);
    cli.fails(1, &in_plugins(&["plugin", "update"]), &["older than 1.1.0", "--allow-downgrade"]);
    cli.fails(2, &in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]), &["older than 1.1.0"]);
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), newer);
    cli.succeed(&in_plugins(&["plugin", "update", "--allow-downgrade"]));
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), old);

    // Push a different plugin, so that the tag no longer refers to the installed plugin.
    let bytes = component("moon", "9.0.0", Asks::default());
    std::fs::write(cli.path("pushed.wasm"), bytes).unwrap();
    cli.succeed(&["plugin", "push", &cli.reference("team/tides:latest"), "pushed.wasm"]);
    cli.fails(1, &in_plugins(&["plugin", "update", "tides"]), &["is the plugin `moon` now", "not installed"]);
}

/// Row 11, row 18, row 23: A file that is not a plugin is not installed, and existing files are not changed.
#[test]
fn row_11_does_not_install_files_that_are_not_plugins() {
    let cli = TestCli::new();
    let wasm = |name: &str| format!("plugins/{name}.wasm");
    std::fs::write(cli.path("module.wasm"), b"\0asm\x01\0\0\0").unwrap();
    cli.fails(2, &["plugin", "push", &cli.reference("team/module:1"), "module.wasm"], &["core WebAssembly module"]);
    cli.fails(1, &in_plugins(&["plugin", "add", "./module.wasm"]), &["core WebAssembly module"]);
    cli.fails(2, &in_plugins(&["plugin", "add", "./absent.wasm"]), &["no file or folder `./absent.wasm`"]);
    cli.fails(2, &in_plugins(&["plugin", "add", "tides"]), &["does not name a registry", "HOST/PATH[:TAG]"]);
    cli.fails(1, &in_plugins(&["plugin", "add", &cli.reference("team/tides:1")]), &["no such repository"]);
    cli.fails(2, &["plugin", "add", "x.example/a", "--plugins", "module.wasm"], &["is not a folder"]);
    assert!(!cli.path(&wasm("module")).exists() && cli.lock().is_empty());

    let bytes = cli.push("tides", "1.0.0", &[]);
    let mine = component("tides", "0.0.1", Asks::default());
    std::fs::write(cli.path(&wasm("tides")), &mine).unwrap();
    let add = cli.reference("team/tides");
    cli.fails(2, &in_plugins(&["plugin", "add", &add]), &["no entry in the lock file", "--replace"]);
    assert_eq!(std::fs::read(cli.path(&wasm("tides"))).unwrap(), mine);
    cli.succeed(&in_plugins(&["plugin", "add", &add, "--replace"]));
    assert_eq!(std::fs::read(cli.path(&wasm("tides"))).unwrap(), bytes);
    // A user can add a plugin from a file, and may delete the source file after the plugin was added.
    std::fs::write(cli.path("moon.wasm"), component("moon", "1.0.0", Asks::default())).unwrap();
    cli.succeed(&in_plugins(&["plugin", "add", "moon.wasm"]));
    std::fs::remove_file(cli.path("moon.wasm")).unwrap();
    assert!(cli.succeed(&in_plugins(&["plugin", "verify"])).contains("from a file on this machine"));
}

/// Row 18: If a different plugin with the same name is already installed, `plugin add` needs the option `--replace`, so
/// that a plugin does not get another plugin's grants by mistake. If the argument of `plugin add` is a folder, the
/// command adds all plugins in the folder.
#[test]
fn row_18_another_plugin_does_not_inherit_the_grants_of_a_name() {
    let cli = TestCli::new();
    let first = cli.push("tides", "1.0.0", &[]);
    cli.succeed(&in_plugins(&["plugin", "add", &cli.reference("team/tides:latest")]));
    std::fs::write(cli.path("other.wasm"), component("tides", "2.0.0", Asks::default())).unwrap();
    cli.succeed(&["plugin", "push", &cli.reference("evil/tides"), "other.wasm"]);
    let evil = cli.reference("evil/tides");
    let output_text = ["`tides` was installed from", "team/tides:latest", "--replace installs the new plugin"];
    cli.fails(2, &in_plugins(&["plugin", "add", &evil]), &output_text);
    cli.fails(2, &in_plugins(&["plugin", "add", "other.wasm"]), &output_text);
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), first);
    cli.succeed(&in_plugins(&["plugin", "add", &evil, "--replace"]));
    assert!(cli.lock().contains(&format!("reference = \"{evil}\"")));

    std::fs::create_dir(cli.path("shared")).unwrap();
    cli.fails(2, &in_plugins(&["plugin", "add", "./shared"]), &["there is no plugin (*.wasm) in"]);
    for name in ["moon", "sun"] {
        std::fs::write(cli.path(&format!("shared/{name}.wasm")), component(name, "1.0.0", Asks::default())).unwrap();
    }
    cli.succeed(&in_plugins(&["plugin", "add", "./shared"]));
    assert!(cli.lock().contains("name = \"moon\"") && cli.lock().contains("name = \"sun\""));
}

/// P11, row 16: The host gets the credentials for a registry from the helper program that the Docker configuration
/// names, and does not print the credentials.
#[cfg(unix)]
#[test]
fn p11_uses_docker_credential_helpers() {
    use std::os::unix::fs::PermissionsExt;
    let cli = TestCli::new();
    cli.push("tides", "1.0.0", &[]);
    cli.registry
        .set(|faults| (faults.login, faults.tokens) = (Some(("ann".to_owned(), "top secret".to_owned())), true));
    let add = in_plugins(&["plugin", "add"]);
    let reference = cli.reference("team/tides");
    let add = [&add[..2], &[reference.as_str(), "-vv"], &add[2..]].concat();
    cli.fails(1, &add, &["there are no credentials for", "docker login"]);
    let helper = cli.path("bin/docker-credential-desk");
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    write(&cli.path("docker/config.json"), r#"{"auths": {}, "credsStore": "desk"}"#);
    cli.fails(1, &add, &["`docker-credential-desk` from the Docker configuration failed"]);
    write(&helper, "#!/bin/sh\necho credentials not found in native keychain\nexit 1\n");
    cli.fails(1, &add, &["there are no credentials for"]);
    let answer = r#"{"ServerURL": "x", "Username": "ann", "Secret": "top secret"}"#;
    write(
        &helper,
        &format!("#!/bin/sh\n[ \"$1\" = get ] && [ \"$(cat)\" = {} ] && echo '{answer}'\n", cli.registry.host()),
    );
    let output_text = cli.succeed(&add);
    assert!(!output_text.contains("secret") && !output_text.contains("a-token"), "{output_text}");
}

/// P11: When a team's plugin is pushed, the team's index in the registry is created or updated. The index can
/// be searched.
#[test]
fn p11_searches_an_index() {
    let cli = TestCli::new();
    let index = cli.reference("team/index");
    cli.fails(1, &["plugin", "search", "depths", "--index", &index], &["the first `plugin push --index` creates it"]);
    cli.push("tides", "1.0.0", &["--index", &index]);
    cli.push("moon", "1.0.0", &["--index", &index]);
    cli.push("moon", "1.1.0", &["--index", &index]);
    let found = cli.succeed(&["plugin", "search", "moon", "depths", "--index", &index]);
    assert!(found.find("moon").unwrap() < found.find("tides").unwrap(), "the best match comes first: {found}");
    assert!(found.contains("1.1.0 and 1 older") && found.contains("not signed"), "{found}");
    let json = cli.succeed(&["plugin", "search", "--index", &index, "--json"]);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["versions"], serde_json::json!(["1.1.0", "1.0.0"]));
    assert_eq!(lines[0]["newest"]["reference"], cli.reference("team/moon:latest"));
}

fn files(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
