//! For authors of plugins: builds plugin projects into components that carry their manifest (S2), and plays scenarios on
//! them (S4), and has plugins do again what they did in a stored session (S6).

pub mod build;
mod diff;
pub mod replay;
pub mod scenario;
