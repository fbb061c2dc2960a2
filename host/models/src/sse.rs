//! Server-sent events, as WHATWG HTML describes `text/event-stream`: from bytes that are cut anywhere to events.

use memchr::memchr2;
use std::borrow::Cow;

/// Most bytes of one event, and of one line.
pub const EVENT_LIMIT: usize = 8 * 1024 * 1024;

/// Most bytes of an event's name that are kept.
const NAME_LIMIT: usize = 256;

const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// One event. What is no UTF-8 has become U+FFFD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'e> {
    /// Its `event` field; empty where it has none. `error` also where the data came in a field of that name, as some
    /// servers of models send it.
    pub name: Cow<'e, str>,
    /// Its `data` fields, joined by line feeds; empty where the one it has is.
    pub data: Cow<'e, str>,
}

/// An event, or a line of one, has more than [`EVENT_LIMIT`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one event has more than {EVENT_LIMIT} bytes")]
pub struct TooLarge;

/// Finds events. Every byte is looked at once, whatever the pieces in which it comes, and an event that lies within one
/// piece is not copied. Comments, `id`, `retry` and unknown fields are read over.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The line that has not ended.
    line: Vec<u8>,
    /// Data of the event that has not ended.
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    /// The event has been given out: data and name are to be forgotten.
    is_given: bool,
    /// A line feed that comes now belongs to the carriage return before it.
    after_return: bool,
    /// How many bytes of a byte-order mark have been read; none are expected once anything else has come.
    mark: usize,
    has_begun: bool,
}

enum Line<'l> {
    Blank,
    Data(&'l [u8]),
    Name(&'l [u8]),
    Failure(&'l [u8]),
    Ignored,
}

impl Decoder {
    /// The next event that ends in `input`, of which it takes what it reads. None where all is read and no event has ended.
    pub fn next<'e, 'i: 'e>(&'e mut self, input: &mut &'i [u8]) -> Result<Option<Event<'e>>, TooLarge> {
        self.forget_given();
        self.skip_mark(input);
        // Data of an event that has one such line, which lies in the input.
        let mut uncopied = None;
        while let Some(line) = self.take_line(input)? {
            let line = match line {
                Cow::Borrowed(line) => read(line),
                Cow::Owned(line) => {
                    self.keep_owned(line)?;
                    continue;
                }
            };
            match line {
                Line::Blank if uncopied.is_some() => {
                    self.is_given = true;
                    break;
                }
                Line::Data(data) if uncopied.is_none() && !self.has_data => uncopied = Some(data),
                line => {
                    if let Some(data) = uncopied.take() {
                        self.append(data)?;
                    }
                    if self.keep_line(line)? {
                        break;
                    }
                }
            }
        }
        if !self.is_given {
            if let Some(data) = uncopied {
                self.append(data)?;
            }
            return Ok(None);
        }
        let data = uncopied.unwrap_or(&self.data);
        Ok(Some(Event { name: text(&self.name), data: text(data) }))
    }

    /// The input has ended: an event without its blank line, where one has begun. By the standard it is void; some servers
    /// leave the last blank line out. Whoever reads it must tell from its data whether it is whole.
    pub fn end(&mut self) -> Option<Event<'_>> {
        self.forget_given();
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            // Nothing is too large: what was kept was checked when it came.
            let _ = self.keep_owned(line);
        }
        self.has_data.then(|| Event { name: text(&self.name), data: text(&self.data) })
    }

    fn forget_given(&mut self) {
        if std::mem::take(&mut self.is_given) {
            self.data.clear();
            self.has_data = false;
            self.name.clear();
        }
    }

    fn skip_mark(&mut self, input: &mut &[u8]) {
        while !self.has_begun {
            let Some((first, rest)) = input.split_first() else { return };
            if BYTE_ORDER_MARK.get(self.mark) == Some(first) {
                self.mark += 1;
                *input = rest;
            } else {
                self.has_begun = true;
                if self.mark < BYTE_ORDER_MARK.len() {
                    // The beginning of another character.
                    self.line.extend_from_slice(&BYTE_ORDER_MARK[..self.mark]);
                }
            }
        }
    }

    /// The next whole line without its end; owned where it began in an earlier piece. What is left of the input when no
    /// line ends in it is kept.
    fn take_line<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Cow<'i, [u8]>>, TooLarge> {
        let mut bytes = *input;
        if !bytes.is_empty() && std::mem::take(&mut self.after_return) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        let Some(end) = memchr2(b'\n', b'\r', bytes) else {
            *input = &[];
            self.check(bytes.len())?;
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
        self.check(line.len())?;
        if self.line.is_empty() {
            return Ok(Some(Cow::Borrowed(line)));
        }
        let mut whole = std::mem::take(&mut self.line);
        whole.extend_from_slice(line);
        Ok(Some(Cow::Owned(whole)))
    }

    fn check(&self, more: usize) -> Result<(), TooLarge> {
        if self.line.len() + self.data.len() + more > EVENT_LIMIT { Err(TooLarge) } else { Ok(()) }
    }

    /// Takes a line that was put together from pieces. It is not empty, so no event ends with it.
    fn keep_owned(&mut self, mut line: Vec<u8>) -> Result<(), TooLarge> {
        match read(&line) {
            Line::Data(data) if !self.has_data => {
                // Its buffer becomes the data's: large events are copied only once.
                let before = line.len() - data.len();
                line.drain(..before);
                self.has_data = true;
                self.line = std::mem::replace(&mut self.data, line);
            }
            read => {
                self.keep_line(read)?;
                self.line = line;
            }
        }
        self.line.clear();
        Ok(())
    }

    /// Takes what the line says; whether an event ends with it.
    fn keep_line(&mut self, line: Line<'_>) -> Result<bool, TooLarge> {
        match line {
            Line::Blank if self.has_data => self.is_given = true,
            Line::Blank => self.name.clear(),
            Line::Data(data) => self.append(data)?,
            Line::Name(name) => self.rename(name),
            Line::Failure(data) => {
                self.rename(b"error");
                self.append(data)?;
            }
            Line::Ignored => {}
        }
        Ok(self.is_given)
    }

    fn rename(&mut self, name: &[u8]) {
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

fn read(line: &[u8]) -> Line<'_> {
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
        b"error" => Line::Failure(value),
        _ => Line::Ignored,
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // The checked way is the fast one, and nearly all is well.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
