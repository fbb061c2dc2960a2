//! The options of `session resume`: those of a turn, with the session as the first word.

use super::{AgentArguments, RunArguments, session_id, tool_pattern};
use clap::Args;

/// What `session resume` takes.
#[derive(Debug, Args)]
pub(crate) struct ResumeArguments {
    /// Its id, or a beginning of it that no other has; the agent's latest where it is left out
    #[arg(value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// What the agent is asked, or the answer to its question; without, what was interrupted is finished
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Say yes to calls of this tool that must be allowed, once to each; `*` stands for any characters
    #[arg(long, value_name = "TOOL", value_parser = tool_pattern)]
    yes: Vec<String>,
    /// Print events as JSON lines, and how the turn ended as the last one
    #[arg(long)]
    json: bool,
    /// Which agent.
    #[command(flatten)]
    agent: AgentArguments,
}

impl From<ResumeArguments> for RunArguments {
    /// The command line that says the same: `--session ID PROMPT`, or `--continue`.
    fn from(ResumeArguments { session, prompt, yes, json, agent }: ResumeArguments) -> Self {
        Self { continue_latest: session.is_none(), session, prompt, yes, json, agent, ..Self::default() }
    }
}
