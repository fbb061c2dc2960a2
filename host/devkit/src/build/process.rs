//! Runs the programs of a toolchain. Each program has its own process group, which is killed when the future of the
//! build is dropped.

use super::{BuildError, BuildEvent, BuildProgress};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

/// Maximum total size, in bytes, of a program's messages that are kept for an error.
const MAX_MESSAGES: usize = 64 * 1024;
/// Maximum size, in bytes, of an output line in a progress event. Longer lines are cut.
const MAX_LINE: usize = 4 * 1024;

/// Runs a program until it exits, and calls `on_line` for each line of its standard output. Reports each line
/// of standard error to `progress` when it arrives. Dropping the future kills the program and all processes
/// that it started.
pub(super) async fn run(
    mut command: Command,
    tool: &str,
    progress: &BuildProgress<'_>,
    on_line: impl FnMut(&str),
) -> Result<(ExitStatus, Messages), BuildError> {
    let program = command.as_std().get_program().to_owned();
    let failed = |source| BuildError::Start { program: program.clone().into(), source };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let mut group = Group(child.id());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut messages = Messages::default();
    let reading = async {
        tokio::try_join!(
            each_line(stdout, on_line),
            each_line(stderr, |line| {
                progress(BuildEvent::Line { tool, line: shortened(line) });
                messages.keep(line);
            }),
        )?;
        child.wait().await
    };
    let status = reading.await.map_err(failed)?;
    // The program has exited. Do not kill the processes that the program started, because one of these processes may
    // have to keep running, such as the server of a compiler cache.
    group.0 = None;
    Ok((status, messages))
}

/// Runs a tool that writes human-readable messages to standard output or standard error.
pub(super) async fn compile(
    command: Command,
    (tool, plugin): (&'static str, &str),
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let mut printed = Messages::default();
    let on_line = |line: &str| {
        progress(BuildEvent::Line { tool, line: shortened(line) });
        printed.keep(line);
    };
    let (status, messages) = run(command, tool, progress, on_line).await?;
    if status.success() {
        return Ok(());
    }
    let mut text = printed.text;
    text.push_str(&messages.text);
    if text.trim().is_empty() {
        text = format!("the program ended with {status} and printed nothing");
    }
    Err(BuildError::Compile { tool, plugins: vec![plugin.to_owned()], messages: text })
}

/// The id of a process group that is killed when this value is dropped. `None` means that no process is killed.
struct Group(Option<u32>);

impl Drop for Group {
    #[cfg(unix)]
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(group) = self.0.and_then(|group| i32::try_from(group).ok()).and_then(Pid::from_raw) {
            // The only possible error is that the group contains no process.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Does nothing on systems other than Unix. On these systems, only the program itself is killed,
    /// through its handle.
    #[cfg(not(unix))]
    fn drop(&mut self) {}
}

async fn each_line(stream: Option<impl AsyncRead + Unpin>, mut on_line: impl FnMut(&str)) -> std::io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await? > 0 {
        on_line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

fn shortened(line: &str) -> &str {
    &line[..line.floor_char_boundary(MAX_LINE)]
}

/// The messages that a program of a toolchain printed, except cargo's status lines. If the messages exceed
/// [`MAX_MESSAGES`], only the last messages are kept.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) text: String,
}

impl Messages {
    fn keep(&mut self, line: &str) {
        if is_status(line) {
            return;
        }
        self.text.push_str(line);
        self.text.push('\n');
        if self.text.len() > MAX_MESSAGES {
            let cut = self.text.ceil_char_boundary(self.text.len() - MAX_MESSAGES / 2);
            self.text.drain(..cut);
        }
    }
}

/// Whether a line is a status line of cargo. In a status line, the first word is right-aligned in twelve columns, as
/// in `   Compiling name v1`.
fn is_status(line: &str) -> bool {
    let Some((word, after_word)) = line.split_at_checked(12) else {
        return false;
    };
    let word = word.trim_start();
    after_word.starts_with(' ') && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_compiler_messages_and_drops_status_lines() {
        let mut messages = Messages::default();
        let lines = [
            "   Compiling calc v0.1.0 (/work/plugins/calc)",
            "error[E0425]: cannot find value `x` in this scope",
            " --> src/lib.rs:3:5",
            "  |",
            "3 |     x",
            "error: could not compile `calc` (lib) due to 1 previous error",
            "    Finished `plugin` profile in 0.1s",
        ];
        lines.iter().for_each(|line| messages.keep(line));
        assert_eq!(messages.text, format!("{}\n", lines[1..6].join("\n")));
    }

    #[test]
    fn bounds_messages_and_keeps_the_end() {
        let mut messages = Messages::default();
        for number in 0..20_000 {
            messages.keep(&format!("error: nümber {number}"));
        }
        assert!(messages.text.len() <= MAX_MESSAGES);
        assert!(messages.text.ends_with("error: nümber 19999\n"));
    }
}
