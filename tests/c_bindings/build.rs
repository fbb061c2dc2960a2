//! Generates C bindings for the worlds that the tests' guests implement.

use std::error::Error;
use std::path::{Path, PathBuf};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

/// For each world, the WIT folder or file that defines it, and the name of the world.
const WORLDS: [(&str, &str); 2] = [("../../wit", "tool-plugin"), ("../guests/words.wit", "words")];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for (wit, world) in WORLDS {
        println!("cargo::rerun-if-changed={wit}");
        write(Path::new(wit), world, &out.join(world))?;
    }
    Ok(())
}

fn write(wit: &Path, world: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some(world))?;
    let mut files = Files::default();
    wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files)?;
    std::fs::create_dir_all(directory)?;
    for (name, content) in files.iter() {
        std::fs::write(directory.join(name), content)?;
    }
    Ok(())
}
