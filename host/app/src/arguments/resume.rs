//! Command-line arguments of `session resume`, which are the options of a turn with the session as the first argument, and of
//! `session pick`.

use super::{AgentArguments, RunArguments, session_id, tool_pattern};
use clap::Args;

/// Arguments of `session resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    /// Session id, or an unambiguous part of it (default: the agent's latest session)
    #[arg(value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// Prompt for the agent, or the answer to its question; without PROMPT, only an interrupted turn is finished
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Approve calls to tools with this name, each time for one call only; `*` matches any characters
    #[arg(long, value_name = "TOOL", value_parser = tool_pattern)]
    yes: Vec<String>,
    /// Print events as JSON lines; the last line is the turn's result
    #[arg(long)]
    json: bool,
    /// Options that configure the agent that this command runs.
    #[command(flatten)]
    agent: AgentArguments,
}

/// Arguments of `session pick`.
#[derive(Debug, Args)]
pub(crate) struct PickArguments {
    /// Words; only sessions with these words in their title, id or messages are listed
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Options that configure the agent that continues the session. Only sessions of this agent are listed.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

impl From<ResumeArguments> for RunArguments {
    /// Converts the arguments to the equivalent options of a turn: `--session ID PROMPT`, or `--continue` if the
    /// arguments contain no session.
    fn from(ResumeArguments { session, prompt, yes, json, agent }: ResumeArguments) -> Self {
        Self { continue_latest: session.is_none(), session, prompt, yes, json, agent, ..Self::default() }
    }
}
