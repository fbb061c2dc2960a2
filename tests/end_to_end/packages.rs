//! The packages that `host/packages/build` builds: each package is installed as a user installs it, and the installed
//! program runs a turn with an installed plugin, without a toolchain and without a network.

use crate::peers::{debian, debian_program, system_program};
use crate::support::{components, repository, scratch};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names a program to pack instead of the one under test, such as the program of the profile `dist` before a release.
const PROGRAM: &str = "AGENT_HOST_PACKED_PROGRAM";
/// The plugins in the packages of this test. Compiling all standard plugins would take long.
const PLUGINS: [&str; 2] = ["calc.wasm", "text.wasm"];

/// Returns the folder of the packages. The first call builds them, from the binary under test.
fn packages(python: &Path) -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let folder = scratch().join("packages");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("plugins")).expect("a folder");
        for plugin in PLUGINS {
            std::fs::copy(components().join(plugin), folder.join("plugins").join(plugin)).expect("a built plugin");
        }
        let mut command = Command::new(python);
        command.arg(repository().join("host/packages/build")).arg("--fast").arg("--binary").arg(small_binary(&folder));
        command.arg("--plugins").arg(folder.join("plugins")).arg("--output").arg(&folder);
        succeed(command.env("PYTHONDONTWRITEBYTECODE", "1"));
        folder
    })
}

/// Returns the program to pack. The program under test is packed without debug information if the program `strip` is installed.
/// The debug information makes the packages three times larger.
fn small_binary(folder: &Path) -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM) {
        return program.into();
    }
    let (binary, small) = (PathBuf::from(env!("CARGO_BIN_EXE_agent-host")), folder.join("agent-host"));
    let stripped = Command::new("strip").arg("-o").arg(&small).arg(&binary).status();
    if stripped.is_ok_and(|status| status.success()) { small } else { binary }
}

/// Returns the only package whose name has this ending.
fn package(python: &Path, ending: &str) -> PathBuf {
    let entries = std::fs::read_dir(packages(python)).expect("the packages").flatten().map(|entry| entry.path());
    let found: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    let [package] = &found[..] else { panic!("one package ends with {ending}: {found:?}") };
    assert!(package.file_name().is_some_and(|name| name.to_string_lossy().contains(VERSION)), "{package:?}");
    package.clone()
}

fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// An installed program, and a new user who starts it.
struct Installed {
    program: PathBuf,
    /// The folder of the standard plugins, which is beside the folder of the program.
    plugins: PathBuf,
    home: TempDir,
}

impl Installed {
    /// The program that was installed below this prefix.
    fn below(prefix: &Path) -> Self {
        let (program, plugins) = (prefix.join("bin/agent-host"), prefix.join("lib/agent-host/plugins"));
        Self { program, plugins, home: tempfile::tempdir().expect("a folder") }
    }

    /// A command that runs the program without a PATH, so that it finds no toolchain.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("HOME", self.home.path()).env("USER", "new").current_dir(self.home.path());
        command
    }

    /// Checks that the program has the version of the package, and that a turn runs a tool of an installed plugin.
    fn works(&self) {
        assert_eq!(succeed(self.command().arg("--version")), format!("agent-host {VERSION}\n"));
        let turn = self.command().arg("--plugins").arg(&self.plugins).arg(CALCULATION).output().expect("the turn runs");
        is_calculated(&turn);
    }

    /// Returns the number of components that this user had to compile.
    fn compiled(&self) -> usize {
        count_compiled(&self.home.path().join(".local/share/agent-host/cache"))
    }
}

const CALCULATION: &str = r#"calc.evaluate {"expression": "6 * 7 / 4"}"#;

fn is_calculated(turn: &Output) {
    let answer = String::from_utf8_lossy(&turn.stdout);
    assert!(turn.status.success() && answer.contains("10.5"), "{turn:?}");
}

