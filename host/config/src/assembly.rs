//! Builds the parts of a running host from settings: the store, the sandbox, the loaded plugins, the models and the
//! agents.

mod store;

mod store_copy;

mod sandbox;

mod plugins;

mod models;

mod agent_config;

mod approval_rules;

mod agent;

mod examine;

mod delegates;

mod assembler;

pub use agent::{ModelRebuild, Reconfigured, make_agent, make_test_agent, reconfigure, refuse_unknown_plugins};
pub use agent_config::{allowance, plugin_names};
pub use assembler::{AssembledAgents, Assembler, UnusablePlugins};
pub use delegates::{AssembledAgent, DelegateReader, Delegates, load_delegates};
pub use examine::examine;
pub use models::{model_named, models, retry_policy};
pub use plugins::{load_plugins, refuse_unusable_plugins, serving_plugins, warn_of_no_plugins, warn_of_unused_grants};
pub use sandbox::{
    open_checking_sandbox, open_default_sandbox, open_examining_sandbox, open_limited_sandbox, open_sandbox,
    vetted_sandbox,
};
pub use store::{
    examine_media_store, examine_shared_database, open_store, open_store_to_read, open_store_to_rebuild,
    open_store_unchanged, open_temporary_store,
};
pub use store_copy::{CopyPlace, StoreCopyError, copy_all_data};
