//! Decoder for server-sent events (`text/event-stream` of the WHATWG HTML standard). The decoder reads bytes that
//! arrive in arbitrary chunks and returns events.

use memchr::memchr2;
use std::borrow::Cow;

/// Maximum size of one event, and of one line, in bytes.
pub const EVENT_LIMIT: usize = 8 * 1024 * 1024;

/// Maximum size of an event name in bytes. Longer names are truncated.
const NAME_LIMIT: usize = 256;

const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// One event. Invalid UTF-8 is replaced by U+FFFD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'e> {
    /// Value of the `event` field, or an empty string if the event has no such field. Some model servers send an error
    /// in a field named `error` instead of `data`. An event with that field has the name `error`.
    pub name: Cow<'e, str>,
    /// Values of the `data` fields, joined by line feeds.
    pub data: Cow<'e, str>,
}

/// An event or one of its lines is larger than [`EVENT_LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one event has more than {EVENT_LIMIT} bytes")]
pub struct TooLarge;

/// Decodes events. Every byte is read once, no matter how the input is split. If an event is completely contained in
/// one chunk, it is not copied. Comments, `id`, `retry` and unknown fields are skipped.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Bytes of the current, incomplete line that arrived in earlier chunks.
    line: Vec<u8>,
    /// Data of the current, incomplete event.
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    /// Whether the event in this decoder was already returned. If so, its data and name are cleared before the next
    /// event is decoded.
    was_returned: bool,
    /// Whether the last byte was a carriage return. A line feed directly after the carriage return is part of the same
    /// line ending.
    after_return: bool,
    /// Number of bytes of a byte-order mark that were read at the start of the input.
    mark_bytes: usize,
    /// Whether a byte that is not part of a byte-order mark has arrived.
    has_started: bool,
}

