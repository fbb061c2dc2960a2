//! The command line, as clap reads it.

pub(crate) mod approval;
mod help;
pub(crate) mod new;
pub(crate) mod replay;
pub(crate) mod resume;
pub(crate) mod sharing;
mod slips;
pub(crate) mod test;
pub(crate) mod versions;

use crate::configuration::url_problem;
use crate::grants::Grant;
use crate::settings::AGENT_FILE;
use agent_runtime::UserName;
use approval::{ApprovalsCommand, ApproveArguments, DenyArguments};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use help::{LONG, SHORT, USAGE};
use new::{DevArguments, NewArguments};
use replay::ReplayArguments;
use resume::ResumeArguments;
use sharing::{
    AddArguments, FolderArguments, KeyCommand, PushArguments, RemoveArguments, SearchArguments, SignArguments,
    UpdateArguments,
};
pub(crate) use slips::meant_by_line;
use std::ffi::OsString;
use std::path::PathBuf;
use test::TestArguments;
use versions::{AuditArguments, HistoryArguments, QuarantineArguments, RollbackArguments};

/// Runs an AI agent whose tools, context, checks and masking are WebAssembly plugins.
///
/// The host owns the loop, the model and the memory. What plugins may touch is what you grant, and nothing else.
#[derive(Debug, Parser)]
#[command(name = "agent-host", version, override_usage = USAGE, after_help = SHORT, after_long_help = LONG)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Another command than running a turn.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// What a turn is run with.
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// What every command takes.
    #[command(flatten)]
    pub(crate) common: CommonArguments,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommonArguments {
    /// Where sessions, compiled code and loaded plugins are kept
    #[arg(long, global = true, value_name = "DIR", env = "AGENT_HOST_DATA", hide_env_values = true)]
    #[arg(help_heading = "Everywhere", value_parser = OsStringValueParser::new().try_map(data_folder))]
    pub(crate) data: Option<PathBuf>,
    /// Log to stderr, with what plugins print; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
}

/// What an agent is made of: shared by all commands that need one.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct AgentArguments {
    /// The folder with the plugins (*.wasm)
    #[arg(long, value_name = "DIR", help_heading = "Agent")]
    pub(crate) plugins: Option<PathBuf>,
    /// An agent's configuration: a file (agent.toml), or the name of an agent in this folder
    #[arg(long, value_name = "FILE|NAME", help_heading = "Agent", value_parser = OsStringValueParser::new().try_map(agent))]
    pub(crate) agent: Option<PathBuf>,
    /// PROVIDER/MODEL, `offline` (the default: built in, no language model) or `scripted:FILE` (a file of replies)
    #[arg(long, value_name = "MODEL", help_heading = "Agent")]
    pub(crate) model: Option<String>,
    /// Where the model's provider is, such as http://127.0.0.1:8000/v1
    #[arg(long, value_name = "URL", help_heading = "Agent", value_parser = base_url)]
    pub(crate) base_url: Option<String>,
    /// Let a plugin do something: PLUGIN:read=DIR, write=DIR, env=NAME, config=KEY=VALUE, http='GET https://HOST',
    /// key_value_mib=N, model_tokens=N, events=TYPE or media=true
    #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse, help_heading = "Agent")]
    pub(crate) grant: Vec<Grant>,
    /// Build the plugin projects in the plugins' folder first
    #[arg(long, help_heading = "Agent")]
    pub(crate) build: bool,
}

/// What a turn is run with.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct RunArguments {
    /// What the agent is asked; `-` reads it from stdin, as does no prompt and a pipe; none on a terminal is a session
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
    /// Which agent.
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
    /// Go on with the agent's latest session; what was interrupted is finished first
    #[arg(long = "continue", help_heading = "Session", conflicts_with = "session")]
    pub(crate) continue_latest: bool,
    /// Go on with this session; what was interrupted is finished first
    #[arg(long, value_name = "ID", help_heading = "Session", value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// For whom the agent works: whose memory is recalled and added to (default: who is logged in)
    #[arg(long, value_name = "NAME", help_heading = "Session", value_parser = user_name)]
    pub(crate) user: Option<String>,
    /// Print events as JSON lines, and how the turn ended as the last one
    #[arg(long, help_heading = "Session")]
    pub(crate) json: bool,
    /// What the agent is asked, as the data of a CloudEvent; `-` reads it from stdin
    #[arg(long, value_name = "FILE", help_heading = "Session", conflicts_with = "prompt")]
    pub(crate) event: Option<PathBuf>,
    /// Say yes to calls of this tool that must be allowed, once to each; `*` stands for any characters
    #[arg(long, value_name = "TOOL", help_heading = "Session", value_parser = tool_pattern)]
    pub(crate) yes: Vec<String>,
    /// Don't take changes of the plugins' folder during a session in which you type
    #[arg(long, help_heading = "Session")]
    pub(crate) no_watch: bool,
}

