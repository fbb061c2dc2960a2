//! For authors of plugins: makes plugin projects (S1), and builds them into components that carry their manifest (S2).

pub mod build;
mod carried;
mod language;
pub mod new;

pub use language::Language;
