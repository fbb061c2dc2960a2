//! Reads a document item by item, so that only a few items of a session are in memory at a time.
//!
//! The first pass reads the members that are not lists and notes where each list starts. Each later pass reads one
//! list. A background thread parses the document while the caller processes earlier items. The background thread waits
//! if the caller is slower than the parser.

use super::bounds::{Bounds, LimitExceeded};
use super::{FORMAT, VERSION};
use crate::transfer::TransferError;
use crate::transfer::damaged;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Maximum size of a document in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 30;
/// Number of items at which a batch is complete.
const BATCH_ITEMS: usize = 200;
/// Number of bytes at which a batch is complete, even if it has few items.
const BATCH_BYTES: usize = 2 << 20;

/// An exported session that can be read more than once: a file or bytes in memory.
///
/// ```
/// use agent_runtime::transfer::SessionDocument;
///
/// let document = SessionDocument::from(br#"{"format": "agent-host.session"}"#.as_slice());
/// # drop(document);
/// ```
pub struct SessionDocument {
    source: Box<dyn Source>,
}

trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send> Source for T {}

impl From<File> for SessionDocument {
    fn from(file: File) -> Self {
        Self { source: Box::new(file) }
    }
}

impl From<Vec<u8>> for SessionDocument {
    fn from(bytes: Vec<u8>) -> Self {
        Self { source: Box::new(Cursor::new(bytes)) }
    }
}

impl From<&[u8]> for SessionDocument {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<&Vec<u8>> for SessionDocument {
    fn from(bytes: &Vec<u8>) -> Self {
        bytes.clone().into()
    }
}

/// One of the lists in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transfer) enum List {
    Messages,
    Hidden,
    Calls,
    Events,
    Records,
    Texts,
    Media,
}

const LISTS: [List; 7] =
    [List::Messages, List::Hidden, List::Calls, List::Events, List::Records, List::Texts, List::Media];

impl List {
    pub(in crate::transfer) fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Hidden => "hidden",
            Self::Calls => "calls",
            Self::Events => "events",
            Self::Records => "records",
            Self::Texts => "texts",
            Self::Media => "media",
        }
    }
}

/// The result of the first pass over a document: the members that are not lists, and the byte offset of each list.
#[derive(Default)]
pub(in crate::transfer) struct Head {
    pub(in crate::transfer) session: Option<Box<RawValue>>,
    pub(in crate::transfer) snapshot: Option<Box<RawValue>>,
    format: Option<String>,
    version: Option<u32>,
    lists: [Option<u64>; LISTS.len()],
}

/// A batch of consecutive items of one of the document's lists.
#[derive(Default)]
pub(in crate::transfer) struct Batch {
    /// Index of the first item of this batch in its list.
    pub(in crate::transfer) first: usize,
    pub(in crate::transfer) items: Vec<Box<RawValue>>,
}

impl SessionDocument {
    /// Copies a source that can be read only once, such as a pipe, into a file. Copying stops early if the bytes cannot
    /// be a document.
    pub async fn copied(mut from: impl Read + Send + 'static, mut to: File) -> Result<Self, TransferError> {
        let copying = tokio::task::spawn_blocking(move || {
            let (mut bounds, mut buffer, mut copied) = (Bounds::default(), vec![0; 1 << 16], 0);
            loop {
                let read = from.read(&mut buffer).map_err(TransferError::Read)?;
                if read == 0 {
                    return Ok(Self::from(to));
                }
                let bytes = &buffer[..read];
                if copied == 0 {
                    check_start(bytes)?;
                }
                bounds.scan(bytes).map_err(|exceeded| TransferError::NotASession { problem: exceeded.to_string() })?;
                copied += read as u64;
                if copied > MAX_DOCUMENT_BYTES {
                    return Err(TransferError::Read(too_large()));
                }
                to.write_all(bytes).map_err(TransferError::Read)?;
            }
        });
        join_reader(copying).await
    }

    /// Reads the complete document once and returns its head.
    pub(in crate::transfer) async fn head(self) -> Result<(Self, Head), TransferError> {
        let read = tokio::task::spawn_blocking(move || {
            let Self { mut source } = self;
            let head = read_head(&mut *source)?;
            Ok((Self { source }, head))
        });
        join_reader(read).await
    }

