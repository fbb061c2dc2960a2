//! Where the bindings for guests in C are: a folder for each world, made by the build script.

/// Holds a folder for each world, with a header, a source and an object file.
pub const DIRECTORY: &str = env!("OUT_DIR");
