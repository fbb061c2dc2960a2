//! The location of the generated bindings for guests in C.

/// A folder that contains, for each world, a folder with a header, a source and an object file.
pub const DIRECTORY: &str = env!("OUT_DIR");