/// Another command than running a turn.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make, build, check, inspect, call and share plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Play scenarios: what is said to an agent, and what must come of it
    Test(TestArguments),
    /// Have plugins do again what they did in a session, and show where another version does otherwise
    Replay(ReplayArguments),
    /// Work on a plugin: a session in which each change of its source is built and taken up
    Dev(DevArguments),
    /// Make keys that sign plugins
    #[command(subcommand)]
    Key(KeyCommand),
    /// List, show, answer, fork, carry and delete sessions
    Session(ForUser<SessionCommand>),
    /// List and revoke what was allowed for good
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Show what goes out of sessions: requests to services, and more
    Outbox(ForUser<OutboxCommand>),
    /// Search, list and forget what is remembered of you over sessions
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Show what plugins were granted and denied, what was allowed, and which versions served
    Audit(AuditArguments),
    /// Check the database, and make anew in it what can be made from the rest
    #[command(subcommand)]
    Store(StoreCommand),
    /// Write, check and list agents' configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// What the host starts as its own child: a component comes on stdin, its compiled code goes to stdout
    #[command(hide = true, name = COMPILE)]
    Compile,
}

/// Commands on the sessions of one user.
#[derive(Debug, Args)]
pub(crate) struct ForUser<C: Subcommand> {
    /// What is done with them
    #[command(subcommand)]
    pub(crate) command: C,
    /// Whose sessions (default: who is logged in)
    // The id differs from that of the option of a turn: clap gives the value of a global option to every argument with its id.
    #[arg(long = "user", id = "sessions_of", value_name = "NAME", global = true, value_parser = user_name)]
    pub(crate) user: Option<String>,
}

/// Name of the command that compiles for another process of this program.
pub(crate) const COMPILE: &str = "compile-component";

/// Commands on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum StoreCommand {
    /// Say whether the file is whole, and whether what is searched and listed says what was said; changes nothing
    Check {
        /// Print one JSON line per thing that was compared
        #[arg(long)]
        json: bool,
    },
    /// Make anew what is searched and listed, from the messages, memories and states that are stored
    Rebuild,
}

/// Commands on the outbox.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Show what is pending, the oldest first
    List {
        /// Of this session only: its id, or a beginning of it that no other has
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
        /// What is done, too
        #[arg(long)]
        all: bool,
        /// Print one JSON line per item
        #[arg(long)]
        json: bool,
    },
    /// Write what is pending into a folder, each event as a file, as [outbox] directory does after each commit
    Deliver {
        /// A folder that is there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Of this session only: its id, or a beginning of it that no other has
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
    },
}