    /// Starts to read a list of the document.
    pub(in crate::transfer) fn items(self, head: &Head, list: List) -> Items {
        let start = head.lists[list as usize].unwrap_or_default();
        let (sender, receiver) = channel(1);
        let reading = tokio::task::spawn_blocking(move || {
            let Self { mut source } = self;
            read_list(&mut *source, start, &sender)?;
            Ok(Self { source })
        });
        Items { receiver, reading }
    }
}

/// The items of one list of the document, in batches. A thread reads the list in the background, and stops when this
/// value is dropped.
pub(in crate::transfer) struct Items {
    receiver: Receiver<Batch>,
    reading: JoinHandle<Result<SessionDocument, TransferError>>,
}

impl Items {
    /// Returns the next batch of items, or `None` after the last batch.
    pub(in crate::transfer) async fn next(&mut self) -> Option<Batch> {
        self.receiver.recv().await
    }

    /// Stops reading the list. Returns the document, so that another list can be read, or the error that occurred while
    /// this list was read.
    pub(in crate::transfer) async fn end(self) -> Result<SessionDocument, TransferError> {
        drop(self.receiver);
        join_reader(self.reading).await
    }
}

async fn join_reader<T>(task: JoinHandle<Result<T, TransferError>>) -> Result<T, TransferError> {
    // The reader task itself fails only if the process shuts down.
    task.await.map_err(|error| TransferError::Read(io::Error::other(error)))?
}

/// A reader between the document and the parser. The reader counts the bytes that the parser reads, and returns an
/// error if a limit is exceeded.
struct BoundedReader<R> {
    inner: R,
    bounds: Bounds,
    position: u64,
    exceeded: Option<LimitExceeded>,
}

/// A shared reference to a reader. The reference is necessary because the parser must own its reader, while the
/// visitors need the position of the same reader.
struct SharedReader<'a, R>(&'a RefCell<BoundedReader<R>>);

impl<R: BufRead> Read for SharedReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.0.borrow_mut();
        let read = reader.inner.read(buffer)?;
        reader.position += read as u64;
        if reader.position > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        if let Err(exceeded) = reader.bounds.scan(&buffer[..read]) {
            reader.exceeded = Some(exceeded);
            return Err(io::Error::other(exceeded.to_string()));
        }
        Ok(read)
    }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} GiB", MAX_DOCUMENT_BYTES >> 30))
}

/// Checks that the document starts as a JSON object.
fn check_start(bytes: &[u8]) -> Result<(), TransferError> {
    match bytes.trim_ascii_start().first() {
        None | Some(b'{') => Ok(()),
        Some(_) => Err(TransferError::NotASession { problem: "it does not start with `{`".to_owned() }),
    }
}

fn bounded(source: &mut dyn Source, depth: usize) -> RefCell<BoundedReader<BufReader<&mut dyn Source>>> {
    let inner = BufReader::with_capacity(1 << 16, source);
    RefCell::new(BoundedReader { inner, bounds: Bounds::at_depth(depth), position: 0, exceeded: None })
}

fn read_head(source: &mut dyn Source) -> Result<Head, TransferError> {
    source.rewind().map_err(TransferError::Read)?;
    let reader = bounded(source, 0);
    check_start(reader.borrow_mut().inner.fill_buf().map_err(TransferError::Read)?)?;
    let position = || reader.borrow().position;
    let (mut head, mut refused) = (Head::default(), None);
    let mut json = serde_json::Deserializer::from_reader(SharedReader(&reader));
    let visitor = HeadVisitor { head: &mut head, position: &position, refused: &mut refused };
    let read = json.deserialize_map(visitor).and_then(|()| json.end());
    if let Some(refused) = refused {
        return Err(refused);
    }
    read.map_err(|error| unreadable(error, reader.borrow().exceeded))?;
    head.check()?;
    Ok(head)
}

impl Head {
    /// Checks that the document has all required members.
    fn check(&self) -> Result<(), TransferError> {
        let lists = LISTS.iter().zip(&self.lists).map(|(list, start)| (list.name(), start.is_some()));
        let values = [
            ("format", self.format.is_some()),
            ("version", self.version.is_some()),
            ("session", self.session.is_some()),
            ("snapshot", self.snapshot.is_some()),
        ];
        let missing = values.into_iter().chain(lists).find(|(_, is_present)| !is_present);
        match missing {
            None => Ok(()),
            Some((name @ ("format" | "version"), _)) => {
                Err(TransferError::NotASession { problem: format!("it has no member `{name}`") })
            }
            Some((name, _)) => Err(damaged("its top level", format!("`{name}` is missing"))),
        }
    }
}

