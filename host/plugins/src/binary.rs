//! Reads a component's sections, imports, exports, structure and documentation from its bytes, before wasmtime reads
//! the component.

pub(crate) mod development;
pub(crate) mod docs;
pub(crate) mod imports;
pub(crate) mod metadata;
pub(crate) mod scan;
pub(crate) mod sections;
pub(crate) mod structure;