/// Commands on agents' configurations.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write an agent.toml with every key, explained and commented out
    Init {
        /// Where to; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = AGENT_FILE)]
        output: PathBuf,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
    /// Print the JSON Schema of agent.toml, for editors
    Schema {
        /// Where to; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
    /// Say what a configuration would run, or all that is wrong with it
    Check {
        /// The file, or the name of an agent in this folder
        #[arg(value_name = "FILE|NAME", default_value = AGENT_FILE)]
        agent: PathBuf,
    },
    /// Show the agents of this folder
    List,
}

/// Commands on plugins.
#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Make a plugin project, in Rust, Python, JavaScript or C, that builds as it is and has a test
    New(NewArguments),
    /// Build a plugin project, or every one in a folder, and write NAME.wasm there
    Build {
        /// A folder with plugin.toml and a source (Cargo.toml, app.py, app.js or *.c), or a folder of such folders
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Renew what `plugin new` has written into a project of agent-host itself: the SDK of Rust, the contract as WIT
    Renew {
        /// A project, or a folder of projects
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Say what hinders a plugin, what others will stumble over, and what could be better; exit code 1 on errors
    Check {
        /// A component (*.wasm), a project, which is built first, or a folder of either
        #[arg(value_name = "FILE|DIR", default_value = ".")]
        path: PathBuf,
        /// Print one JSON line per plugin
        #[arg(long)]
        json: bool,
    },
    /// Show the plugins of a folder, and what each may not do yet
    List {
        /// The folder with the plugins, where --plugins and --agent don't name one
        #[arg(value_name = "DIR", conflicts_with = "plugins")]
        directory: Option<PathBuf>,
        /// Which agent's.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Show what a plugin is: kinds, tools, what it asks for, what it imports
    Inspect {
        /// A component (*.wasm)
        file: PathBuf,
        /// An agent's configuration, for its limits: a file (agent.toml), or the name of an agent in this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
        agent: Option<PathBuf>,
        /// Print one JSON document, with the tools' schemas
        #[arg(long)]
        json: bool,
    },
    /// Show what a plugin asks for, what it gets, and what would be denied, with the line to add
    Explain {
        /// A component (*.wasm)
        file: PathBuf,
        /// Which agent's grants.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Call one tool once, outside of any session
    Call {
        /// A component (*.wasm)
        file: PathBuf,
        /// The tool's name
        tool: String,
        /// The arguments, a JSON object
        #[arg(value_name = "JSON", default_value = "{}")]
        arguments: String,
        /// An agent's configuration, for its grants and limits: a file (agent.toml), or the name of an agent in this folder
        #[arg(long, value_name = "FILE|NAME", value_parser = OsStringValueParser::new().try_map(agent))]
        agent: Option<PathBuf>,
        /// Let the plugin do something: PLUGIN:read=DIR, write=DIR, env=NAME, config=KEY=VALUE, http='GET https://HOST',
        /// key_value_mib=N, model_tokens=N, events=TYPE or media=true
        #[arg(long, value_name = "PLUGIN:KIND=VALUE", value_parser = Grant::parse)]
        grant: Vec<Grant>,
        /// Print the whole outcome as one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Take a plugin from a registry, the web or a file into the folder, and lock it; or fetch all that is locked
    Add(AddArguments),
    /// Take newer versions of locked plugins, and say what they change
    Update(UpdateArguments),
    /// Take a locked plugin out of the folder
    Remove(RemoveArguments),
    /// Say whether every locked plugin is the one that was locked, and signed as [sharing] wants it; needs no network
    Verify(FolderArguments),
    /// Find plugins in a team's index
    Search(SearchArguments),
    /// Put a component into a registry, from where others add it
    Push(PushArguments),
    /// Sign what is in a registry already
    Sign(SignArguments),
    /// Show which versions of plugins have served, since when, and why each ended
    History(HistoryArguments),
    /// Let an earlier version of a plugin serve until its file changes
    Rollback(RollbackArguments),
    /// Forget stored components that no open turn and no recent version needs
    Prune,
    /// List components that ended the process which examines components, and why; or have one tried again
    Quarantine(QuarantineArguments),
}

/// Commands on sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Show the sessions, the latest first
    List {
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Only the sessions that this one delegated work to
        #[arg(long, value_name = "ID", value_parser = session_id)]
        children_of: Option<String>,
        /// Print one JSON line per session
        #[arg(long)]
        json: bool,
    },
    /// Show a session's messages, and what it waits for
    Show {
        /// Its id, or a beginning of it that no other has; the latest where it is left out
        #[arg(value_parser = session_id)]
        session: Option<String>,
        /// Print its stored events as JSON lines instead
        #[arg(long, conflicts_with = "call")]
        json: bool,
        /// Show this call whole instead: its arguments, and what it brought
        #[arg(long, value_name = "CALL")]
        call: Option<String>,
    },
    /// Go on with a session: what was interrupted is finished, and PROMPT asks on
    Resume(ResumeArguments),
    /// Find messages of all sessions that have every one of these words, also those that no model is shown any more
    Search {
        /// The words
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print one JSON line per message
        #[arg(long)]
        json: bool,
    },
    /// Make a new session of what a session shows, up to a message; the original stays as it is
    Fork {
        /// Its id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
        /// The last message of the new session, with the results of its calls; `session show` numbers them. Else all
        #[arg(long, value_name = "MESSAGE", value_parser = clap::value_parser!(u64).range(1..))]
        at: Option<u64>,
    },
    /// Take a session's last turn back; it stays stored and can be searched, but is not remembered
    Undo {
        /// Its id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
    },
    /// Write a session with its media into one JSON document
    Export {
        /// Its id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
        /// Where to; `-` is stdout
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
    /// Make a session of an exported document; of one that is damaged, nothing stays
    Import {
        /// The document; `-` is stdin
        file: PathBuf,
        /// Under another id than it had; else under its own
        #[arg(long = "as", value_name = "ID", value_parser = session_id)]
        subject: Option<String>,
    },
    /// Allow calls that wait for an approval, and go on with the turn
    Approve(ApproveArguments),
    /// Don't allow calls that wait for an approval, and go on with the turn
    Deny(DenyArguments),
    /// Decide on a call whose outcome is unknown; then go on with --continue
    Resolve {
        /// The call's id, or SESSION/CALL
        call: String,
        /// What became of it
        decision: Verdict,
        /// The result's text, or the error's
        text: Option<String>,
        /// The session, where CALL does not name it; else the latest one that waits
        #[arg(long, value_name = "ID", value_parser = session_id)]
        session: Option<String>,
    },
    /// Give a session the answer of a service; with --agent or --plugins the turn then goes on
    Respond {
        /// The session's id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
        /// A CloudEvent 1.0 in JSON whose `parentid` is the call's id; `-` is stdin
        #[arg(long, value_name = "FILE")]
        event: PathBuf,
        /// Only record the answer
        #[arg(long)]
        no_run: bool,
        /// Print events as JSON lines, what became of the answer as the first
        #[arg(long)]
        json: bool,
        /// Whose session it is.
        #[command(flatten)]
        agent: AgentArguments,
    },
    /// Answer the question that a session waits with; then go on with --session
    Answer {
        /// Its id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
        /// What the model is told
        #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
        text: String,
    },
    /// End a turn that waits; the session goes on with the next input
    Cancel {
        /// Its id, or a beginning of it that no other has
        #[arg(value_parser = session_id)]
        session: String,
    },
    /// Remove sessions with all that is stored and remembered of them
    Delete {
        /// Their ids, or beginnings that no other has
        #[arg(required = true, value_parser = session_id)]
        sessions: Vec<String>,
        /// Don't ask on a terminal
        #[arg(short, long)]
        yes: bool,
    },
}

/// Commands on long-term memory.
#[derive(Debug, Subcommand)]
pub(crate) enum MemoryCommand {
    /// Show what is nearest to some words, as a turn that is asked them recalls it
    Search {
        /// The words
        query: String,
        /// Whose; else yours
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// Print one JSON line per memory
        #[arg(long)]
        json: bool,
    },
    /// Show all, the latest first
    List {
        /// Whose; else yours
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
        /// Print one JSON line per memory
        #[arg(long)]
        json: bool,
    },
    /// Remove memories
    Forget {
        /// Their ids
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Whose; else yours
        #[arg(long, value_name = "NAME", value_parser = user_name)]
        user: Option<String>,
    },
}

/// What a person says about a call whose outcome is unknown (D3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verdict {
    /// It had no effect: run it again
    Retry,
    /// It failed: the model gets TEXT as the error
    Failed,
    /// It succeeded: the model gets TEXT as the result
    Result,
}

/// Also for the variable, which is empty more often than anybody means it to be.
fn data_folder(text: OsString) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("the folder's name is empty; name one, or leave --data out and AGENT_HOST_DATA unset".to_owned());
    }
    Ok(PathBuf::from(text))
}

/// An empty name would be that of the current folder.
fn agent(text: OsString) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("it is empty; `agent-host config list` shows the agents of this folder".to_owned());
    }
    Ok(PathBuf::from(text))
}

