//! `plugin renew`: projects get the SDK and the contract that this agent-host carries (S1).

use crate::exit::Failure;
use crate::terminal::{BOLD, Terminal, text};
use agent_devkit::build::projects_at;
use agent_devkit::vendored::{RenewError, Renewal, renew as renew_one};
use std::path::Path;

/// Renews the project, or all of the folder, and says of each what became of it.
pub(super) fn renew(directory: &Path, terminal: &Terminal) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for project in projects_at(directory).map_err(Failure::refused)? {
        let words = match renew_one(&project) {
            Ok(Renewal::NothingHere) => "has nothing of agent-host in it to renew".to_owned(),
            Ok(Renewal::UpToDate) => "has what this agent-host carries".to_owned(),
            Ok(Renewal::Renewed { from, changed }) => renewed(&from, changed),
            Err(error @ RenewError::File { .. }) => return Err(Failure::failed(error)),
            Err(error) => {
                refused.push(error.to_string());
                continue;
            }
        };
        super::print(terminal, format!("{BOLD}{}{BOLD:#}  {words}", project.name()))?;
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::refused(refused.join("\n"))) }
}

fn renewed(from: &str, changed: usize) -> String {
    let from = if from.is_empty() { String::new() } else { format!("from agent-host {}, ", text::one_line(from, 40)) };
    let (changed, to) = (text::count(changed, "file"), env!("CARGO_PKG_VERSION"));
    format!("renewed: {from}{changed} as agent-host {to} carries them; build and test it")
}
