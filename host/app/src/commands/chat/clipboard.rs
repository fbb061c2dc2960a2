//! Pastes a picture from the clipboard into a prompt. The host reads the clipboard with the program of the user's desktop,
//! and only when the user presses Ctrl-V.

use crate::commands::images;
use crate::environment;
use agent_runtime::NewMediaItem;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which the program that reads the clipboard is stopped. The program that owns the clipboard may hang.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Interval between checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A program that writes the picture in the clipboard to its stdout.
struct Reader {
    program: PathBuf,
    arguments: &'static [&'static str],
    output: OutputFormat,
}

/// How a program writes the picture.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    /// The bytes of the picture.
    Bytes,
    /// A line of AppleScript that contains the bytes as hexadecimal digits.
    AppleScript,
}

/// Reads the picture in the clipboard. The error says why there is none, and what the user can do.
pub(super) fn read_picture(name: &str) -> Result<NewMediaItem, String> {
    let reader = reader().ok_or(
        "no program can read the clipboard here: install wl-clipboard (Wayland) or xclip (X11), or attach a file with @PATH",
    )?;
    let bytes = output_of(&reader)?;
    let bytes = match reader.output {
        OutputFormat::Bytes => bytes,
        OutputFormat::AppleScript => bytes_of_apple_script(&bytes),
    };
    if bytes.is_empty() {
        return Err("the clipboard contains no picture".to_owned());
    }
    images::from_bytes(bytes, Path::new(name)).map_err(|problem| format!("the clipboard cannot be pasted: {problem}"))
}

fn reader() -> Option<Reader> {
    let installed = |name: &str, arguments, output| {
        environment::installed_program(name).map(|program| Reader { program, arguments, output })
    };
    if cfg!(target_os = "macos") {
        let arguments = &["-e", "get the clipboard as «class PNGf»"];
        return installed("osascript", arguments, OutputFormat::AppleScript);
    }
    let is_set = |name| environment::variable(name).is_some_and(|value| !value.is_empty());
    let wayland = is_set("WAYLAND_DISPLAY")
        .then(|| installed("wl-paste", &["--no-newline", "--type", "image/png"], OutputFormat::Bytes));
    let x11 = is_set("DISPLAY")
        .then(|| installed("xclip", &["-selection", "clipboard", "-t", "image/png", "-o"], OutputFormat::Bytes));
    wayland.flatten().or_else(|| x11.flatten())
}

/// Runs the program, and returns what it writes to stdout. If the clipboard contains no picture, the programs fail, and the
/// result is empty.
fn output_of(reader: &Reader) -> Result<Vec<u8>, String> {
    let name = reader.program.display();
    let failed = |error: std::io::Error| format!("the clipboard cannot be read with `{name}`: {error}");
    let mut command = Command::new(&reader.program);
    command.args(reader.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let stdout = child.stdout.take();
    // The text form of the bytes has two digits for each byte.
    let limit = 2 * images::MAX_BYTES + 1024;
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.map(|stdout| stdout.take(limit).read_to_end(&mut bytes)).transpose().map(|_| bytes)
    });
    let ended = wait(&mut child, &reading);
    if !ended {
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    if !ended {
        return Err(format!("`{name}` did not write the picture within {} s", TIME_LIMIT.as_secs()));
    }
    let bytes = reading.join().unwrap_or_else(|_| Ok(Vec::new())).map_err(failed)?;
    Ok(if status.success() { bytes } else { Vec::new() })
}

/// Waits until the program has ended or everything that may be read has been read. Returns false after [`TIME_LIMIT`].
fn wait<T>(child: &mut Child, reading: &std::thread::JoinHandle<T>) -> bool {
    let until = Instant::now() + TIME_LIMIT;
    loop {
        let is_read = reading.is_finished();
        match child.try_wait() {
            Ok(None) if Instant::now() >= until => return false,
            Ok(None) if is_read => {
                // The program writes more than is read, or keeps running after it has closed its output.
                let _ = child.kill();
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return true,
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the bytes in a line such as `«data PNGf89504E47»`.
fn bytes_of_apple_script(line: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split_once("PNGf").map_or("", |(_, digits)| digits);
    let digits: Vec<u8> = digits.chars().map_while(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_bytes_that_apple_script_prints() {
        assert_eq!(bytes_of_apple_script("«data PNGf89504e47»\n".as_bytes()), [0x89, 0x50, 0x4e, 0x47]);
        assert_eq!(bytes_of_apple_script(b"missing value"), [0u8; 0]);
    }
}
