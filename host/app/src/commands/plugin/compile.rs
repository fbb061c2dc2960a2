//! `plugin compile`: compiles installed plugins for all users of a machine.

use crate::arguments::compile::CompileArguments;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{Terminal, show_load};
use agent_config::{DataDirectory, INSTALLED_PLUGINS, assembly, installed_code_of};
use agent_plugins::InstallError;
use std::path::{Path, PathBuf};

/// Compiles the plugins in a folder, and writes their code to the output folder.
pub(super) async fn compile(arguments: CompileArguments, terminal: &Terminal) -> Result<(), Failure> {
    let CompileArguments { directory, output } = arguments;
    let mut environment = environment::host();
    let directory = directory.or_else(|| environment.installed_plugins()).ok_or_else(|| {
        Failure::refused("no plugins were installed together with this program; name a folder that contains plugins")
    })?;
    let output = output.unwrap_or_else(|| installed_code_of(&directory));
    let components = components_in(&directory)?;
    // The installer may run as root, who should not get a data folder because of that. Without installed plugins, the
    // sandbox compiles every component. The code is compiled next to its place and not in the folder for temporary files,
    // where a plugin may be able to change it.
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = || {
        std::fs::create_dir_all(parent)?;
        tempfile::Builder::new().prefix(".compiling-").tempdir_in(parent)
    };
    let data_folder = temporary().map_err(|error| {
        let parent = parent.display();
        Failure::refused(format!("`{parent}` cannot be written: {error}; run the command as a user who may write it"))
    })?;
    environment.program = None;
    let environment = environment
        .with_variables(|name| if name == INSTALLED_PLUGINS { None } else { crate::environment::variable(name) });
    let data = DataDirectory::open(Some(data_folder.path()), &environment)?;
    let sandbox = assembly::open_default_sandbox(&data, &environment)?;
    let installed = sandbox.install_code(&components, &output, &|event| show_load(terminal, &event)).await;
    terminal.idle();
    installed.map_err(|error| match error {
        InstallError::Load { .. } => Failure::failed(error),
        InstallError::Write { .. } => Failure::refused(error),
    })?;
    terminal.note(format!("the compiled code of {} plugins is in {}", components.len(), output.display()));
    Ok(())
}

/// Returns the component files of a folder, sorted by name.
fn components_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!(
            "the plugin folder `{}` cannot be read: {error}; name a folder that contains plugins",
            directory.display()
        ))
    };
    let entries = std::fs::read_dir(directory).map_err(failed)?.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    let paths = entries.into_iter().map(|entry| entry.path());
    let mut components: Vec<_> = paths.filter(|path| path.extension().is_some_and(|name| name == "wasm")).collect();
    components.sort();
    if components.is_empty() {
        return Err(Failure::refused(format!(
            "the folder `{}` contains no plugins (*.wasm); name a folder that contains plugins",
            directory.display()
        )));
    }
    Ok(components)
}
