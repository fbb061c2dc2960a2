//! Embeds in the library the files from which new plugin projects are created: the SDKs, the WIT contract and the
//! project templates.

use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Paths of the files and folders to embed, relative to the root of the checkout. If a path is a folder, all files in
/// the folder are embedded.
const EMBEDDED: [&str; 12] = [
    "Cargo.toml",
    "sdk/Cargo.toml",
    "sdk/README.md",
    "sdk/python/agent_host_sdk",
    "sdk/src",
    "sdk/wit",
    "sdk/javascript",
    "sdk/c",
    "sdk/bindings/Cargo.toml",
    "sdk/bindings/src",
    "wit",
    "host/devkit/templates",
];

fn main() -> Result<(), Box<dyn Error>> {
    let top =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?).join("../..");
    let top = top.canonicalize()?;
    let mut files = Vec::new();
    for path in EMBEDDED {
        println!("cargo::rerun-if-changed={}", top.join(path).display());
        collect_files(&top.join(path), &mut files)?;
    }
    let not_embedded = ["wit/released", "sdk/javascript/tests"].map(|folder| top.join(folder));
    files.retain(|path| !not_embedded.iter().any(|folder| path.starts_with(folder)));
    files.sort();
    let mut code =
        "/// The embedded files: the path of each file, relative to the root of the checkout, and its content.\npub(crate) const FILES: &[(&str, &str)] = &[\n"
            .to_owned();
    for path in files {
        let name = path.strip_prefix(&top)?.to_str().ok_or("a path is not UTF-8")?.replace('\\', "/");
        writeln!(code, "    ({name:?}, include_str!({:?})),", path.to_str().ok_or("a path is not UTF-8")?)?;
    }
    code.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("embedded.rs"), code)?;
    Ok(())
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        // Python writes compiled modules into this folder if somebody runs the SDK's tests.
        if !path.ends_with("__pycache__") {
            collect_files(&path, files)?;
        }
    }
    Ok(())
}
