//! The tool `files.read`, which reads lines or bytes of a file.

use agent_host_sdk::prelude::*;
use agent_host_sdk::trees;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use tree_search::lookup;

/// Maximum size of one result, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of a line in the result. Longer lines are truncated.
const MAX_LINE: usize = 16 * 1024;
/// Maximum number of bytes that are skipped to reach the first requested line. Lines after this number of bytes can be
/// read only by a call with `offset`.
const MAX_SKIPPED: u64 = 256 * 1024 * 1024;

/// Arguments of `files.read`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    /// The path of the file, for example `src/lib.rs`.
    path: String,
    /// The first line to read, from 1. Default: 1.
    #[schemars(range(min = 1))]
    first_line: Option<u64>,
    /// Maximum number of lines to read. Default: as many as fit.
    #[schemars(range(min = 1))]
    lines: Option<u64>,
    /// Read bytes instead of lines: the first byte, from 0.
    offset: Option<u64>,
    /// Maximum number of bytes to read, together with `offset`. Default and maximum: 65536.
    #[schemars(range(min = 1, max = 65536))]
    length: Option<u64>,
}

/// Runs `files.read`.
pub(crate) fn read(arguments: ReadFile) -> Result<String, ToolError> {
    let ReadFile { path, first_line, lines, offset, length } = arguments;
    let by_lines = first_line.is_some() || lines.is_some();
    match (by_lines, offset) {
        (true, Some(_)) => {
            return Err(ToolError::invalid("/offset", "cannot be combined with `first_line` and `lines`"));
        }
        (_, None) if length.is_some() => return Err(ToolError::invalid("/length", "needs `offset`")),
        _ => {}
    }
    let positive = [("/first_line", first_line), ("/lines", lines), ("/length", length)];
    if let Some((pointer, _)) = positive.iter().find(|(_, number)| *number == Some(0)) {
        return Err(ToolError::invalid(*pointer, "must be at least 1"));
    }
    let entry = lookup::file(&path)?;
    let size = entry.metadata.len();
    let file = File::open(&entry.path).map_err(|error| trees::error(&path, &error))?;
    match offset {
        Some(offset) => read_bytes(file, size, offset, length).map_err(|error| error.into_tool_error(&path)),
        None => read_lines(file, size, first_line.unwrap_or(1), lines).map_err(|error| error.into_tool_error(&path)),
    }
}

/// The reason why a file cannot be read.
enum Problem {
    Io(io::Error),
    Binary(u64),
    AfterEnd(&'static str, String),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Problem {
    fn into_tool_error(self, path: &str) -> ToolError {
        match self {
            Self::Io(error) => trees::error(path, &error),
            Self::Binary(at) => ToolError::failed(format!("`{path}` is not UTF-8 text: see byte {at}")),
            Self::AfterEnd(pointer, message) => ToolError::invalid(pointer, message),
        }
    }
}

fn read_bytes(mut file: File, size: u64, offset: u64, length: Option<u64>) -> Result<String, Problem> {
    if offset > size {
        return Err(Problem::AfterEnd("/offset", format!("is after the end: the file has {size} bytes")));
    }
    let length = length.unwrap_or(MAX_BYTES as u64).min(MAX_BYTES as u64);
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    let is_complete = offset + bytes.len() as u64 >= size;
    // The requested range may start or end inside a character. An incomplete character at the start of the range is
    // left out. An incomplete character at the end is left out too, because the next range starts with this character.
    let begin = bytes.iter().take(3).take_while(|byte| offset > 0 && **byte & 0xC0 == 0x80).count();
    let text = match std::str::from_utf8(&bytes[begin..]) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && !is_complete && error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[begin..begin + error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return Err(Problem::Binary(offset + (begin + error.valid_up_to()) as u64)),
    };
    let from = offset + begin as u64;
    let to = from + text.len() as u64;
    let next = if to < size { format!("; continue with offset {to}") } else { String::new() };
    Ok(format!("{text}\n[bytes {from} to {to} of {size}{next}]"))
}

fn read_lines(file: File, size: u64, first: u64, max_lines: Option<u64>) -> Result<String, Problem> {
    let mut reader = BufReader::new(file);
    let mut position = 0;
    let mut number = 1;
    while number < first {
        let (length, complete) = skip_line(&mut reader)?;
        position += length;
        if length == 0 || !complete && position == size {
            let lines = if length == 0 { number - 1 } else { number };
            return Err(Problem::AfterEnd("/first_line", format!("is after the end: the file has {lines} lines")));
        }
        if position > MAX_SKIPPED {
            return Err(Problem::AfterEnd(
                "/first_line",
                format!("is too far from the start; read it with an offset, starting at {position}"),
            ));
        }
        number += 1;
    }
    let (mut text, mut cut) = (String::new(), 0);
    let mut line = Vec::new();
    while max_lines.is_none_or(|max_lines| number - first < max_lines) {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        let mut skipped_length = 0;
        if read == MAX_LINE && line.last() != Some(&b'\n') {
            skipped_length = skip_line(&mut reader)?.0;
        }
        let valid = valid_text(&line, skipped_length > 0).map_err(|at| Problem::Binary(position + at as u64))?;
        if !text.is_empty() && text.len() + valid.len() > MAX_BYTES {
            break;
        }
        text.push_str(valid);
        if skipped_length > 0 {
            text.push_str("…\n");
            cut += 1;
        }
        position += read as u64 + skipped_length;
        number += 1;
    }
    Ok(text + &footer(first, number, position, size, cut))
}

fn footer(first: u64, next: u64, position: u64, size: u64, cut: u64) -> String {
    let mut footer = match next {
        _ if size == 0 => "[the file is empty".to_owned(),
        next if next == first => return format!("[no line {first}: the file ends before it]"),
        next => format!("[lines {first} to {}", next - 1),
    };
    if position < size {
        footer.push_str(&format!("; continue with first_line {next}"));
    } else if size > 0 {
        footer.push_str(", the end");
    }
    if cut > 0 {
        footer.push_str(&format!("; {cut} lines were longer than {MAX_LINE} bytes and are cut: read them by offset"));
    }
    footer.push(']');
    footer
}

/// Returns the line as text. If the line was truncated inside a character, that character is left out. If the line is
/// not UTF-8 text, returns the position of the first invalid byte.
fn valid_text(line: &[u8], was_cut: bool) -> Result<&str, usize> {
    if let Some(at) = line.iter().position(|byte| *byte == 0) {
        return Err(at);
    }
    match std::str::from_utf8(line) {
        Ok(text) => Ok(text),
        Err(error) if was_cut && error.error_len().is_none() => {
            std::str::from_utf8(&line[..error.valid_up_to()]).map_err(|error| error.valid_up_to())
        }
        Err(error) => Err(error.valid_up_to()),
    }
}

/// Skips all bytes up to the end of a line. Returns the number of skipped bytes, and whether the line ends with a
/// line break.
fn skip_line(reader: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let mut length = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok((length, false));
        }
        let found = buffer.iter().position(|byte| *byte == b'\n');
        let used = found.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        length += used as u64;
        if found.is_some() {
            return Ok((length, true));
        }
    }
}
