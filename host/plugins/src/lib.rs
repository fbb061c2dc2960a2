//! Placeholder.
mod bindings;
mod media { pub struct OpenMedium; pub struct GrowingMedium; }
