//! Starts the sandbox that plugins run in, and protects the host's own files.

use crate::data_directory::DataDirectory;
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::protection;
use crate::settings::Settings;
use agent_plugins::{CompilerCommand, HostLimits, Sandbox, SandboxOptions};
use agent_registry::{LockFileVerifier, Trust};
use std::sync::Arc;

/// Opens a sandbox for use without an agent, with the default limits and without trusted keys.
pub fn open_default_sandbox(data: &DataDirectory, environment: &HostEnvironment) -> Result<Sandbox, ConfigError> {
    open_limited_sandbox((data, environment), HostLimits::default(), Trust::default())
}

/// Opens a sandbox with the limits and the signature rules of an agent's file. In this sandbox, no grant covers the
/// files of the agent.
pub fn open_sandbox(settings: &Settings, data: &DataDirectory) -> Result<Sandbox, ConfigError> {
    let (limits, trust) = (settings.host_limits(), settings.file.sharing.clone());
    let sandbox = open_limited_sandbox((data, &settings.environment), limits, trust)?;
    // The agent's files are protected by this function, so that no caller can forget to protect these files.
    sandbox.protect(protection::paths_of_agent(settings));
    Ok(sandbox)
}

/// Opens a sandbox with the given limits and signature rules.
pub fn open_limited_sandbox(
    (data, environment): (&DataDirectory, &HostEnvironment),
    limits: HostLimits,
    trust: Trust,
) -> Result<Sandbox, ConfigError> {
    let options = SandboxOptions {
        cache_directory: Some(data.cache()),
        installed_code: environment.installed_code(),
        store_directory: Some(data.plugins()),
        scratch_directory: Some(data.scratch()),
        compiler: Some(compiler(environment)?),
        limits,
        verifier: Some(Arc::new(LockFileVerifier { trust })),
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::new(options)?;
    sandbox.protect(protection::paths_of_host(data, environment));
    Ok(sandbox)
}

/// Opens a sandbox with the limits and the signature rules of an agent's file that stores nothing, for a machine without a
/// data folder.
pub fn open_checking_sandbox(settings: &Settings) -> Result<Sandbox, ConfigError> {
    Ok(open_examining_sandbox(&settings.environment, settings.host_limits())?.verified_by(vetting(settings)))
}

/// Opens a sandbox that examines components and stores nothing: neither the components nor their compiled code.
pub fn open_examining_sandbox(environment: &HostEnvironment, limits: HostLimits) -> Result<Sandbox, ConfigError> {
    let options = SandboxOptions {
        installed_code: environment.installed_code(),
        compiler: Some(compiler(environment)?),
        limits,
        ..SandboxOptions::default()
    };
    Ok(Sandbox::new(options)?)
}

fn compiler(environment: &HostEnvironment) -> Result<CompilerCommand, ConfigError> {
    environment.compiler.clone().ok_or_else(|| {
        ConfigError::settings(
            "the path of this program is unknown, but the host must start this program again to examine components",
        )
    })
}

/// Returns the sandbox for another agent of the same host. In this sandbox, the signature rules of the other agent's
/// file apply in addition to the signature rules of the first agent's file.
pub fn vetted_sandbox(sandbox: &Sandbox, settings: &Settings) -> Sandbox {
    sandbox.verified_by(vetting(settings))
}

/// Returns the signature rules of an agent's file.
pub(super) fn vetting(settings: &Settings) -> Arc<LockFileVerifier> {
    Arc::new(LockFileVerifier { trust: settings.file.sharing.clone() })
}
