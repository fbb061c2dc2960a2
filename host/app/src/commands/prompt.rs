//! Reads the input of a turn from the command line, stdin or an event file.

use super::event_file;
use crate::arguments::RunArguments;
use crate::exit::Failure;
use agent_core::cloud_event::CloudEvent;
use agent_core::event_type::is_reserved;
use agent_core::message::TurnInput;
use agent_core::plugin::TraceContext;
use serde_json::Value;
use std::io::{IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

/// Maximum size in bytes of a prompt that is read from stdin.
const MAX_PROMPT_BYTES: u64 = 10 * 1024 * 1024;

/// What the process's stdin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A terminal, where a user can type.
    Terminal,
    /// A pipe, a file or a socket.
    Pipe,
    /// Anything else, such as `/dev/null`.
    Nothing,
}

impl Input {
    /// Examines stdin.
    pub(crate) fn of_stdin() -> Self {
        match std::io::stdin().is_terminal() {
            true => Self::Terminal,
            false => stdin::kind(),
        }
    }

    /// Returns whether stdin is a pipe that neither sends anything nor ends within a short time. A program that was started by
    /// another program often inherits such a pipe, and nobody wants it to be read.
    pub(crate) fn is_silent(self) -> bool {
        self == Self::Pipe && !stdin::becomes_readable(SILENCE)
    }
}

/// Time within which a pipe must send something, if the command line contains a prompt too.
const SILENCE: Duration = Duration::from_secs(3);

/// The input of a turn, and the trace context that came with the input.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    /// The input of the turn. `None` if stdin is a terminal, or if the command only continues a session.
    pub(crate) input: Option<TurnInput>,
    /// Trace context of the event that contained the input (I6).
    pub(crate) trace: Option<TraceContext>,
}

/// Reads the prompt from the arguments, from an event file, or from stdin until its end.
pub(crate) fn read(run: &RunArguments, input: Input, stdin: impl Read) -> Result<Prompt, Failure> {
    if let Some(file) = &run.event {
        let event = event_file::read(file)?;
        let (traceparent, tracestate) = (event.traceparent.clone(), event.tracestate.clone());
        let trace = traceparent.map(|traceparent| TraceContext { traceparent, tracestate });
        return Ok(Prompt { input: Some(event_input(file, event)?), trace });
    }
    Ok(Prompt { input: text(run, input, stdin)?.map(TurnInput::Text), trace: None })
}

/// Converts the event's data to an input (I6). If the data is a string, the input is text. Otherwise, the input
/// is JSON.
fn event_input(file: &Path, event: CloudEvent) -> Result<TurnInput, Failure> {
    if is_reserved(&event.event_type) {
        return Err(Failure::refused(format!(
            "{}: the event's `type` is reserved for the host and cannot begin a turn: pass an answer to an approval \
             request to `agent-host session respond`, or give an input event a type that you define",
            file.display()
        )));
    }
    match event.data {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(TurnInput::Text(text)),
        Some(data) if !matches!(data, Value::Null | Value::String(_)) => Ok(TurnInput::Json(data)),
        _ => Err(Failure::refused(format!(
            "{}: the event has no `data`: put the prompt for the agent into `data`",
            file.display()
        ))),
    }
}

fn text(run: &RunArguments, input: Input, stdin: impl Read) -> Result<Option<String>, Failure> {
    let continues = run.continue_latest || run.session.is_some();
    match run.prompt.as_deref() {
        Some("-") => read_stdin(stdin).map(Some),
        Some(prompt) if prompt.trim().is_empty() => {
            Err(Failure::refused("the prompt is empty: write what to ask the agent"))
        }
        Some(prompt) if input == Input::Pipe => with_piped_text(prompt, &read_text(stdin)?).map(Some),
        Some(prompt) => Ok(Some(prompt.to_owned())),
        // A command that only continues a session does not read stdin, because reading could wait forever.
        None if continues || input == Input::Terminal => Ok(None),
        None => read_stdin(stdin).map(Some),
    }
}

