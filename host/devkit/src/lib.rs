//! For authors of plugins: makes plugin projects (S1), builds them into components that carry their manifest (S2), checks
//! what was built (S3), plays scenarios on it (S4), builds anew what has changed (S5), and has plugins do again what they did in
//! a stored session (S6).

pub mod build;
mod carried;
pub mod check;
pub mod dev;
mod diff;
mod language;
pub mod new;
pub mod replay;
pub mod scenario;
pub mod vendored;
mod written;

pub use language::Language;
