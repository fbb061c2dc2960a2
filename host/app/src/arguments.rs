//! Declares the command-line arguments, which clap parses.

pub(crate) mod acp;
pub(crate) mod approval;
pub(crate) mod compile;
mod config;
mod dead_letter;
pub(crate) mod describe;
mod help;
pub(crate) mod mcp;
mod model;
pub(crate) mod new;
mod plugin;
pub(crate) mod replay;
mod request_number;
pub(crate) mod resume;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod sharing;
mod shell;
mod stored_data;
pub(crate) mod test;
mod trace;
pub(crate) mod trust;
mod typo_hints;
pub(crate) mod usage;
pub(crate) mod versions;

use agent_config::agent_file::url_problem;
use agent_config::grants::Grant;
use agent_config::{AgentOptions, COMPILE_COMMAND};
use agent_runtime::UserName;
use approval::{ApprovalsCommand, ApproveArguments, DenyArguments};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use config::ConfigCommand;
pub(crate) use dead_letter::{DeadLetterCommand, SelectedLetters};
use help::{LONG, SHORT, USAGE};
pub(crate) use model::ModelCommand;
use new::DevArguments;
pub(crate) use plugin::PluginCommand;
use replay::ReplayArguments;
pub(crate) use request_number::RequestNumber;
use resume::{PickArguments, ResumeArguments};
pub(crate) use serve::NatsArguments;
use sharing::KeyCommand;
pub(crate) use shell::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
pub(crate) use stored_data::{OutboxCommand, StoreCommand};
use test::TestArguments;
pub(crate) use trace::{ContentArgument, TraceCommand, TraceExportArguments};
pub(crate) use typo_hints::hint_for_error;
use versions::AuditArguments;

/// Runs an AI agent whose tools, context, checks and masking are WebAssembly plugins.
///
/// The host owns the loop, the model and the memory. A plugin can access only what you grant to it.
#[derive(Debug, Parser)]
#[command(name = "agent-host", version, override_usage = USAGE, after_help = SHORT, after_long_help = LONG)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// The subcommand on the command line. Without a subcommand, the program runs a turn.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Options of a turn. It is an error to write options of a turn before a subcommand.
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// Options that every command accepts.
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// Options that every command accepts.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommonArguments {
    /// Folder for sessions, compiled code and copies of loaded plugins
    #[arg(long, global = true, value_name = "DIR", env = "AGENT_HOST_DATA", hide_env_values = true)]
    #[arg(help_heading = "Everywhere", value_parser = OsStringValueParser::new().try_map(data_folder))]
    pub(crate) data: Option<PathBuf>,
    /// PostgreSQL database with the sessions, instead of the file in the data folder: postgres://USER@HOST/DATABASE. The
    /// password is in PGPASSWORD, or the whole address with the password is in AGENT_HOST_STORE
    // The value is parsed later, because an error of clap would print it, and it may contain a password.
    #[arg(long, global = true, value_name = "ADDRESS", help_heading = "Everywhere")]
    pub(crate) store: Option<String>,
    /// S3-compatible object store with the media and large texts of the PostgreSQL database: s3://BUCKET/PREFIX. The access key is in
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the server in AWS_ENDPOINT_URL or AWS_REGION; also AGENT_HOST_MEDIA_STORE
    #[arg(long, global = true, value_name = "ADDRESS", help_heading = "Everywhere")]
    pub(crate) media_store: Option<String>,
    /// Log to stderr, including plugin output; repeat for more detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
    /// Format of the log: lines for people, or JSON lines with trace ids for log collectors
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t, env = "AGENT_HOST_LOG")]
    #[arg(help_heading = "Everywhere", hide_possible_values = false)]
    pub(crate) log: LogFormat,
}

/// Formats of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

