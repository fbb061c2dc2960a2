//! Programs of a toolchain while they run: in a group of their own, which ends when nobody waits for it any more.

use super::{BuildError, BuildEvent, BuildProgress};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;

/// Most bytes of a program's messages that an error carries.
const KEPT_MESSAGES: usize = 64 * 1024;
/// Most bytes of one line that are shown.
const SHOWN_LINE: usize = 4 * 1024;

/// Runs a program to its end and deals out the lines of its standard output; those of standard error are shown as they come.
/// Dropping the future ends it, with all that it started.
pub(super) async fn run(
    mut command: Command,
    tool: &str,
    progress: &BuildProgress<'_>,
    deal: impl FnMut(&str),
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
            each_line(stdout, deal),
            each_line(stderr, |line| {
                progress(BuildEvent::Line { tool, line: shortened(line) });
                messages.keep(line);
            }),
        )?;
        child.wait().await
    };
    let status = reading.await.map_err(failed)?;
    // What it has left behind on purpose, such as a server that keeps compiled code, is not ours to end.
    group.0 = None;
    Ok((status, messages))
}

/// The same for a tool that says all it has to say in lines, on either output.
pub(super) async fn compile(
    command: Command,
    (tool, plugin): (&'static str, &str),
    progress: &BuildProgress<'_>,
) -> Result<(), BuildError> {
    let mut said = Messages::default();
    let deal = |line: &str| {
        progress(BuildEvent::Line { tool, line: shortened(line) });
        said.keep(line);
    };
    let (status, messages) = run(command, tool, progress, deal).await?;
    if status.success() {
        return Ok(());
    }
    let mut text = said.text;
    text.push_str(&messages.text);
    if text.trim().is_empty() {
        text = format!("it ended with {status}, and said nothing");
    }
    Err(BuildError::Compile { tool, plugins: vec![plugin.to_owned()], messages: text })
}

/// The processes of one group.
struct Group(Option<u32>);

impl Drop for Group {
    #[cfg(unix)]
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(group) = self.0.and_then(|group| i32::try_from(group).ok()).and_then(Pid::from_raw) {
            // The only error is that nobody is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Elsewhere the program alone is ended, by its handle.
    #[cfg(not(unix))]
    fn drop(&mut self) {}
}

async fn each_line(stream: Option<impl AsyncRead + Unpin>, mut deal: impl FnMut(&str)) -> std::io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await? > 0 {
        deal(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(())
}

fn shortened(line: &str) -> &str {
    &line[..line.floor_char_boundary(SHOWN_LINE)]
}

/// A toolchain's messages without cargo's lines on its own progress; the last of them, where they are too many.
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
        if self.text.len() > KEPT_MESSAGES {
            let cut = self.text.ceil_char_boundary(self.text.len() - KEPT_MESSAGES / 2);
            self.text.drain(..cut);
        }
    }
}

/// Cargo sets its own words right-aligned in twelve columns: `   Compiling name v1`.
fn is_status(line: &str) -> bool {
    let Some((word, rest)) = line.split_at_checked(12) else {
        return false;
    };
    let word = word.trim_start();
    rest.starts_with(' ') && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_messages_are_kept_and_status_lines_are_not() {
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
    fn messages_are_bounded_and_keep_the_end() {
        let mut messages = Messages::default();
        for number in 0..20_000 {
            messages.keep(&format!("error: nümber {number}"));
        }
        assert!(messages.text.len() <= KEPT_MESSAGES);
        assert!(messages.text.ends_with("error: nümber 19999\n"));
    }
}
