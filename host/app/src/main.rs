//! The binary: command line and configuration only. It alone reads the environment, prints and exits.

mod arguments;
mod commands;
mod configuration;
mod data;
mod environment;
mod exit;
mod first_use;
mod grants;
mod interrupt;
mod logging;
mod prompt;
mod protection;
#[cfg_attr(not(unix), path = "scarce/other.rs")]
mod scarce;
mod settings;
mod setup;
mod terminal;

#[cfg(all(debug_assertions, unix))]
mod crash;

use arguments::{Arguments, Command, ForUser, RunArguments, SessionCommand};
use clap::Parser;
use data::DataDirectory;
use exit::{Exit, Failure};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use terminal::Terminal;

/// What a thread gets to end by itself when the process does.
const LAST_WAIT: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    scarce::on_large_stack(run)
}

fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return unreadable(&error),
    };
    if let Some(Command::Compile) = arguments.command {
        return compile();
    }
    let terminal = Terminal::new();
    logging::start(arguments.common.verbose, &terminal);
    environment::raise_file_limit();
    let outcome = arguments.check().map_err(Failure::refused).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(agent_plugins::worker_threads())
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| Failure::refused(format!("the threads cannot be started: {error}")))?;
        let outcome = runtime.block_on(async {
            scarce::watch();
            execute(arguments, &terminal).await
        });
        // By now the store is closed and its writer has ended. A thread that still reads a guest's file may do so for
        // ever, such as from a pipe that nobody writes to.
        runtime.shutdown_timeout(LAST_WAIT);
        outcome
    });
    let exit = outcome.unwrap_or_else(|failure| {
        let failure = scarce::named(failure);
        terminal.idle();
        if !failure.message.is_empty() {
            terminal.failure(&failure.message);
        }
        failure.exit
    });
    exit.into()
}

/// A command line that cannot be read, or asks only for help.
fn unreadable(error: &clap::Error) -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match arguments::meant_by_line(error, words) {
        Some(meant) => {
            Terminal::new().failure(&meant);
            Exit::Refused.into()
        }
        None => error.exit(),
    }
}

/// The child that compiles one component: nothing else of the host is needed for that, nor started.
fn compile() -> ExitCode {
    let Err(reason) = agent_plugins::serve_compiler(std::io::stdin().lock(), std::io::stdout().lock()) else {
        return Exit::Done.into();
    };
    // Whom it should be told is gone if this fails.
    let _ = writeln!(std::io::stderr(), "{reason}");
    Exit::Failed.into()
}

async fn execute(arguments: Arguments, terminal: &Terminal) -> Result<Exit, Failure> {
    let asked = arguments.common.data.as_deref();
    match arguments.command {
        None => commands::run::run(&arguments.run, asked, terminal).await,
        Some(Command::Dev(arguments)) => commands::dev::dev(&arguments, asked, terminal).await,
        Some(Command::Plugin(command)) => commands::plugin::run(command, asked, terminal).await,
        Some(Command::Test(arguments)) => commands::test::run(arguments, asked, terminal).await,
        Some(Command::Replay(arguments)) => commands::replay::run(arguments, asked, terminal).await,
        Some(Command::Key(command)) => commands::key::run(command, terminal).await,
        // Done before anything was started.
        Some(Command::Compile) => Ok(Exit::Done),
        Some(Command::Config(command)) => commands::config::run(command, asked, terminal).await,
        Some(Command::Audit(arguments)) => {
            commands::audit::run(arguments, &DataDirectory::open(asked)?, terminal).await
        }
        Some(Command::Outbox(ForUser { command, user })) => {
            commands::outbox::run(command, &DataDirectory::open(asked)?.for_user(user), terminal).await
        }
        Some(Command::Store(command)) => commands::store::run(command, &DataDirectory::open(asked)?, terminal).await,
        Some(Command::Memory(command)) => commands::memory::run(command, &DataDirectory::open(asked)?, terminal).await,
        Some(Command::Approvals(command)) => {
            commands::approvals::run(command, &DataDirectory::open(asked)?, terminal).await
        }
        Some(Command::Session(ForUser { command: SessionCommand::Resume(resumed), user })) => {
            // A session that is not there is said before an agent is asked for.
            let data = DataDirectory::open(asked)?.for_user(user.clone());
            commands::session::check(resumed.session.as_deref(), &data).await?;
            commands::run::run(&RunArguments { user, ..resumed.into() }, asked, terminal).await
        }
        Some(Command::Session(ForUser { command, user })) => {
            commands::session::run(command, &DataDirectory::open(asked)?.for_user(user), terminal).await
        }
    }
}
