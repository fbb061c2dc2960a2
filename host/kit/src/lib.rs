//! For authors of plugins: makes plugin projects (S1), builds them into components that carry their
//! manifest (S2), checks what was built (S3), and
//! builds anew what has changed (S5).

pub mod build;
mod carried;
pub mod check;
pub mod dev;
mod language;
pub mod new;

pub use language::Language;
