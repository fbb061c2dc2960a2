//! The built program, as a user without a configuration of their own runs it.

use std::path::Path;
use std::process::Command;

/// Returns a command that runs the built program. Neither the user-wide configuration nor the variables of the person who runs the
/// tests change what it does.
pub(crate) fn agent_host() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-host"));
    let user = Path::new(env!("CARGO_TARGET_TMPDIR")).join("user");
    command.env("XDG_CONFIG_HOME", user.join("configuration")).env("XDG_DATA_HOME", user.join("data"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("AGENT_HOST_")) {
            command.env_remove(name);
        }
    }
    command
}