/// Options that configure an agent. All commands that need an agent accept these options.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct AgentArguments {
    /// Folder that contains the plugins (*.wasm)
    #[arg(long, value_name = "DIR", help_heading = "Agent")]
    pub(crate) plugins: Option<PathBuf>,
    /// Agent configuration: a file (agent.toml), or the name of an agent in this folder
    #[arg(long, value_name = "FILE|NAME", help_heading = "Agent", value_parser = OsStringValueParser::new().try_map(agent))]
    pub(crate) agent: Option<PathBuf>,
    /// PROVIDER/MODEL, `offline` (the built-in default, not a language model) or `scripted:FILE` (a file of replies)
    #[arg(long, value_name = "MODEL", help_heading = "Agent")]
    pub(crate) model: Option<String>,
    /// URL of the model provider, such as http://127.0.0.1:8000/v1
    #[arg(long, value_name = "URL", help_heading = "Agent", value_parser = base_url)]
    pub(crate) base_url: Option<String>,
    /// Grant something to a plugin: PLUGIN:read=DIR, write=DIR, env=NAME, config=KEY=VALUE, http='GET https://HOST',
    /// key_value_mib=N, model_tokens=N, events=TYPE or media=true
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse, help_heading = "Agent")]
    pub(crate) grant: Vec<Grant>,
    /// Build the projects in the plugin folder before the plugins are loaded
    #[arg(long, help_heading = "Agent")]
    pub(crate) build: bool,
}

impl AgentArguments {
    /// Converts these options to the corresponding type of the crate `agent_config`, which has no field `build`.
    pub(crate) fn options(&self) -> AgentOptions {
        let Self { plugins, agent, model, base_url, grant, build: _ } = self.clone();
        AgentOptions { plugins, agent, model, base_url, grants: grant, user_file: None }
    }
}

/// Options of a turn.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct RunArguments {
    /// Prompt for the agent; text that is piped to stdin follows it. With `-`, or without PROMPT in a pipe, the prompt is
    /// read from stdin. On a terminal, a session without PROMPT is interactive
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Options that configure the agent that this command runs.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    /// Continue the agent's latest session; an interrupted turn is finished first
    #[arg(long = "continue", help_heading = "Session", conflicts_with = "session")]
    pub(crate) continue_latest: bool,
    /// Continue this session; an interrupted turn is finished first
    #[arg(long, value_name = "ID", help_heading = "Session", value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// User that the agent works for and whose memory it uses (default: the logged-in user)
    #[arg(long, value_name = "NAME", help_heading = "Session", value_parser = user_name)]
    pub(crate) user: Option<String>,
    /// Print events as JSON lines; the last line is the turn's result
    #[arg(long, help_heading = "Session")]
    pub(crate) json: bool,
    /// CloudEvent file whose data is the prompt; `-` reads it from stdin
    #[arg(long, value_name = "FILE", help_heading = "Session", conflicts_with = "prompt")]
    pub(crate) event: Option<PathBuf>,
    /// Add an image (PNG, JPEG, GIF or WebP) to the prompt; can be repeated
    #[arg(long, value_name = "FILE", help_heading = "Session")]
    pub(crate) image: Vec<PathBuf>,
    /// Approve calls to tools with this name, each time for one call only; `*` matches any characters
    #[arg(long, value_name = "TOOL", help_heading = "Session", value_parser = tool_pattern)]
    pub(crate) yes: Vec<String>,
    /// Don't reload changed plugins during an interactive session
    #[arg(long, help_heading = "Session")]
    pub(crate) no_watch: bool,
}

