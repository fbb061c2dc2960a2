//! The plugins of an agent over time: the watched plugin directory, generations, and the canary call of a new version.

mod canary;
pub(crate) mod generation;
pub(crate) mod plugin_directory;
