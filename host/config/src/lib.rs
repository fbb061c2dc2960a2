//! Builds agents from `agent.toml` and a caller's options.
//!
//! The command-line program, a server and a worker all build their agents with this crate, in this order:
//!
//! 1. [`HostEnvironment`]: contains the values that the caller has read from its environment.
//! 2. [`Settings::read`]: reads validated settings from [`AgentOptions`] and `agent.toml`. If neither the options nor
//!    the file names a model, [`choose_model`] lets the user choose a model.
//! 3. [`DataDirectory::open`], [`assembly::open_store`] and [`assembly::open_sandbox`]: open the data folder, the
//!    database and the sandbox, which all agents of the host share.
//! 4. [`assembly::Assembler::assemble`]: loads the plugins, and builds the agent and the agents that it delegates to.
//! 5. [`AgentWatch`]: watches the plugin directories and the agents' files, and applies changes in them to the running
//!    agents.
//!
//! This crate does not print, exit, ask the user or read the environment. This crate sends progress and warnings to a
//! [`Reporter`], and questions to a [`ModelChooser`] or a [`first_use::FirstUsePrompt`], which are traits that the
//! caller implements.

mod error;
mod report;
mod text;

pub mod grants;

mod plugin_access;

pub mod agent_file;

pub mod trust;

mod environment;

pub mod user_file;

pub mod settings;

mod plugin_lock;

mod data_directory;

mod data_location;

mod media_location;

mod nats_location;

pub mod protection;

pub mod assembly;

pub mod first_use;

mod watch;

mod proposed_file;

pub use agent_file::AgentFile;
pub use assembly::AssembledAgent;
pub use data_directory::DataDirectory;
pub use data_location::{DataLocation, SharedDatabase};
pub use environment::{COMPILE_COMMAND, HostEnvironment, INSTALLED_PLUGINS, installed_code_of};
pub use error::ConfigError;
pub use media_location::MediaStore;
pub use nats_location::{nats_from_option, nats_from_variable, nats_with_certificate, nats_with_credentials};
pub use plugin_access::{MissingAccess, PluginAccess};
pub use plugin_lock::{PluginLockState, plugin_lock_state};
pub use proposed_file::{ProposedFile, save_agent_file, text_digest};
pub use report::{Reporter, Silent, Warning};
pub use settings::{AgentOptions, ModelChooser, Problems, Settings, choose_model};
pub use text::{grouped, one_line, shell_word, size};
pub use user_file::UserFile;
pub use watch::{AgentWatch, WatchEvent};
