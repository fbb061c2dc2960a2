//! The measured components: plugins and fixtures of the repository, built with the code of `plugin build`.

use agent_devkit::build::{Toolchain, build};
use std::path::{Path, PathBuf};

/// Builds a project of the repository if it has changed, and returns the path of its component. Async code must not
/// call this function, because the function starts its own async runtime.
pub(crate) fn built(project: &str) -> wasmtime::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let toolchain = Toolchain { cargo: Some(cargo), rustup: Some(PathBuf::from("rustup")), ..Toolchain::default() };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("host/app is two levels deep");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let built =
        runtime.block_on(build(&toolchain, &repository.join(project), &scratch().join("components"), &|_| {}))?;
    Ok(built.path)
}

/// Returns the folder for built components and their compiled code. The folder is kept between runs of the benchmarks.
pub(crate) fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("benches")
}