/// Subcommands. If the command line contains no subcommand, the program runs a turn.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Choose a model, plugins and default grants once, for all folders
    Setup(setup::SetupArguments),
    /// Check whether everything is ready, and explain how to fix what is not; changes nothing
    Doctor(setup::DoctorArguments),
    /// Trust the agent.toml of a folder, so that `agent-host` uses it there without --agent
    Trust(trust::TrustArguments),
    /// Create, build, check, inspect, call and share plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Run scenarios: scripted conversations with an agent and their expected results
    Test(TestArguments),
    /// Replay a session's plugin calls, and show what another plugin version does differently
    Replay(ReplayArguments),
    /// Develop a plugin in a session that rebuilds and reloads it after each source change
    Dev(DevArguments),
    /// Create keys for signing plugins
    #[command(subcommand)]
    Key(KeyCommand),
    /// List, show, continue, answer, fork, export, import and delete sessions
    Session(ForUser<SessionCommand>),
    /// List and revoke permanent approvals
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// List and deliver outgoing events, such as requests to services
    Outbox(ForUser<OutboxCommand>),
    /// List, repeat and drop the messages of NATS that no process could handle
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
    /// Search, list and delete long-term memories
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// List the models of the providers, and test a model with a small request
    #[command(subcommand)]
    Model(ModelCommand),
    /// Show, check and export the audit log: grants, refusals, approvals and plugin versions
    Audit(AuditArguments),
    /// Report what agents have used, by day, month, agent and user: tokens, cost and time of work
    Usage(usage::UsageArguments),
    /// Check and copy the database, and rebuild its indexes
    #[command(subcommand)]
    Store(StoreCommand),
    /// Export traces of stored sessions to a collector or a file
    Trace(ForUser<TraceCommand>),
    /// Write, check and list agent configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Run agents as a server with an HTTP API
    Serve(serve::ServeArguments),
    /// Run agents without an HTTP API: the worker takes the sessions of the database that can continue
    ///
    /// Several workers and servers with the same `--store` share all sessions. If one of them stops, the others continue its
    /// sessions.
    Worker(serve::WorkerArguments),
    /// Run an agent inside an editor that supports the Agent Client Protocol
    Acp(acp::AcpArguments),
    /// Offer an agent's tools, or the agent as a tool, to MCP clients such as editors and other agents
    Mcp(mcp::McpArguments),
    /// Create, list and revoke the tokens of the server
    Token(serve::TokenArguments),
    /// Print the script with which a shell completes commands and values: source <(agent-host completions bash)
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page, or write the manual pages of all commands
    Man {
        /// Folder for the pages
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Internal: compile the component on stdin, and write its code to stdout
    #[command(hide = true, name = COMPILE_COMMAND)]
    Compile,
}

/// Commands on the sessions of one user.
#[derive(Debug, Args)]
pub(crate) struct ForUser<C: Subcommand> {
    /// Subcommand that works on the user's sessions
    #[command(subcommand)]
    pub(crate) command: C,
    /// User who owns the sessions (default: the logged-in user)
    // The argument's id must differ from the id of a turn's `--user`, because clap copies the value of a global option
    // to every argument with the same id.
    #[arg(long = "user", id = "sessions_of", value_name = "NAME", global = true, value_parser = user_name)]
    pub(crate) user: Option<String>,
}

/// Commands on sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, latest first
    List {
        /// Maximum number of results
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// List only sessions that this session delegated work to
        #[arg(long, value_name = "ID", value_parser = session_id)]
        children_of: Option<String>,
        /// Print one JSON line per session
        #[arg(long)]
        json: bool,
    },
    /// Show a session's messages, and the decisions and answers that it waits for
    Show {
        /// Session id, or an unambiguous part of it (default: the latest session)
        #[arg(value_parser = session_id)]
        session: Option<String>,
        /// Print the stored events as JSON lines instead of the messages
        #[arg(long, conflicts_with = "call")]
        json: bool,
        /// Show only this call, with its complete arguments and result
        #[arg(long, value_name = "CALL")]
        call: Option<String>,
        /// Print only the request of a model call, as it was sent to the model: `2` is the last model call of turn 2,
        /// and `2.1` is its first model call
        #[arg(long, value_name = "TURN[.STEP]", conflicts_with_all = ["call", "json"])]
        request: Option<RequestNumber>,
    },
    /// Continue a session: finish an interrupted turn, then send PROMPT
    Resume(ResumeArguments),
    /// Choose a session to continue from a list of the agent's sessions
    Pick(PickArguments),
    /// Search all sessions for messages that contain all these words, including messages that were removed from
    /// the prompt
    Search {
        /// Words that a message must contain
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
        /// Maximum number of results
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print one JSON line per message
        #[arg(long)]
        json: bool,
    },
    /// Copy a session up to a message into a new session; the original does not change
    Fork {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
        /// Last message to copy, with the results of its calls; `session show` shows the numbers (default:
        /// all messages)
        #[arg(long, value_name = "MESSAGE", value_parser = clap::value_parser!(u64).range(1..))]
        at: Option<u64>,
    },
    /// Undo a session's last turn; the turn stays stored and searchable, but the model no longer sees it
    Undo {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
    },
    /// Export a session and its media as one JSON document
    Export {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
        /// Output file; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Import a session from an exported document; nothing is imported from a damaged document
    Import {
        /// Exported document; `-` is stdin
        file: PathBuf,
        /// New id for the session (default: its original id)
        #[arg(long = "as", value_name = "ID", value_parser = session_id)]
        subject: Option<String>,
    },
    /// Approve calls that wait for an approval, and continue the turn
    Approve(ApproveArguments),
    /// Deny calls that wait for an approval, and continue the turn
    Deny(DenyArguments),
    /// Decide about a call whose outcome is unknown; --continue then continues the turn
    Resolve {
        /// Id of the call, or SESSION/CALL
        call: String,
        /// Outcome of the call
        decision: Verdict,
        /// Text of the result or error
        text: Option<String>,
        /// Session of the call, if CALL does not contain it (default: the latest session that waits for a decision
        /// about CALL)
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
    },
    /// Record a service's answer for a session; with --agent or --plugins, also continue the turn
    Respond {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
        /// File with a CloudEvent 1.0 in JSON whose `parentid` is the call id; `-` is stdin
        #[arg(long, value_name = "FILE")]
        event: PathBuf,
        /// Record the answer, but don't continue the turn
        #[arg(long)]
        no_run: bool,
        /// Print events as JSON lines; the first line reports how the answer was recorded
        #[arg(long)]
        json: bool,
        /// Agent that the session belongs to.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Answer the question that a session waits for; --session then continues the turn
    Answer {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
        /// Answer for the model
        #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
        text: String,
    },
    /// Cancel a waiting turn; the session continues with the next prompt
    Cancel {
        /// Session id, or an unambiguous part of it
        #[arg(value_parser = session_id)]
        session: String,
    },
    /// Delete sessions, with all stored data and memories that come from them
    Delete {
        /// Session ids, or unambiguous parts of them
        #[arg(required = true, value_parser = session_id)]
        sessions: Vec<String>,
        /// Don't ask for confirmation on a terminal
        #[arg(short, long)]
        yes: bool,
    },
}

/// Commands on long-term memory.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Show the memories that match a query best, as a turn with that prompt would recall them
    Search {
        /// Words to search for
        query: String,
        /// User whose memories are used (default: the logged-in user)
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
        /// Maximum number of results
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print one JSON line per memory
        #[arg(long)]
        json: bool,
    },
    /// List all memories, latest first
    List {
        /// User whose memories are used (default: the logged-in user)
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
        /// Maximum number of results
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Print one JSON line per memory
        #[arg(long)]
        json: bool,
    },
    /// Delete memories
    Forget {
        /// Ids of the memories, from `memory list`
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// User whose memories are used (default: the logged-in user)
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
    },
}

