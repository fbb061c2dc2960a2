//! Entry point of the `agent-host` program. The program parses the command line, runs the command, and exits with the
//! command's exit code. The other crates of the workspace do not read the environment, do not print, and do not exit
//! the process.

mod arguments;
mod commands;
mod completion;
mod environment;
mod exit;
mod interrupt;
mod logging;
#[cfg_attr(not(unix), path = "resource_limits/other.rs")]
mod resource_limits;
mod terminal;

#[cfg(all(debug_assertions, unix))]
mod crash;

use agent_config::{DataDirectory, DataLocation};
use arguments::{Arguments, Command, ForUser, RunArguments, SessionCommand, StoreCommand};
use clap::Parser;
use exit::{Exit, Failure};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use terminal::Terminal;

/// Maximum time that the process waits, before it exits, for threads that are still running.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    resource_limits::use_few_arenas();
    resource_limits::on_large_stack(run)
}

fn run() -> ExitCode {
    match completion::answer_shell() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return report_parse_error(&error),
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return report_parse_error(&error),
    };
    if let Some(Command::Compile) = arguments.command {
        return compile();
    }
    let terminal = Terminal::new();
    logging::start(&arguments.common, &terminal);
    environment::raise_file_limit();
    let outcome = arguments.check().map_err(Failure::refused).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(agent_plugins::worker_threads())
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| Failure::refused(format!("the threads cannot be started: {error}")))?;
        let outcome = runtime.block_on(async {
            resource_limits::watch();
            execute(arguments, &terminal).await
        });
        // The process can exit now without losing data, because the store is closed and its writer has stopped. A
        // thread that still reads a guest's file may block forever, for example if the file is a pipe without a writer.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        outcome
    });
    let exit = outcome.unwrap_or_else(|failure| {
        let failure = resource_limits::explain(failure);
        terminal.idle();
        if !failure.message.is_empty() {
            terminal.failure(&failure.message);
        }
        failure.exit
    });
    exit.into()
}

/// Handles the errors that clap returns: rejected command lines, and requests for help or the version.
fn report_parse_error(error: &clap::Error) -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match arguments::hint_for_error(error, words) {
        Some(hint) => {
            Terminal::new().failure(&hint);
            Exit::Refused.into()
        }
        None => error.exit(),
    }
}

/// Compiles one component in a child process, without starting any other part of the host.
fn compile() -> ExitCode {
    let Err(reason) = agent_plugins::serve_compiler(std::io::stdin().lock(), std::io::stdout().lock()) else {
        return Exit::Done.into();
    };
    // Writing the reason can fail only if the parent process has exited.
    let _ = writeln!(std::io::stderr(), "{reason}");
    Exit::Failed.into()
}

async fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let media = environment::media_store(arguments.common.media_store.as_deref())?;
    let database = environment::shared_database(arguments.common.store.as_deref(), media.as_ref())?;
    let is_copy = matches!(arguments.command, Some(Command::Store(StoreCommand::Copy { .. })));
    if media.is_some() && database.is_none() && !is_copy {
        return Err(Failure::refused(
            "--media-store (AGENT_HOST_MEDIA_STORE) needs a PostgreSQL database, because media of a data folder are in its own \
             database: select one with --store or AGENT_HOST_STORE, or leave the media store out",
        ));
    }
    let data = DataLocation { folder: arguments.common.data.as_deref(), database: database.as_ref() };
    if terminal.is_interactive() {
        commands::chat::themes::use_stored(terminal, data.folder);
    }
    let open_data = || DataDirectory::open(data, &environment::host());
    match arguments.command {
        None => commands::run::run(&arguments.run, data, terminal).await,
        Some(Command::Setup(arguments)) => commands::setup::run(arguments, terminal).await,
        Some(Command::Doctor(arguments)) => commands::doctor::run(arguments, data, terminal).await,
        Some(Command::Trust(arguments)) => commands::trust::run(arguments, data, terminal).await,
        Some(Command::Dev(arguments)) => commands::dev::dev(&arguments, data, terminal).await,
        Some(Command::Plugin(command)) => commands::plugin::run(command, data, terminal).await,
        Some(Command::Test(arguments)) => commands::test::run(arguments, data, terminal).await,
        Some(Command::Replay(arguments)) => commands::replay::run(arguments, data, terminal).await,
        Some(Command::Key(command)) => commands::key::run(command, terminal).await,
        // `run` handles this command before it starts the runtime.
        Some(Command::Compile) => Ok(Exit::Done),
        Some(Command::Config(command)) => commands::config::run(command, data, terminal).await,
        Some(Command::Audit(arguments)) => commands::audit::run(arguments, data, terminal).await,
        Some(Command::Outbox(ForUser { command, user })) => {
            commands::outbox::run(command, &open_data()?.for_user(user), terminal).await
        }
        Some(Command::DeadLetter(command)) => commands::dead_letter::run(command, terminal).await,
        Some(Command::Trace(ForUser { command, user })) => {
            commands::trace::run(command, &open_data()?.for_user(user), terminal).await
        }
        Some(Command::Usage(arguments)) => commands::usage::run(arguments, &open_data()?, terminal).await,
        Some(Command::Store(command)) => commands::store::run(command, data, media.as_ref(), terminal).await,
        Some(Command::Model(command)) => commands::model::run(command, terminal).await,
        Some(Command::Memory(command)) => commands::memory::run(command, &open_data()?, terminal).await,
        Some(Command::Approvals(command)) => commands::approvals::run(command, &open_data()?, terminal).await,
        Some(Command::Serve(arguments)) => commands::serve::run(arguments, data, terminal).await,
        Some(Command::Worker(arguments)) => commands::worker::run(arguments, data, terminal).await,
        Some(Command::Acp(arguments)) => commands::acp::run(arguments, data, terminal).await,
        Some(Command::Mcp(arguments)) => commands::mcp::run(arguments, data, terminal).await,
        Some(Command::Completions { shell }) => {
            terminal.print(completion::script(shell)?.trim_end()).map_err(Failure::output)?;
            Ok(Exit::Done)
        }
        Some(Command::Man { output }) => commands::man::run(output.as_deref(), terminal),
        Some(Command::Token(command)) => commands::token::run(command, &open_data()?, terminal),
        Some(Command::Session(ForUser { command: SessionCommand::Resume(resumed), user })) => {
            // Check that the session exists before the agent is loaded, so that a missing session is reported first.
            let user_data = open_data()?.for_user(user.clone());
            commands::session::check(resumed.session.as_deref(), &user_data).await?;
            commands::run::run(&RunArguments { user, ..resumed.into() }, data, terminal).await
        }
        Some(Command::Session(ForUser { command: SessionCommand::Pick(picked), user })) => {
            let user_data = open_data()?.for_user(user.clone());
            let session = commands::session::pick::pick(&picked, &user_data, terminal).await?;
            if session.is_none() {
                return Ok(Exit::Done);
            }
            let run = RunArguments { session, user, agent: picked.agent, ..RunArguments::default() };
            commands::run::run(&run, data, terminal).await
        }
        Some(Command::Session(ForUser { command, user })) => {
            commands::session::run(command, &open_data()?.for_user(user), terminal).await
        }
    }
}
