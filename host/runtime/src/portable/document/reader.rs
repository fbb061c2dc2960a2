//! Reads a document item by item, so that a session of any length is imported in the memory of a few items.
//!
//! The first pass reads the members that are single values and notes where each list begins. Later passes read one list each. A
//! thread parses while the caller works on the items before, and waits when the caller is slower.

use super::bounds::{Bounds, Unbounded};
use super::{FORMAT, VERSION};
use crate::portable::PortableError;
use crate::portable::import::damaged;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom, Write};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Most bytes of a document.
const MAX_DOCUMENT: u64 = 16 << 30;
/// Items, and bytes of items, that are handed over at once.
const BATCH_ITEMS: usize = 200;
const BATCH_BYTES: usize = 2 << 20;

/// An exported session that can be read more than once: a file, or bytes in memory.
///
/// ```
/// use agent_runtime::portable::SessionDocument;
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

/// The lists of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::portable) enum List {
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
    pub(in crate::portable) fn name(self) -> &'static str {
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

/// The members that are no lists, and where the lists begin.
#[derive(Default)]
pub(in crate::portable) struct Head {
    pub(in crate::portable) session: Option<Box<RawValue>>,
    pub(in crate::portable) snapshot: Option<Box<RawValue>>,
    format: Option<String>,
    version: Option<u32>,
    lists: [Option<u64>; LISTS.len()],
}

/// Items that stand side by side in a list.
#[derive(Default)]
pub(in crate::portable) struct Batch {
    /// The place of the first.
    pub(in crate::portable) first: usize,
    pub(in crate::portable) items: Vec<Box<RawValue>>,
}

impl SessionDocument {
    /// A copy of what can be read only once, such as a pipe. Bytes that cannot be a document are not copied to their end.
    pub async fn copied(mut from: impl Read + Send + 'static, mut to: File) -> Result<Self, PortableError> {
        let copying = tokio::task::spawn_blocking(move || {
            let (mut bounds, mut buffer, mut copied) = (Bounds::default(), vec![0; 1 << 16], 0);
            loop {
                let read = from.read(&mut buffer).map_err(PortableError::Read)?;
                if read == 0 {
                    return Ok(Self::from(to));
                }
                let bytes = &buffer[..read];
                if copied == 0 {
                    check_begin(bytes)?;
                }
                bounds.take(bytes).map_err(|exceeded| PortableError::Foreign { problem: exceeded.to_string() })?;
                copied += read as u64;
                if copied > MAX_DOCUMENT {
                    return Err(PortableError::Read(too_large()));
                }
                to.write_all(bytes).map_err(PortableError::Read)?;
            }
        });
        joined(copying).await
    }

    /// Reads the whole document once.
    pub(in crate::portable) async fn head(self) -> Result<(Self, Head), PortableError> {
        let read = tokio::task::spawn_blocking(move || {
            let Self { mut source } = self;
            let head = read_head(&mut *source)?;
            Ok((Self { source }, head))
        });
        joined(read).await
    }

    /// Begins to read a list.
    pub(in crate::portable) fn items(self, head: &Head, list: List) -> Items {
        let begin = head.lists[list as usize].unwrap_or_default();
        let (sender, receiver) = channel(1);
        let reading = tokio::task::spawn_blocking(move || {
            let Self { mut source } = self;
            read_list(&mut *source, begin, &sender)?;
            Ok(Self { source })
        });
        Items { receiver, reading }
    }
}

/// A list that is being read. Dropping it ends the reading.
pub(in crate::portable) struct Items {
    receiver: Receiver<Batch>,
    reading: JoinHandle<Result<SessionDocument, PortableError>>,
}

impl Items {
    /// The next items; none behind the last one.
    pub(in crate::portable) async fn next(&mut self) -> Option<Batch> {
        self.receiver.recv().await
    }

    /// The document, to read another list; what was wrong with this one.
    pub(in crate::portable) async fn end(self) -> Result<SessionDocument, PortableError> {
        drop(self.receiver);
        joined(self.reading).await
    }
}

async fn joined<T>(task: JoinHandle<Result<T, PortableError>>) -> Result<T, PortableError> {
    // It fails only when the process ends.
    task.await.map_err(|error| PortableError::Read(io::Error::other(error)))?
}

/// Hands bytes to the parser one by one, counts them, and stops where a bound is exceeded.
struct Bounded<R> {
    inner: R,
    bounds: Bounds,
    position: u64,
    exceeded: Option<Unbounded>,
}

/// The parser owns its reader, and a visitor asks where it is.
struct Shared<'a, R>(&'a RefCell<Bounded<R>>);

impl<R: BufRead> Read for Shared<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut reader = self.0.borrow_mut();
        let read = reader.inner.read(buffer)?;
        reader.position += read as u64;
        if reader.position > MAX_DOCUMENT {
            return Err(too_large());
        }
        if let Err(exceeded) = reader.bounds.take(&buffer[..read]) {
            reader.exceeded = Some(exceeded);
            return Err(io::Error::other(exceeded.to_string()));
        }
        Ok(read)
    }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} GiB", MAX_DOCUMENT >> 30))
}

