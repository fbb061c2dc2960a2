//! Shell completions (I1). A shell calls the program with the words of the command line, and the program prints the words with
//! which the line can continue: commands, options, and values such as sessions, agents, plugins and models.
//!
//! Values can come from a folder that somebody else has made. A shell inserts them without quotes, so only values without
//! special characters are proposed.

mod values;

use crate::arguments::{Arguments, Shell};
use crate::environment;
use crate::exit::Failure;
use clap::builder::ValueHint;
use clap::{Arg, Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

/// The variable with which a shell asks for completions. Its value is the name of the shell.
const VARIABLE: &str = "AGENT_HOST_COMPLETE";
/// The name under which a shell finds the program.
const PROGRAM: &str = "agent-host";

/// Returns the script that makes a shell complete the command lines of this program.
pub(crate) fn script(shell: Shell) -> Result<String, Failure> {
    let shell: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script).map_err(Failure::output)?;
    String::from_utf8(script).map_err(Failure::failed)
}

/// If a shell asks for completions, prints them and returns true.
pub(crate) fn answer_shell() -> Result<bool, clap::Error> {
    if environment::variable(VARIABLE).is_none() {
        return Ok(false);
    }
    let folder = std::env::current_dir().ok();
    let completions = CompleteEnv::with_factory(command).var(VARIABLE).bin(PROGRAM).completer(PROGRAM);
    completions.try_complete(std::env::args_os(), folder.as_deref())
}

/// Returns the arguments of the program, with the values that can be proposed for them.
fn command() -> Command {
    with_values(Arguments::command())
}

fn with_values(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(with_value);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_values))
}

/// Adds the values that can be proposed for an argument, which is recognised by its id or by the name of its value.
fn with_value(argument: Arg) -> Arg {
    let value_name = argument.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    let values: fn(&std::ffi::OsStr) -> Vec<clap_complete::engine::CompletionCandidate> =
        match (argument.get_id().as_str(), value_name.as_deref()) {
            ("session" | "sessions" | "children_of", _) => values::sessions,
            ("agent" | "named_agent", Some("FILE|NAME")) => values::agents,
            ("plugin" | "names" | "locked", Some("NAME")) => values::plugins,
            ("file", Some("FILE|NAME")) => values::plugin_files,
            ("model", _) => values::models,
            ("provider", _) => values::providers,
            ("grant", _) => values::grants,
            (_, Some("DIR")) => values::folders,
            ("file", _) | (_, Some("FILE" | "KEY" | "REF|PATH")) => values::files,
            (_, Some("FILE|DIR")) => values::paths,
            _ if has_path_hint(&argument) => values::paths,
            _ => return argument,
        };
    argument.add(ArgValueCompleter::new(values))
}

/// Whether clap itself would propose paths for the argument. It would also propose names that a shell does not take literally.
fn has_path_hint(argument: &Arg) -> bool {
    matches!(
        argument.get_value_hint(),
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath | ValueHint::ExecutablePath
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1: no argument uses clap's own proposals of paths, which contain the names of files as they are.
    #[test]
    fn i1_paths_are_proposed_only_by_this_program() {
        fn unfiltered(command: &Command, found: &mut Vec<String>) {
            let is_unfiltered =
                |argument: &&Arg| has_path_hint(argument) && argument.get::<ArgValueCompleter>().is_none();
            found.extend(
                command
                    .get_arguments()
                    .filter(is_unfiltered)
                    .map(|argument| format!("{} {}", command.get_name(), argument.get_id())),
            );
            command.get_subcommands().for_each(|command| unfiltered(command, found));
        }
        let mut found = Vec::new();
        unfiltered(&command(), &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// I1: values are proposed for every argument that names something which the host knows.
    #[test]
    fn i1_known_values_are_proposed() {
        fn unknown(command: &Command, path: &str, found: &mut Vec<String>) {
            let has_values = |argument: &&Arg| argument.get::<ArgValueCompleter>().is_some();
            let is_known = |argument: &Arg| {
                let names = argument.get_value_names().unwrap_or_default();
                argument.get_action().takes_values()
                    && (names.iter().any(|name| *name == "FILE|NAME")
                        || matches!(argument.get_id().as_str(), "session" | "sessions" | "model"))
            };
            let path = format!("{path} {}", command.get_name());
            let missing = command.get_arguments().filter(|argument| is_known(argument) && !has_values(argument));
            found.extend(missing.map(|argument| format!("{path}: {}", argument.get_id())));
            command.get_subcommands().for_each(|command| unknown(command, &path, found));
        }
        let mut found = Vec::new();
        unknown(&command(), "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// I1: the scripts call the program with the variable that it reads.
    #[test]
    fn i1_scripts_call_the_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).expect("a script");
            assert!(script.contains(VARIABLE) && script.contains(PROGRAM), "{script}");
        }
    }
}