/// The user's decision about a call whose outcome is unknown (D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verdict {
    /// The call had no effect: run it again
    Retry,
    /// The call failed: the model gets TEXT as the error
    Failed,
    /// The call succeeded: the model gets TEXT as the result
    Result,
}

/// Rejects an empty folder name, which may also come from the variable `AGENT_HOST_DATA`.
fn data_folder(text: OsString) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the folder name is empty; name a folder, or omit --data and unset AGENT_HOST_DATA".to_owned());
    }
    Ok(PathBuf::from(text))
}

/// Rejects an empty agent name. An empty path would mean the current folder.
fn agent(text: OsString) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the agent's name is empty; `agent-host config list` lists the agents in this folder".to_owned());
    }
    Ok(PathBuf::from(text))
}

fn base_url(text: &str) -> Result<String, String> {
    match url_problem(text) {
        Some(problem) => Err(format!("the URL {problem}; write a URL such as http://127.0.0.1:8000/v1")),
        None => Ok(text.to_owned()),
    }
}

/// Rejects an empty session id. An empty prefix would match every session.
fn session_id(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the session id is empty; `agent-host session list` lists all sessions".to_owned());
    }
    Ok(text.to_owned())
}

fn tool_pattern(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the tool name is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn user_name(text: &str) -> Result<String, String> {
    UserName::new(text).map(|name| name.as_str().to_owned()).map_err(|error| error.to_string())
}

impl Arguments {
    /// Rejects options of a turn that are written before a subcommand, because the program would ignore those options.
    /// Also rejects a prompt that looks like a mistyped command.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.command.is_some() && self.run != RunArguments::default() {
            return Err("options of a turn are not allowed before a command; write the options after the command. \
                        If the command name is your prompt, write `-- PROMPT`"
                .to_owned());
        }
        let agent = &self.run.agent;
        let names_no_agent = self.command.is_none() && agent.plugins.is_none() && agent.agent.is_none();
        match self.run.prompt.as_deref().filter(|_| names_no_agent).and_then(typo_hints::hint_for_prompt) {
            Some(hint) => Err(hint),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