fn base_url(text: &str) -> Result<String, String> {
    match url_problem(text) {
        Some(problem) => Err(format!("it {problem}; write an address such as http://127.0.0.1:8000/v1")),
        None => Ok(text.to_owned()),
    }
}

/// Every id begins with nothing, so an empty one would mean any session.
fn session_id(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the session's id is empty; `agent-host session list` shows all".to_owned());
    }
    Ok(text.to_owned())
}

/// A tool whose name is empty would be none.
fn tool_pattern(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("the tool's name is empty".to_owned()) } else { Ok(text.to_owned()) }
}

fn user_name(text: &str) -> Result<String, String> {
    UserName::new(text).map(|name| name.as_str().to_owned()).map_err(|error| error.to_string())
}

impl Arguments {
    /// A subcommand takes its own options; those of a turn beside it would be silently ignored.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.command.is_some() && self.run != RunArguments::default() {
            return Err("options of a turn don't go before a command: write them behind it. \
                        To ask with a prompt that is a command's name, write `-- PROMPT`"
                .to_owned());
        }
        let agent = &self.run.agent;
        let names_nothing = self.command.is_none() && agent.plugins.is_none() && agent.agent.is_none();
        match self.run.prompt.as_deref().filter(|_| names_nothing).and_then(slips::meant_by) {
            Some(meant) => Err(meant),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
