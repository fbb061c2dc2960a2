//! Finds the Rust toolchain that compiles plugins, and adds the Rust target for plugins if it is missing.

use super::{BuildError, BuildEvent, BuildProgress, TARGET, Tools};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Paths of the programs that build plugins. The caller searches its environment for these programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// Path of cargo. None if cargo was not found.
    pub cargo: Option<PathBuf>,
    /// Path of rustup, which can add a missing target. None if rustup was not found.
    pub rustup: Option<PathBuf>,
    /// The folders and variables in which a build searches for the tools for Python, JavaScript and C.
    pub tools: Tools,
    /// What the components are built for.
    pub purpose: Purpose,
    /// Environment variables with secrets of the host, such as the keys of models. Builds run programs of the project and of
    /// its dependencies, which do not need them.
    pub secrets: Vec<String>,
    /// Folder for what the development builds of several projects have in common. None: each project has its own files.
    pub shared: Option<PathBuf>,
}

/// What a component is built for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To be used and shared. The component contains the plugin completely.
    #[default]
    Release,
    /// To try a change as soon as possible, on this machine only. A build of a Python project with the SDK puts the
    /// sources into a component that was built before, so neither the component nor its code is built again.
    Development,
}

/// Environment variables that the build of a plugin must not inherit: the variables that a running cargo sets for its
/// child processes, and compiler flags for the host. `CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS`, `CARGO_TARGET_DIR` and
/// `RUSTUP_TOOLCHAIN` are inherited, so that the same toolchain builds the host and the plugins.
const NOT_INHERITED: &[&str] = &[
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_CRATE_NAME",
    "CARGO_BIN_NAME",
    "CARGO_TARGET_TMPDIR",
    "CARGO_RUSTC_CURRENT_DIR",
    "CARGO_MAKEFLAGS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
    "CARGO_PKG_AUTHORS",
    "CARGO_PKG_DESCRIPTION",
    "CARGO_PKG_HOMEPAGE",
    "CARGO_PKG_REPOSITORY",
    "CARGO_PKG_LICENSE",
    "CARGO_PKG_LICENSE_FILE",
    "CARGO_PKG_README",
    "CARGO_PKG_RUST_VERSION",
    "OUT_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
];

impl Toolchain {
    /// Returns a cargo command that runs in `directory`, where cargo and rustup search for their configuration.
    pub(super) fn cargo(&self, directory: &Path) -> Result<Command, BuildError> {
        self.cargo_program().map(|cargo| self.rust_command(cargo, directory))
    }

    fn cargo_program(&self) -> Result<&Path, BuildError> {
        self.cargo.as_deref().ok_or(BuildError::NoCargo)
    }

    /// Returns the rustc in cargo's folder, or the rustc on the PATH if cargo's folder contains no rustc.
    fn rustc(&self) -> Result<PathBuf, BuildError> {
        let name = format!("rustc{}", std::env::consts::EXE_SUFFIX);
        let sibling = self.cargo_program()?.with_file_name(&name);
        Ok(if sibling.is_file() { sibling } else { PathBuf::from(name) })
    }

    /// Uses rustup to add the Rust target for plugins if the toolchain that is used in `directory` does not have this
    /// target. Reports the rustup command before running it.
    pub(super) async fn ensure_target(&self, directory: &Path, progress: &BuildProgress<'_>) -> Result<(), BuildError> {
        if self.has_target(directory).await? {
            return Ok(());
        }
        let Some(rustup) = &self.rustup else {
            return Err(BuildError::Target {
                reason: format!(
                    "rustup was not found; install the standard library of {TARGET} with your system's package \
                     manager, or install Rust from https://rustup.rs"
                ),
            });
        };
        let command_line = format!("rustup target add {TARGET}");
        progress(BuildEvent::AddingTarget { command: &command_line });
        let output = self.rust_command(rustup, directory).args(["target", "add", TARGET]).output().await;
        let output = output.map_err(|source| BuildError::Start { program: rustup.clone(), source })?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(BuildError::Target {
                reason: format!(
                    "`{command_line}` failed; run it yourself. The command printed:\n{}",
                    stderr.trim_end()
                ),
            });
        }
        if self.has_target(directory).await? {
            return Ok(());
        }
        Err(BuildError::Target {
            reason: format!(
                "`{command_line}` added the target to a toolchain that {} does not use",
                self.cargo_program()?.display()
            ),
        })
    }

    /// Returns whether the Rust toolchain that is used in `directory` has the target for plugins.
    pub async fn has_target(&self, directory: &Path) -> Result<bool, BuildError> {
        let rustc = self.rustc()?;
        let output = self
            .rust_command(&rustc, directory)
            .args(["--print", "target-libdir", "--target", TARGET])
            .output()
            .await
            .map_err(|source| BuildError::Start { program: rustc.clone(), source })?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(BuildError::Target {
                reason: format!(
                    "{} does not support this target; update Rust. The compiler printed:\n{}",
                    rustc.display(),
                    stderr.trim_end()
                ),
            });
        }
        Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
    }

    /// Returns a command that does not inherit the secrets of the host.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in &self.secrets {
            command.env_remove(name);
        }
        command
    }

    fn rust_command(&self, program: &Path, directory: &Path) -> Command {
        let mut command = self.command(program);
        command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command
    }
}