/// A document is an object.
fn check_begin(bytes: &[u8]) -> Result<(), PortableError> {
    match bytes.trim_ascii_start().first() {
        None | Some(b'{') => Ok(()),
        Some(_) => Err(PortableError::Foreign { problem: "it does not begin with `{`".to_owned() }),
    }
}

fn bounded(source: &mut dyn Source, depth: usize) -> RefCell<Bounded<BufReader<&mut dyn Source>>> {
    let inner = BufReader::with_capacity(1 << 16, source);
    RefCell::new(Bounded { inner, bounds: Bounds::at_depth(depth), position: 0, exceeded: None })
}

fn read_head(source: &mut dyn Source) -> Result<Head, PortableError> {
    source.rewind().map_err(PortableError::Read)?;
    let reader = bounded(source, 0);
    check_begin(reader.borrow_mut().inner.fill_buf().map_err(PortableError::Read)?)?;
    let position = || reader.borrow().position;
    let (mut head, mut refused) = (Head::default(), None);
    let mut json = serde_json::Deserializer::from_reader(Shared(&reader));
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
    /// Nothing is missing.
    fn check(&self) -> Result<(), PortableError> {
        let lists = LISTS.iter().zip(&self.lists).map(|(list, begin)| (list.name(), begin.is_some()));
        let values = [
            ("format", self.format.is_some()),
            ("version", self.version.is_some()),
            ("session", self.session.is_some()),
            ("snapshot", self.snapshot.is_some()),
        ];
        let missing = values.into_iter().chain(lists).find(|(_, is_there)| !is_there);
        match missing {
            None => Ok(()),
            Some((name @ ("format" | "version"), _)) => {
                Err(PortableError::Foreign { problem: format!("it has no member `{name}`") })
            }
            Some((name, _)) => Err(damaged("its members", format!("`{name}` is missing"))),
        }
    }
}

/// Reads the document's object.
struct HeadVisitor<'a> {
    head: &'a mut Head,
    position: &'a dyn Fn() -> u64,
    /// Why the document is not read on.
    refused: &'a mut Option<PortableError>,
}

impl<'de> Visitor<'de> for HeadVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { head, position, refused } = self;
        let mut refuse = |error: PortableError| {
            *refused = Some(error);
            A::Error::custom("it is refused")
        };
        while let Some(name) = members.next_key::<String>()? {
            let twice = || damaged("its members", format!("`{name}` is there twice"));
            let is_new = match name.as_str() {
                "format" => {
                    let format: String = members.next_value()?;
                    if format != FORMAT {
                        return Err(refuse(PortableError::Foreign { problem: format!("its format is `{format}`") }));
                    }
                    head.format.replace(format).is_none()
                }
                "version" => {
                    let found: u32 = members.next_value()?;
                    if found > VERSION {
                        return Err(refuse(PortableError::Newer { found, supported: VERSION }));
                    }
                    head.version.replace(found).is_none()
                }
                "session" => head.session.replace(members.next_value()?).is_none(),
                "snapshot" => head.snapshot.replace(members.next_value()?).is_none(),
                name => match LISTS.iter().find(|list| list.name() == name) {
                    Some(list) => {
                        let begin = members.next_value_seed(Place(position))?;
                        head.lists[*list as usize].replace(begin).is_none()
                    }
                    None => members.next_value::<IgnoredAny>().map(|_| true)?,
                },
            };
            if !is_new {
                return Err(refuse(twice()));
            }
        }
        Ok(())
    }
}

/// Where a list begins, in bytes from the beginning of the document; the list itself is skipped.
struct Place<'a>(&'a dyn Fn() -> u64);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = u64;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        // The parser has read the colon behind the member's name, and nothing behind that.
        let begin = self.0();
        deserializer.deserialize_seq(Skipped)?;
        Ok(begin)
    }
}

struct Skipped;

impl<'de> Visitor<'de> for Skipped {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

fn read_list(source: &mut dyn Source, begin: u64, sender: &Sender<Batch>) -> Result<(), PortableError> {
    source.seek(SeekFrom::Start(begin)).map_err(PortableError::Read)?;
    let reader = bounded(source, 1);
    let is_wanted = Cell::new(true);
    let mut json = serde_json::Deserializer::from_reader(Shared(&reader));
    let read = json.deserialize_seq(Batches { sender, is_wanted: &is_wanted });
    match read {
        Err(error) if is_wanted.get() => Err(unreadable(error, reader.borrow().exceeded)),
        _ => Ok(()),
    }
}

/// Hands the items of a list over.
struct Batches<'a> {
    sender: &'a Sender<Batch>,
    is_wanted: &'a Cell<bool>,
}

impl<'de> Visitor<'de> for Batches<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        let send = |batch: Batch| {
            self.sender.blocking_send(batch).map_err(|_| {
                self.is_wanted.set(false);
                A::Error::custom("nobody reads on")
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

/// What is wrong with a text that cannot be read as JSON of the document's form.
fn unreadable(error: serde_json::Error, exceeded: Option<Unbounded>) -> PortableError {
    match (exceeded, error.classify()) {
        (Some(exceeded), _) => PortableError::Foreign { problem: exceeded.to_string() },
        (None, serde_json::error::Category::Io) => PortableError::Read(error.into()),
        (None, serde_json::error::Category::Data) => PortableError::Foreign { problem: error.to_string() },
        (None, _) => damaged("its JSON", error),
    }
}
