//! For authors of plugins: builds plugin projects into components that carry their manifest (S2), and plays scenarios on
//! them (S4).

pub mod build;
pub mod scenario;