/// Returns the number of files with compiled code in a folder and its subfolders.
fn count_compiled(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let count = |path: PathBuf| match path.is_dir() {
        true => count_compiled(&path),
        false => usize::from(path.extension() == Some(OsStr::new("cwasm"))),
    };
    entries.map(count).sum()
}

/// The archive is unpacked below a prefix. After `plugin compile`, a new user does not compile the plugins.
#[test]
fn the_archive_runs_below_any_prefix() {
    let (Some(python), Some(tar)) = (system_program("python3"), system_program("tar")) else { return };
    let prefix = tempfile::tempdir().expect("a folder");
    let archive = package(&python, "-linux.tar.gz");
    succeed(Command::new(tar).arg("-xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(prefix.path()));
    for path in
        ["share/man/man1/agent-host-session-list.1", "share/doc/agent-host/LICENSE", "share/doc/agent-host/INSTALL.md"]
    {
        assert!(prefix.path().join(path).is_file(), "{path}");
    }
    let first = Installed::below(prefix.path());
    first.works();
    assert_eq!(first.compiled(), PLUGINS.len(), "the first start compiles the plugins");

    let installer = Installed::below(prefix.path());
    succeed(installer.command().args(["plugin", "compile"]));
    assert_eq!(count_compiled(&prefix.path().join("lib/agent-host/compiled")), PLUGINS.len());
    assert!(!installer.home.path().join(".local").exists(), "the installer gets no data folder");
    let second = Installed::below(prefix.path());
    second.works();
    assert_eq!(second.compiled(), 0, "the installed code is used");
}

/// The completions in the package are loaded by bash.
#[test]
fn bash_loads_the_packed_completions() {
    let (Some(python), Some(tar)) = (system_program("python3"), system_program("tar")) else { return };
    let Some(bash) = system_program("bash") else { return };
    let prefix = tempfile::tempdir().expect("a folder");
    let archive = package(&python, "-linux.tar.gz");
    succeed(Command::new(tar).arg("-xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(prefix.path()));
    let script = r#"source share/bash-completion/completions/agent-host
        COMP_WORDS=(agent-host session sho) COMP_CWORD=2
        _clap_complete_agent_host agent-host sho session; echo "${COMPREPLY[@]}""#;
    let mut command = Command::new(bash);
    command.args(["-c", script]).current_dir(prefix.path()).env("PATH", prefix.path().join("bin"));
    assert_eq!(succeed(&mut command).trim(), "show");
}

/// dpkg installs the Debian package, which compiles the plugins, and removes everything again.
#[test]
fn dpkg_installs_and_removes_the_debian_package() {
    let (Some(python), Some(dpkg)) = (system_program("python3"), system_program("dpkg")) else { return };
    let root = tempfile::tempdir().expect("a folder");
    let database = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        std::fs::create_dir_all(database.join(folder)).expect("a folder");
    }
    std::fs::write(database.join("status"), "").expect("written");
    let run = |arguments: &[&OsStr]| {
        let mut command = Command::new(&dpkg);
        command.arg("--root").arg(root.path()).arg("--log").arg(root.path().join("log"));
        // The folder contains no other packages, so the libraries of the system are used, and scripts run outside.
        command.args(["--force-not-root", "--force-script-chrootless", "--force-depends", "--force-bad-path"]);
        succeed(command.args(arguments))
    };
    let package = package(&python, ".deb");
    run(&["--install".as_ref(), package.as_ref()]);
    assert_eq!(count_compiled(&root.path().join("usr/lib/agent-host/compiled")), PLUGINS.len());
    let status = std::fs::read_to_string(database.join("status")).expect("the status");
    assert!(status.contains("Status: install ok installed"), "{status}");
    assert!(status.contains("Depends: libc6 (>= 2."), "{status}");
    let user = Installed::below(&root.path().join("usr"));
    user.works();
    assert_eq!(user.compiled(), 0, "the code that the installation compiled is used");
    run(&["--verify".as_ref(), "agent-host".as_ref()]);
    run(&["--purge".as_ref(), "agent-host".as_ref()]);
    assert!(!root.path().join("usr/lib").exists(), "no file and no compiled code is left");
}

#[test]
fn pip_installs_the_wheel() {
    let Some(python) = system_program("python3") else { return };
    let environment = tempfile::tempdir().expect("a folder");
    succeed(Command::new(&python).args(["-m", "venv"]).arg(environment.path()));
    let mut pip = Command::new(environment.path().join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    succeed(pip.arg(package(&python, ".whl")));
    let mut pip = Command::new(environment.path().join("bin/python"));
    let shown = succeed(pip.args(["-m", "pip", "--disable-pip-version-check", "show", "agent-host"]));
    assert!(shown.contains(&format!("Version: {VERSION}\n")), "{shown}");
    Installed::below(environment.path()).works();
}

#[test]
fn npm_installs_the_npm_package() {
    let (Some(python), Some(npm)) = (system_program("python3"), system_program("npm")) else { return };
    let project = tempfile::tempdir().expect("a folder");
    std::fs::write(project.path().join("package.json"), "{}").expect("written");
    let mut command = Command::new(npm);
    command.args(["install", "--offline", "--no-audit", "--no-fund", "--no-update-notifier"]);
    succeed(
        command
            .arg(package(&python, ".tgz"))
            .current_dir(project.path())
            .env("npm_config_cache", project.path().join("cache")),
    );
    let modules = project.path().join("node_modules");
    let mut installed = Installed::below(&modules.join("agent-host"));
    installed.program = modules.join(".bin/agent-host");
    installed.works();
    // The program finds the installed plugins, although its command is a link in another folder.
    succeed(installed.command().args(["plugin", "compile"]));
    assert_eq!(count_compiled(&modules.join("agent-host/lib/agent-host/compiled")), PLUGINS.len());
}

/// skopeo accepts the image, and the program runs with nothing but the files of the image.
#[test]
fn the_image_contains_everything_that_the_program_needs() {
    let (Some(python), Some(tar)) = (system_program("python3"), system_program("tar")) else { return };
    let Some(skopeo) = debian("skopeo") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (image, root) = (folder.path().join("image"), folder.path().join("root"));
    let source = format!("oci-archive:{}", package(&python, "-image.tar").display());
    let mut copy = debian_program(&skopeo);
    copy.args(["--insecure-policy", "copy", "--quiet", &source]).arg(format!("dir:{}", image.display()));
    succeed(&mut copy);
    let manifest: serde_json::Value = read_json(&image.join("manifest.json"));
    let blob = |descriptor: &serde_json::Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        image.join(digest.strip_prefix("sha256:").expect("a SHA-256 digest"))
    };
    let configuration = read_json(&blob(&manifest["config"]));
    assert_eq!(configuration["config"]["Entrypoint"], serde_json::json!(["/usr/bin/agent-host"]));
    assert_eq!(configuration["config"]["User"], "65532:65532");

    std::fs::create_dir_all(root.join("proc")).expect("a folder");
    for layer in manifest["layers"].as_array().expect("layers") {
        succeed(Command::new(&tar).args(["--no-same-owner", "-xzf"]).arg(blob(layer)).arg("-C").arg(&root));
    }
    let Some(unshare) = system_program("unshare") else { return };
    let isolated = |arguments: &[&str]| {
        let mut command = Command::new(&unshare);
        command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork"]).args(arguments).stdin(Stdio::null());
        command
    };
    if !isolated(&["true"]).output().is_ok_and(|output| output.status.success()) {
        crate::peers::skipped("this system does not allow new user namespaces");
        return;
    }
    let mount = format!("--mount-proc={}", root.join("proc").display());
    let root = root.to_str().expect("a path in UTF-8");
    let program = [mount.as_str(), "chroot", root, "/usr/bin/agent-host", "--data", "/tmp/data"];
    let turn = isolated(&program).args(["--plugins", "/usr/lib/agent-host/plugins", CALCULATION]).output();
    is_calculated(&turn.expect("the turn runs"));
}

fn read_json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).expect("the file")).expect("a JSON document")
}
