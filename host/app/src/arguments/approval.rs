//! Command-line arguments of `session approve`, `session deny` and `approvals`.

use super::{AgentArguments, session_id};
use agent_core::approval::GrantScope;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

/// Arguments that `session approve` and `session deny` share.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// Session id, or an unambiguous part of it
    #[arg(value_parser = session_id)]
    pub(crate) session: String,
    /// Ids of calls that wait for an approval (default: all of them)
    #[arg(value_name = "CALL")]
    pub(crate) calls: Vec<String>,
    /// Only store the answer; --session or --continue continues the turn later
    #[arg(long)]
    pub(crate) no_run: bool,
    /// Print events as JSON lines; the last line is the turn's result
    #[arg(long)]
    pub(crate) json: bool,
    /// Options that configure the agent that the session belongs to.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

/// Arguments of `session approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArguments {
    /// Options that select the session and the calls to answer.
    #[command(flatten)]
    pub(crate) answer: AnswerArguments,
    /// How long the approval applies to calls to the same tool
    #[arg(long, value_name = "SCOPE", default_value = "once")]
    pub(crate) scope: Scope,
    /// Replace the arguments of a call with this JSON object
    #[arg(long, value_name = "CALL=JSON", value_parser = Edit::parse)]
    pub(crate) edit: Vec<Edit>,
}

/// Arguments of `session deny`.
#[derive(Debug, Args)]
pub(crate) struct DenyArguments {
    /// Options that select the session and the calls to answer.
    #[command(flatten)]
    pub(crate) answer: AnswerArguments,
    /// Reason for the denial, which the model gets
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// How long an approval lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Only for these calls
    Once,
    /// Until the end of the session
    Session,
    /// Until the approval is revoked
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

/// Replacement arguments for a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edit {
    /// Id of the call.
    pub(crate) call: String,
    /// The arguments that replace the model's arguments.
    pub(crate) arguments: Value,
}

impl Edit {
    fn parse(text: &str) -> Result<Self, String> {
        let form = "write CALL=JSON, for example call_1_1_1='{\"path\": \"a.txt\"}'";
        let (call, json) = text.split_once('=').ok_or_else(|| format!("there is no `=`; {form}"))?;
        let arguments =
            serde_json::from_str(json).map_err(|error| format!("the arguments are not valid JSON: {error}; {form}"))?;
        Ok(Self { call: call.trim().to_owned(), arguments })
    }
}

/// Commands on permanent approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List permanent approvals, latest first
    List {
        /// Name of the agent (default: all agents that have sessions)
        #[arg(long, value_name = "NAME")]
        of: Option<String>,
        /// Print one JSON line per approval
        #[arg(long)]
        json: bool,
    },
    /// Revoke approvals; a revocation takes effect immediately, even for turns that are running
    Revoke {
        /// Approval ids from `approvals list`, or unique prefixes of them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn l17_parses_edit_with_call_and_arguments() {
        let edit = Edit::parse("call_1_1_1={\"a\": \"b=c\"}").expect("an edit");
        assert_eq!((edit.call.as_str(), edit.arguments), ("call_1_1_1", json!({"a": "b=c"})));
        assert!(Edit::parse("{}").expect_err("no call").contains("CALL=JSON"));
        assert!(Edit::parse("c={").expect_err("invalid JSON").contains("not valid JSON"));
    }
}
