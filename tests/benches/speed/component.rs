//! The component that both sides call: the fixture `probe`, built by the code behind `plugin build`.

use agent_kit::build::{Toolchain, build};
use std::path::{Path, PathBuf};

/// Builds it, where it has changed, and says where it is.
pub(crate) fn probe() -> wasmtime::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    let toolchain = Toolchain { cargo, rustup: Some(PathBuf::from("rustup")) };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("host/app is two levels deep");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let project = repository.join("tests/fixtures/probe");
    let built = runtime.block_on(build(&toolchain, &project, &scratch().join("components"), &|_| {}))?;
    Ok(built.path)
}

/// Kept between runs: the built component and its compiled code.
pub(crate) fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("benches")
}