/// Returns the prompt, followed by the text that was piped to the program.
fn with_piped_text(prompt: &str, piped: &str) -> Result<String, Failure> {
    let piped = piped.trim_end_matches(['\r', '\n']);
    Ok(if piped.trim().is_empty() { prompt.to_owned() } else { format!("{prompt}\n\n{piped}") })
}

fn read_stdin(stdin: impl Read) -> Result<String, Failure> {
    let text = read_text(stdin)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return Err(Failure::refused("there is no prompt: write it after the options, or pipe it to stdin"));
    }
    Ok(text.to_owned())
}

fn read_text(stdin: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    stdin
        .take(MAX_PROMPT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::refused(format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        return Err(Failure::refused(format!(
            "stdin has more than {} MiB: shorten the prompt",
            MAX_PROMPT_BYTES >> 20
        )));
    }
    String::from_utf8(bytes)
        .map_err(|error| Failure::refused(format!("stdin is not UTF-8 text: {}", error.utf8_error())))
}

#[cfg(unix)]
mod stdin {
    use super::Input;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{FileType, fstat};
    use std::io::stdin;
    use std::time::Duration;

    pub(super) fn kind() -> Input {
        match fstat(stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Fifo | FileType::RegularFile | FileType::Socket) => Input::Pipe,
            _ => Input::Nothing,
        }
    }

    /// Waits until stdin can be read or has ended.
    pub(super) fn becomes_readable(within: Duration) -> bool {
        let stdin = stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec::try_from(within).ok();
        // If waiting fails, reading reports the reason.
        poll(&mut waiting, timeout.as_ref()).map_or(true, |ready| ready > 0)
    }
}

#[cfg(not(unix))]
mod stdin {
    use super::Input;
    use std::time::Duration;

    pub(super) fn kind() -> Input {
        Input::Pipe
    }

    pub(super) fn becomes_readable(_: Duration) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(prompt: Option<&str>) -> RunArguments {
        RunArguments { prompt: prompt.map(str::to_owned), ..RunArguments::default() }
    }

    #[test]
    fn i1_the_prompt_is_read_from_the_command_line_or_a_pipe() {
        let read = |run: &RunArguments, input, stdin: &str| {
            text(run, input, stdin.as_bytes()).map_err(|failure| failure.message)
        };
        assert_eq!(read(&run(Some("one")), Input::Pipe, "two\n"), Ok(Some("one\n\ntwo".into())));
        assert_eq!(read(&run(Some("one")), Input::Pipe, "\n"), Ok(Some("one".into())));
        assert_eq!(read(&run(Some("one")), Input::Nothing, "two"), Ok(Some("one".into())));
        assert!(read(&run(None), Input::Nothing, "").is_err());
        assert_eq!(read(&run(None), Input::Pipe, "two\n"), Ok(Some("two".into())));
        assert_eq!(read(&run(Some("-")), Input::Terminal, "two\nlines\n"), Ok(Some("two\nlines".into())));
        assert_eq!(read(&run(None), Input::Terminal, "two"), Ok(None));
        let continues = RunArguments { continue_latest: true, ..RunArguments::default() };
        assert_eq!(read(&continues, Input::Pipe, "two"), Ok(None));
        let with_stdin = RunArguments { prompt: Some("-".into()), ..continues };
        assert_eq!(read(&with_stdin, Input::Pipe, "two"), Ok(Some("two".into())));
        assert!(read(&run(None), Input::Pipe, " \n").is_err());
        assert!(read(&run(Some("")), Input::Pipe, "two").is_err());
    }

    #[test]
    fn text_rejects_stdin_that_is_too_long_or_not_utf8() {
        let endless = std::io::repeat(b'a');
        assert!(text(&run(None), Input::Pipe, endless).expect_err("endless").message.contains("10 MiB"));
        let bytes: &[u8] = &[0xff, 0xfe];
        assert!(text(&run(None), Input::Pipe, bytes).expect_err("no text").message.contains("UTF-8"));
    }
}
