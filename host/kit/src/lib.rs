//! For authors of plugins: builds plugin projects into components that carry their manifest (S2).

pub mod build;