enum Line<'l> {
    Blank,
    Data(&'l [u8]),
    Name(&'l [u8]),
    Error(&'l [u8]),
    Ignored,
}

impl Decoder {
    /// Returns the next event that ends in `input`, and moves the start of `input` past the bytes that were read.
    /// Returns `None` when the whole input is read and no event has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if an event is too large.
    pub fn next<'e, 'i: 'e>(&'e mut self, input: &mut &'i [u8]) -> Result<Option<Event<'e>>, TooLarge> {
        self.clear_returned();
        self.skip_byte_order_mark(input);
        // Data of the current event, borrowed from the input. `None` if the event has no data yet, has several data
        // lines, or has data from an earlier chunk.
        let mut borrowed_data = None;
        while let Some(line) = self.take_line(input)? {
            let line = match line {
                Cow::Borrowed(line) => parse_line(line),
                Cow::Owned(line) => {
                    self.process_owned_line(line)?;
                    continue;
                }
            };
            match line {
                Line::Blank if borrowed_data.is_some() => {
                    self.was_returned = true;
                    break;
                }
                Line::Data(data) if borrowed_data.is_none() && !self.has_data => borrowed_data = Some(data),
                line => {
                    if let Some(data) = borrowed_data.take() {
                        self.append(data)?;
                    }
                    if self.process_line(line)? {
                        break;
                    }
                }
            }
        }
        if !self.was_returned {
            if let Some(data) = borrowed_data {
                self.append(data)?;
            }
            return Ok(None);
        }
        let data = borrowed_data.unwrap_or(&self.data);
        Ok(Some(Event { name: decode_utf8(&self.name), data: decode_utf8(data) }))
    }

    /// Ends the input. If the blank line after the last event is missing, returns that event. The standard says that
    /// such an event is discarded, but some servers leave out the last blank line. The caller must determine from the
    /// data whether the event is complete.
    pub fn end(&mut self) -> Option<Event<'_>> {
        self.clear_returned();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            // The line cannot be too large, because its size was checked when the bytes arrived.
            let _ = self.process_owned_line(line);
        }
        self.has_data.then(|| Event { name: decode_utf8(&self.name), data: decode_utf8(&self.data) })
    }

    fn clear_returned(&mut self) {
        if std::mem::take(&mut self.was_returned) {
            self.data.clear();
            self.has_data = false;
            self.name.clear();
        }
    }

    fn skip_byte_order_mark(&mut self, input: &mut &[u8]) {
        while !self.has_started {
            let Some((first, rest)) = input.split_first() else { return };
            if BYTE_ORDER_MARK.get(self.mark_bytes) == Some(first) {
                self.mark_bytes += 1;
                *input = rest;
            } else {
                self.has_started = true;
                if self.mark_bytes < BYTE_ORDER_MARK.len() {
                    // The bytes were not the start of a byte-order mark after all, so they belong to the text.
                    self.line.extend_from_slice(&BYTE_ORDER_MARK[..self.mark_bytes]);
                }
            }
        }
    }

    /// Returns the next complete line without its line ending. The returned line is owned if it began in an earlier
    /// chunk. If no line ends in the input, the decoder stores the bytes of the incomplete line for the next call.
    fn take_line<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Cow<'i, [u8]>>, TooLarge> {
        let mut bytes = *input;
        if !bytes.is_empty() && std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        let Some(end) = memchr2(b'\n', b'\r', bytes) else {
            *input = &[];
            self.check_size(bytes.len())?;
            self.line.extend_from_slice(bytes);
            return Ok(None);
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        *input = match (bytes[end], rest.first()) {
            (b'\r', Some(b'\n')) => &rest[1..],
            (b'\r', None) => {
                self.after_return = true;
                rest
            }
            _ => rest,
        };
        self.check_size(line.len())?;
        if self.line.is_empty() {
            return Ok(Some(Cow::Borrowed(line)));
        }
        let mut whole = std::mem::take(&mut self.line);
        whole.extend_from_slice(line);
        Ok(Some(Cow::Owned(whole)))
    }

    fn check_size(&self, additional: usize) -> Result<(), TooLarge> {
        if self.line.len() + self.data.len() + additional > EVENT_LIMIT { Err(TooLarge) } else { Ok(()) }
    }

    /// Processes a line that was assembled from several chunks. The line must not be empty, because an empty line would
    /// end an event.
    fn process_owned_line(&mut self, mut line: Vec<u8>) -> Result<(), TooLarge> {
        match parse_line(&line) {
            Line::Data(data) if !self.has_data => {
                // The line's buffer becomes the data buffer, so that large events are copied only once.
                let prefix_length = line.len() - data.len();
                line.drain(..prefix_length);
                self.has_data = true;
                self.line = std::mem::replace(&mut self.data, line);
            }
            parsed => {
                self.process_line(parsed)?;
                self.line = line;
            }
        }
        self.line.clear();
        Ok(())
    }

    /// Processes a line and returns whether it ends an event.
    fn process_line(&mut self, line: Line<'_>) -> Result<bool, TooLarge> {
        match line {
            Line::Blank if self.has_data => self.was_returned = true,
            Line::Blank => self.name.clear(),
            Line::Data(data) => self.append(data)?,
            Line::Name(name) => self.set_name(name),
            Line::Error(data) => {
                self.set_name(b"error");
                self.append(data)?;
            }
            Line::Ignored => {}
        }
        Ok(self.was_returned)
    }

    fn set_name(&mut self, name: &[u8]) {
        self.name.clear();
        self.name.extend_from_slice(&name[..name.len().min(NAME_LIMIT)]);
    }

    fn append(&mut self, data: &[u8]) -> Result<(), TooLarge> {
        if self.data.len() + data.len() > EVENT_LIMIT {
            return Err(TooLarge);
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(data);
        Ok(())
    }
}

fn parse_line(line: &[u8]) -> Line<'_> {
    if line.is_empty() {
        return Line::Blank;
    }
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &[][..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => Line::Data(value),
        b"event" => Line::Name(value),
        b"error" => Line::Error(value),
        _ => Line::Ignored,
    }
}

fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    // `from_utf8` is faster than the lossy conversion, and nearly all input is valid UTF-8.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
