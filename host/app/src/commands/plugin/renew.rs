//! `plugin renew`: updates projects to the SDK and the WIT contract that this version of agent-host includes (S1).

use crate::exit::Failure;
use crate::terminal::{BOLD, Terminal, text};
use agent_devkit::build::projects_at;
use agent_devkit::renew::{RenewError, Renewal, renew as renew_project};
use std::path::Path;

/// Updates the project, or all projects of the folder, and reports the result for each project.
pub(super) fn renew(directory: &Path, terminal: &Terminal) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for project in projects_at(directory).map_err(Failure::refused)? {
        let result = match renew_project(&project) {
            Ok(Renewal::NothingToRenew) => {
                "contains no copy of the SDK or of the WIT contract that can be renewed".to_owned()
            }
            Ok(Renewal::UpToDate) => "is up to date with this agent-host".to_owned(),
            Ok(Renewal::Renewed { from, changed }) => renewed(&from, changed),
            Err(error @ RenewError::File { .. }) => return Err(Failure::failed(error)),
            Err(error) => {
                refused.push(error.to_string());
                continue;
            }
        };
        super::print(terminal, format!("{BOLD}{}{BOLD:#}  {result}", project.name()))?;
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::refused(refused.join("\n"))) }
}

fn renewed(from: &str, changed: usize) -> String {
    let from = if from.is_empty() { String::new() } else { format!("from agent-host {}, ", text::one_line(from, 40)) };
    let (changed, to) = (text::count(changed, "file"), env!("CARGO_PKG_VERSION"));
    format!("renewed: {from}{changed} updated to agent-host {to}; build and test it")
}
