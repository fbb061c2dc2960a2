//! `token`: creates, lists and revokes the tokens of the HTTP server (I3).

use super::serve::token_file;
use crate::arguments::serve::{TokenArguments, TokenCommand};
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal};
use agent_config::DataDirectory;
use agent_serve::{NewToken, Right, Token};

/// Runs a subcommand of `token`.
pub(crate) fn run(arguments: TokenArguments, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let file = token_file(arguments.tokens.as_deref(), data);
    match arguments.command {
        TokenCommand::Create { name, rights, agent, user } => {
            let rights = rights.into_iter().map(Right::from).collect();
            let token = file.create(NewToken { name, agents: agent, rights, user }).map_err(Failure::refused)?;
            terminal.print(&token).map_err(Failure::output)?;
            terminal.note("the token is shown only once, and only its digest is stored");
        }
        TokenCommand::List => {
            let tokens = file.tokens().map_err(Failure::refused)?;
            if tokens.is_empty() {
                terminal.note(
                    "there are no tokens: `agent-host serve` creates the first token, and so does `token create`",
                );
            }
            for token in &tokens {
                terminal.print(line_of(token)).map_err(Failure::output)?;
            }
        }
        TokenCommand::Revoke { name } => {
            file.revoke(&name).map_err(Failure::refused)?;
            terminal.note(format!("revoked the token `{name}`"));
        }
    }
    Ok(Exit::Done)
}

fn line_of(token: &Token) -> String {
    let rights: Vec<_> = token.rights.iter().filter_map(|right| serde_json::to_value(right).ok()).collect();
    let rights: Vec<_> = rights.iter().filter_map(|right| right.as_str()).collect();
    let agents = if token.agents.is_empty() { "all agents".to_owned() } else { token.agents.join(", ") };
    let user = token.user.as_ref().map(|user| format!(" · user {user}")).unwrap_or_default();
    format!("{BOLD}{}{BOLD:#} {} {DIM}· {agents}{user} · {}{DIM:#}", token.name, rights.join(", "), token.created)
}
