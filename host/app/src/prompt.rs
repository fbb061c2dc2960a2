//! Where a turn's input comes from: the command line, stdin, or an event.

use crate::arguments::RunArguments;
use crate::commands::session::respond;
use crate::exit::Failure;
use agent_core::cloud_event::CloudEvent;
use agent_core::event_type::is_reserved;
use agent_core::message::TurnInput;
use agent_core::plugin::TraceContext;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// Most bytes that are read as a prompt.
const LONGEST: u64 = 10 * 1024 * 1024;

/// What stdin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A person types.
    Terminal,
    /// A pipe or a file.
    Pipe,
}

/// What is asked, and of which trace it is.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    /// None where there is none to be had, or where a session is to be gone on with and none is given.
    pub(crate) input: Option<TurnInput>,
    /// That of the event which brought it (I6).
    pub(crate) trace: Option<TraceContext>,
}

/// The prompt.
pub(crate) fn read(run: &RunArguments, input: Input, stdin: impl Read) -> Result<Prompt, Failure> {
    if let Some(file) = &run.event {
        let event = respond::read(file)?;
        let (traceparent, tracestate) = (event.traceparent.clone(), event.tracestate.clone());
        let trace = traceparent.map(|traceparent| TraceContext { traceparent, tracestate });
        return Ok(Prompt { input: Some(of_event(file, event)?), trace });
    }
    Ok(Prompt { input: text(run, input, stdin)?.map(TurnInput::Text), trace: None })
}

/// An event's data: text where it is one, else JSON (I6).
fn of_event(file: &Path, event: CloudEvent) -> Result<TurnInput, Failure> {
    if is_reserved(&event.event_type) {
        return Err(Failure::refused(format!(
            "{}: the event's `type` is one of the host's own, which begins no turn: an answer to an approval goes to \
             `agent-host session respond`, and an input needs a type of its sender's",
            file.display()
        )));
    }
    match event.data {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(TurnInput::Text(text)),
        Some(data) if !matches!(data, Value::Null | Value::String(_)) => Ok(TurnInput::Json(data)),
        _ => Err(Failure::refused(format!(
            "{}: the event has no `data`, which is what the agent is asked",
            file.display()
        ))),
    }
}

fn text(run: &RunArguments, input: Input, stdin: impl Read) -> Result<Option<String>, Failure> {
    let goes_on = run.continue_latest || run.session.is_some();
    match run.prompt.as_deref() {
        Some("-") => from(stdin).map(Some),
        Some(prompt) if prompt.trim().is_empty() => Err(Failure::refused("the prompt is empty")),
        Some(prompt) => Ok(Some(prompt.to_owned())),
        // Who only goes on with a session may have a stdin that never ends.
        None if goes_on || input == Input::Terminal => Ok(None),
        None => from(stdin).map(Some),
    }
}

fn from(stdin: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    stdin
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::refused(format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(Failure::refused(format!("stdin has more than {} MiB: give the model less", LONGEST >> 20)));
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| Failure::refused(format!("stdin is not UTF-8 text: {}", error.utf8_error())))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.trim().is_empty() {
        return Err(Failure::refused("there is no prompt: write it behind the options, or pipe it to stdin"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(prompt: Option<&str>) -> RunArguments {
        RunArguments { prompt: prompt.map(str::to_owned), ..RunArguments::default() }
    }

    /// I1
    #[test]
    fn prompts_come_from_the_line_or_from_a_pipe() {
        let read = |run: &RunArguments, input, stdin: &str| text(run, input, stdin.as_bytes()).map_err(|f| f.message);
        assert_eq!(read(&run(Some("one")), Input::Pipe, "two"), Ok(Some("one".into())));
        assert_eq!(read(&run(None), Input::Pipe, "two\n"), Ok(Some("two".into())));
        assert_eq!(read(&run(Some("-")), Input::Terminal, "two\nlines\n"), Ok(Some("two\nlines".into())));
        assert_eq!(read(&run(None), Input::Terminal, "two"), Ok(None));
        let goes_on = RunArguments { continue_latest: true, ..RunArguments::default() };
        assert_eq!(read(&goes_on, Input::Pipe, "two"), Ok(None));
        let with_stdin = RunArguments { prompt: Some("-".into()), ..goes_on };
        assert_eq!(read(&with_stdin, Input::Pipe, "two"), Ok(Some("two".into())));
        assert!(read(&run(None), Input::Pipe, " \n").is_err());
        assert!(read(&run(Some("")), Input::Pipe, "two").is_err());
    }

    #[test]
    fn stdin_is_bounded_and_text() {
        let endless = std::io::repeat(b'a');
        assert!(text(&run(None), Input::Pipe, endless).expect_err("endless").message.contains("10 MiB"));
        let bytes: &[u8] = &[0xff, 0xfe];
        assert!(text(&run(None), Input::Pipe, bytes).expect_err("no text").message.contains("UTF-8"));
    }
}
