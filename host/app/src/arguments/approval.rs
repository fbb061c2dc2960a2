//! The options of commands that answer approval requests.

use super::{AgentArguments, session_id};
use agent_core::approval::GrantScope;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

/// Which calls are answered, and what follows.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// The session's id, or a beginning of it that no other has
    #[arg(value_parser = session_id)]
    pub(crate) session: String,
    /// Ids of calls that wait for an approval; all of them where none is named
    #[arg(value_name = "CALL")]
    pub(crate) calls: Vec<String>,
    /// Only store the answer; the turn goes on with --session or --continue
    #[arg(long)]
    pub(crate) no_run: bool,
    /// Print events as JSON lines, and how the turn ended as the last one
    #[arg(long)]
    pub(crate) json: bool,
    /// Which agent.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

/// What `session approve` takes.
#[derive(Debug, Args)]
pub(crate) struct ApproveArguments {
    /// Which calls.
    #[command(flatten)]
    pub(crate) answer: AnswerArguments,
    /// How long the yes is remembered for calls of the same tool
    #[arg(long, value_name = "SCOPE", default_value = "once")]
    pub(crate) scope: Scope,
    /// Run a call with other arguments, a JSON object
    #[arg(long, value_name = "CALL=JSON", value_parser = Edit::parse)]
    pub(crate) edit: Vec<Edit>,
}

/// What `session deny` takes.
#[derive(Debug, Args)]
pub(crate) struct DenyArguments {
    /// Which calls.
    #[command(flatten)]
    pub(crate) answer: AnswerArguments,
    /// Why, for the model
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// How long a yes is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// For these calls only
    Once,
    /// For the rest of the session
    Session,
    /// Until it is revoked
    Always,
}

impl From<Scope> for GrantScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Once => GrantScope::Once,
            Scope::Session => GrantScope::Session,
            Scope::Always => GrantScope::Always,
        }
    }
}

/// Other arguments for a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// The call's id.
    pub(crate) call: String,
    /// With these it runs.
    pub(crate) arguments: Value,
}

impl Edit {
    fn parse(text: &str) -> Result<Self, String> {
        let form = "write CALL=JSON, for example call_1_1_1='{\"path\": \"a.txt\"}'";
        let (call, json) = text.split_once('=').ok_or_else(|| format!("there is no `=`; {form}"))?;
        let arguments = serde_json::from_str(json).map_err(|error| format!("that is no JSON: {error}; {form}"))?;
        Ok(Self { call: call.trim().to_owned(), arguments })
    }
}

/// Commands on what was allowed for good.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// Show what was allowed for good, the latest first
    List {
        /// The agent's name; all agents that have sessions where it is left out
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        /// Print one JSON line per grant
        #[arg(long)]
        json: bool,
    },
    /// Take grants back; it holds at once, for running turns, too
    Revoke {
        /// Their ids as `approvals list` shows them, or beginnings that no other has
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// L17
    #[test]
    fn l17_an_edit_names_its_call() {
        let edit = Edit::parse("call_1_1_1={\"a\": \"b=c\"}").expect("an edit");
        assert_eq!((edit.call.as_str(), edit.arguments), ("call_1_1_1", json!({"a": "b=c"})));
        assert!(Edit::parse("{}").expect_err("no call").contains("CALL=JSON"));
        assert!(Edit::parse("c={").expect_err("no JSON").contains("no JSON"));
    }
}