/// Reads the top-level object of the document.
struct HeadVisitor<'a> {
    head: &'a mut Head,
    position: &'a dyn Fn() -> u64,
    /// The error that stopped the reading, if there is one.
    refused: &'a mut Option<TransferError>,
}

impl<'de> Visitor<'de> for HeadVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { head, position, refused } = self;
        let mut refuse = |error: TransferError| {
            *refused = Some(error);
            A::Error::custom("the document is refused")
        };
        while let Some(name) = members.next_key::<String>()? {
            let duplicate = || damaged("its top level", format!("`{name}` occurs twice"));
            let is_new = match name.as_str() {
                "format" => {
                    let format: String = members.next_value()?;
                    if format != FORMAT {
                        return Err(refuse(TransferError::NotASession {
                            problem: format!("its format is `{format}`"),
                        }));
                    }
                    head.format.replace(format).is_none()
                }
                "version" => {
                    let found: u32 = members.next_value()?;
                    if found > VERSION {
                        return Err(refuse(TransferError::UnsupportedVersion { found, supported: VERSION }));
                    }
                    head.version.replace(found).is_none()
                }
                "session" => head.session.replace(members.next_value()?).is_none(),
                "snapshot" => head.snapshot.replace(members.next_value()?).is_none(),
                name => match LISTS.iter().find(|list| list.name() == name) {
                    Some(list) => {
                        let start = members.next_value_seed(ListOffset(position))?;
                        head.lists[*list as usize].replace(start).is_none()
                    }
                    None => members.next_value::<IgnoredAny>().map(|_| true)?,
                },
            };
            if !is_new {
                return Err(refuse(duplicate()));
            }
        }
        Ok(())
    }
}

/// Skips a list and returns the byte offset at which the list starts.
struct ListOffset<'a>(&'a dyn Fn() -> u64);

impl<'de> DeserializeSeed<'de> for ListOffset<'_> {
    type Value = u64;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        // When this function is called, the parser has read the colon after the member's name, but nothing after
        // the colon.
        let start = self.0();
        deserializer.deserialize_seq(SkipItems)?;
        Ok(start)
    }
}

struct SkipItems;

impl<'de> Visitor<'de> for SkipItems {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

fn read_list(source: &mut dyn Source, start: u64, sender: &Sender<Batch>) -> Result<(), TransferError> {
    source.seek(SeekFrom::Start(start)).map_err(TransferError::Read)?;
    let reader = bounded(source, 1);
    let has_receiver = Cell::new(true);
    let mut json = serde_json::Deserializer::from_reader(SharedReader(&reader));
    let read = json.deserialize_seq(BatchSender { sender, has_receiver: &has_receiver });
    match read {
        Err(error) if has_receiver.get() => Err(unreadable(error, reader.borrow().exceeded)),
        _ => Ok(()),
    }
}

/// Parses a list and sends its items in batches to the receiver.
struct BatchSender<'a> {
    sender: &'a Sender<Batch>,
    has_receiver: &'a Cell<bool>,
}

impl<'de> Visitor<'de> for BatchSender<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        let send = |batch: Batch| {
            self.sender.blocking_send(batch).map_err(|_| {
                self.has_receiver.set(false);
                A::Error::custom("the receiver was dropped")
            })
        };
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            bytes += item.get().len();
            batch.items.push(item);
            if batch.items.len() >= BATCH_ITEMS || bytes >= BATCH_BYTES {
                let first = batch.first + batch.items.len();
                send(std::mem::replace(&mut batch, Batch { first, items: Vec::new() }))?;
                bytes = 0;
            }
        }
        if batch.items.is_empty() { Ok(()) } else { send(batch) }
    }
}

/// Converts a parser error to a transfer error.
fn unreadable(error: serde_json::Error, exceeded: Option<LimitExceeded>) -> TransferError {
    match (exceeded, error.classify()) {
        (Some(exceeded), _) => TransferError::NotASession { problem: exceeded.to_string() },
        (None, serde_json::error::Category::Io) => TransferError::Read(error.into()),
        (None, serde_json::error::Category::Data) => TransferError::NotASession { problem: error.to_string() },
        (None, _) => damaged("its JSON", error),
    }
}
