//! Reads the bytes of a component before wasmtime does: sections, imports, exports, structure and documentation.

pub(crate) mod docs;
pub(crate) mod imports;
pub(crate) mod scan;
pub(crate) mod sections;
pub(crate) mod structure;
