//! How an agent's set of plugins changes over time: the watched plugin directory, generations, and canary calls of new
//! plugin versions.

mod canary;
pub(crate) mod generation;
pub(crate) mod plugin_directory;
