//! `approvals list|revoke`: the approvals that apply to all future sessions (L17).

use crate::arguments::approval::ApprovalsCommand;
use crate::exit::{Exit, Failure};
use crate::terminal::approval::escaped;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_config::{DataDirectory, assembly};
use agent_runtime::approvals::{remember_grants, revoke};
use agent_store::{Store, StoredGrant};

/// Displayed length of an approval's id, in characters.
const SHOWN_ID: usize = 12;

/// Runs a subcommand of `approvals`.
pub(crate) async fn run(command: ApprovalsCommand, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let store = assembly::open_store_to_read(data).await?;
    remember_grants(&*store, None).await.map_err(Failure::failed)?;
    match command {
        ApprovalsCommand::List { of, json } => {
            let all = grants(&*store, of).await?;
            for grant in &all {
                match json {
                    true => terminal.print(serde_json::to_string(grant).map_err(Failure::failed)?),
                    false => terminal.print_entry(&describe(grant)),
                }
                .map_err(Failure::output)?;
            }
            if all.is_empty() && !json {
                terminal.note("there are no permanent approvals");
            }
        }
        ApprovalsCommand::Revoke { ids } => {
            let all = grants(&*store, None).await?;
            // Resolve all prefixes before the first approval is revoked, so that the order of the prefixes does
            // not matter.
            let selected: Vec<_> = ids.iter().map(|id| find_by_prefix(&all, id)).collect::<Result<_, _>>()?;
            for grant in selected {
                revoke(&*store, &grant.id).await.map_err(Failure::failed)?;
                terminal.note(format!("revoked: {}", describe(grant)));
            }
        }
    }
    Ok(Exit::Done)
}

/// Reads the permanent approvals of one agent, or of all agents. The approvals of each agent are sorted from latest
/// to oldest.
async fn grants(store: &dyn Store, of: Option<String>) -> Result<Vec<StoredGrant>, Failure> {
    let agents = match of {
        Some(agent) => vec![agent],
        None => store.agents_with_grants().await.map_err(Failure::failed)?,
    };
    let mut all = Vec::new();
    for agent in agents {
        all.extend(store.allowed(&agent).await.map_err(Failure::failed)?);
    }
    Ok(all)
}

fn find_by_prefix<'a>(all: &'a [StoredGrant], id: &str) -> Result<&'a StoredGrant, Failure> {
    let matches: Vec<_> = all.iter().filter(|grant| grant.id.starts_with(id)).collect();
    match (id.is_empty(), matches.as_slice()) {
        (false, [one]) => Ok(one),
        (false, []) => {
            Err(Failure::refused(format!("there is no approval `{id}`; `agent-host approvals list` shows all")))
        }
        _ => Err(Failure::refused(format!(
            "the ids of {} approvals begin with `{id}`; write more characters of the id",
            matches.len()
        ))),
    }
}

fn describe(stored: &StoredGrant) -> String {
    let StoredGrant { id, grant, given } = stored;
    let arguments = grant.arguments.as_ref().map(|digest| format!(", arguments {}", digest.short()));
    let arguments = arguments.unwrap_or_else(|| ", any arguments".to_owned());
    let (agent, tool, digest) = (escaped(&grant.agent), escaped(&grant.tool), grant.digest.short());
    let given = text::local_time(given);
    let id = id.get(..SHOWN_ID).unwrap_or(id);
    format!("{BOLD}{id}{BOLD:#}  {agent} may call {BOLD}{tool}{BOLD:#}  {DIM}{digest}{arguments}, {given}{DIM:#}")
}
