//! A test host for native tests of plugins. The test host provides media, configuration, a log and other services in
//! memory. The module `testing` does not exist in components.

use crate::http::{Request, Response};
use crate::log::Level;
use crate::model::Question;
use crate::tool::Call;
use crate::types::{Media, Model, Scope, TraceContext};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A test host that keeps all data in memory. The plugin uses this host during [`run`](Self::run).
///
/// ```
/// use agent_host_sdk::{config, log, media, testing::Host};
///
/// let mut host = Host::new().config("greeting", "hello");
/// let digest = host.medium(b"bytes".to_vec(), "text/plain", Some("note.txt"));
/// let size = host.run(|| {
///     log::info(config::get("greeting").unwrap().unwrap());
///     media::open(&digest).unwrap().describe().size
/// });
/// assert_eq!(size, 5);
/// assert_eq!(host.log()[0].1, "hello");
/// ```
#[derive(Debug, Default)]
pub struct Host {
    state: State,
}

impl Host {
    /// Creates a test host that has no media and does not grant anything to the plugin.
    pub fn new() -> Self {
        Self::default()
    }

    /// Grants the plugin a setting with this value.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.config.insert(key.into(), value.into());
        self
    }

    /// Grants the plugin a directory. `path` is the path that the plugin uses. The directory must exist on this machine
    /// if the plugin opens files in the directory.
    pub fn tree(mut self, path: impl Into<String>) -> Self {
        self.state.trees.push(path.into());
        self
    }

    /// Allows the plugin to store values by key. The values remain stored between calls of [`run`](Self::run).
    pub fn keeping_values(mut self) -> Self {
        self.state.keeps_values = true;
        self
    }

    /// Allows the plugin to ask the model, and adds one answer. The model returns the answers in the order in which the
    /// test added the answers. If the plugin asks more questions than there are answers, the questions without an
    /// answer are denied.
    pub fn answer(mut self, text: impl Into<String>) -> Self {
        self.state.answers.push(text.into());
        self
    }

    /// Returns the questions that the plugin asked the model, oldest first.
    pub fn questions(&self) -> &[Question] {
        &self.state.questions
    }

    /// Sets the response for requests to this address. Requests to other addresses are denied.
    pub fn response(mut self, url: impl Into<String>, response: Response) -> Self {
        self.state.responses.insert(url.into(), response);
        self
    }

    /// Returns the HTTP requests that the plugin sent, oldest first.
    pub fn requests(&self) -> &[Request] {
        &self.state.requests
    }

    /// Adds a media item to the session and returns the digest of the media item.
    pub fn medium(&mut self, bytes: Vec<u8>, mime_type: &str, name: Option<&str>) -> String {
        self.state.store(bytes, mime_type, name.map(str::to_owned)).digest
    }

    /// Calls the function and returns its result. While the function runs, plugin code on this thread uses this
    /// test host.
    pub fn run<T>(&mut self, function: impl FnOnce() -> T) -> T {
        let outer_state = STATE.replace(std::mem::take(&mut self.state));
        let result = function();
        self.state = STATE.replace(outer_state);
        result
    }

    /// Returns the media items of the session. These are the items that the test added, and the items that the plugin
    /// wrote and finished.
    pub fn media(&self) -> Vec<Media> {
        self.state.media.values().map(|(media, _)| media.clone()).collect()
    }

    /// Returns the bytes of a media item, or `None` if the session has no media item with this digest.
    pub fn bytes(&self, digest: &str) -> Option<&[u8]> {
        self.state.media.get(digest).map(|(_, bytes)| bytes.as_slice())
    }

    /// Returns the log lines of the plugin, oldest first.
    pub fn log(&self) -> &[(Level, String)] {
        &self.state.log
    }
}

/// Creates a tool call for tests: the first attempt of the call `1.1.1`, with a time limit of 30 s.
pub fn call() -> Call {
    Call { id: "1.1.1".to_owned(), attempt: 1, time_limit: 30_000, scope: scope() }
}

/// Creates a scope for tests: the first turn of a session of the agent `test`.
pub fn scope() -> Scope {
    Scope {
        agent: "test".to_owned(),
        session: "test/00000000-0000-7000-8000-000000000000".to_owned(),
        delegated_by: None,
        user: None,
        turn: 1,
        trace: TraceContext {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            tracestate: None,
        },
    }
}

/// Creates the description of a model for tests, with a context window of 128,000 tokens.
pub fn model() -> Model {
    Model { provider: "scripted".to_owned(), name: "test".to_owned(), window: 128_000 }
}

/// The data of the test host of the current thread.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) log: Vec<(Level, String)>,
    pub(crate) trees: Vec<String>,
    pub(crate) keeps_values: bool,
    pub(crate) values: BTreeMap<(String, String), Vec<u8>>,
    pub(crate) responses: BTreeMap<String, Response>,
    pub(crate) requests: Vec<Request>,
    pub(crate) answers: Vec<String>,
    pub(crate) questions: Vec<Question>,
    media: BTreeMap<String, (Media, Vec<u8>)>,
}

impl State {
    fn store(&mut self, bytes: Vec<u8>, mime_type: &str, name: Option<String>) -> Media {
        let mut digest = "sha256:".to_owned();
        for byte in Sha256::digest(&bytes) {
            // Writing to a string cannot fail.
            let _ = write!(digest, "{byte:02x}");
        }
        let mime_type = mime_type.to_owned();
        let media = Media { digest, mime_type, size: bytes.len() as u64, dimensions: None, name };
        self.media.entry(media.digest.clone()).or_insert_with(|| (media.clone(), bytes));
        media
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

pub(crate) fn with_state<T>(function: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(function)
}

/// The media store of the test host.
pub(crate) mod media {
    use super::{Media, with_state};
    use crate::media::{CHUNK, Error};
    use std::cell::RefCell;

    /// The maximum size of a media item in bytes.
    const MAX_SIZE: usize = 32 * 1024 * 1024;

    pub(crate) struct Medium {
        media: Media,
        bytes: Vec<u8>,
    }

    pub(crate) fn open(digest: &str) -> Result<Medium, Error> {
        let found = with_state(|state| state.media.get(digest).cloned());
        found.map(|(media, bytes)| Medium { media, bytes }).ok_or(Error::NotFound)
    }

    impl Medium {
        pub(crate) fn describe(&self) -> Media {
            self.media.clone()
        }

        pub(crate) fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Error> {
            let offset = usize::try_from(offset).map_err(|_| Error::OutOfRange)?;
            let remaining = self.bytes.get(offset..).ok_or(Error::OutOfRange)?;
            Ok(remaining[..remaining.len().min(length as usize).min(CHUNK)].to_vec())
        }
    }

    pub(crate) struct NewMedium {
        mime_type: String,
        name: Option<String>,
        bytes: RefCell<Vec<u8>>,
    }

    impl NewMedium {
        pub(crate) fn new(mime_type: &str, name: Option<&str>) -> Self {
            Self { mime_type: mime_type.to_owned(), name: name.map(str::to_owned), bytes: RefCell::default() }
        }

        pub(crate) fn write(&self, data: &[u8]) -> Result<(), Error> {
            let mut bytes = self.bytes.borrow_mut();
            if bytes.len() + data.len() > MAX_SIZE {
                return Err(Error::TooLarge(format!("a media item has at most {MAX_SIZE} bytes")));
            }
            bytes.extend_from_slice(data);
            Ok(())
        }

        pub(crate) fn finish(self) -> Result<Media, Error> {
            let bytes = self.bytes.into_inner();
            Ok(with_state(|state| state.store(bytes, &self.mime_type, self.name)))
        }
    }
}
