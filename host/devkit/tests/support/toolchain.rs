//! The Rust toolchain for tests that build plugins. A new machine has no target for plugins, so the tests add it.

use agent_devkit::build::Toolchain;
use std::process::Command;
use std::sync::Once;

/// Returns the toolchain that runs the tests. The first call adds the target for plugins if it is missing.
pub(crate) fn toolchain() -> Toolchain {
    static TARGET: Once = Once::new();
    TARGET.call_once(|| {
        let printed = Command::new("rustc").args(["--print", "target-libdir", "--target", "wasm32-wasip2"]).output();
        let folder = String::from_utf8(printed.expect("rustc starts").stdout).expect("a path");
        if !std::path::Path::new(folder.trim()).is_dir() {
            let added = Command::new("rustup").args(["target", "add", "wasm32-wasip2"]).status();
            assert!(added.expect("rustup starts").success(), "the target for plugins cannot be added");
        }
    });
    Toolchain { cargo: Some(env!("CARGO").into()), ..Toolchain::default() }
}
