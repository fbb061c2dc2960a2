//! What the host answered a guest in one call, as far as a later look at the call needs it (S6): its requests, the values that it
//! found, the time and the random numbers that it saw. Never what configuration and secrets hold: those are not the call's.

use crate::files::{FoundFile, GivenTree, LeftFile};
use crate::http::HttpRefusal;
use crate::record::lock;
use agent_core::message::Digest;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

/// Headers of answers that are not kept: who has them is somebody.
const NOT_KEPT: [&str; 2] = ["set-cookie", "set-cookie2"];
/// Bytes that an answer counts beside its own.
const OVERHEAD: usize = 64;

/// The answers of one call, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAnswers {
    /// Those that have room.
    pub answers: Vec<HostAnswer>,
    /// Others that have none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub left_out: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum HostAnswer {
    /// A request's.
    Request {
        /// In capitals.
        method: String,
        /// Without its query.
        url: String,
        /// Of method, whole URL and body.
        asked: Digest,
        /// What came.
        answer: RequestAnswer,
    },
    /// What was kept under a key when the call first looked.
    Value {
        /// The plugin's name for it.
        bucket: String,
        /// Which.
        key: String,
        /// What was there.
        found: FoundValue,
    },
    /// What the call itself left under a key.
    Wrote {
        /// The plugin's name for it.
        bucket: String,
        /// Which.
        key: String,
        /// None: it was removed.
        value: Option<Bytes>,
    },
    /// It has no values: they are not granted.
    NoValues,
    /// A page of keys.
    Keys {
        /// The plugin's name for it.
        bucket: String,
        /// The page begins behind this one.
        after: String,
        /// In order.
        keys: Vec<String>,
    },
    /// The file trees that the call looked into. A tree's number is its place here.
    Trees {
        /// In order.
        trees: Vec<GivenTree>,
        /// Whether all that the call changed there is kept.
        changes: Read,
    },
    /// What was at a path of a tree when the call first looked.
    File {
        /// The number of its tree.
        tree: usize,
        /// Below it, without links; empty: the tree itself.
        path: String,
        /// What was there.
        found: FoundFile,
    },
    /// What the call left at a path that it changed.
    LeftFile {
        /// The number of its tree.
        tree: usize,
        /// Below it.
        path: String,
        /// What is there now.
        left: LeftFile,
    },
    /// The first reading of the clock.
    Time {
        /// Nanoseconds since 1970.
        nanoseconds: u64,
    },
    /// Random numbers of the safe kind, in the order in which they were drawn.
    Random {
        /// All of them.
        bytes: Bytes,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestAnswer {
    /// An answer, as far as the guest has read it.
    Came {
        /// From 100 to 599.
        status: u16,
        /// In order.
        headers: Vec<(String, String)>,
        /// Without secrets.
        body: Bytes,
        /// Whether there was more.
        read: Read,
    },
    /// None.
    Refused(HttpRefusal),
    /// More than is kept.
    TooLarge,
}

/// How much of an answer a guest has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Read {
    /// All.
    Whole,
    /// As much as is kept; the rest never came, or was not asked for.
    Partly,
}

/// What a call found under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundValue {
    /// Nothing.
    Nothing,
    /// This.
    Value(Bytes),
    /// Something; the call did not ask what.
    Something,
}

/// Bytes as JSON: a text where they are one, else Base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Bytes(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Written {
    Text(String),
    Base64(String),
}

impl From<Bytes> for Written {
    fn from(bytes: Bytes) -> Self {
        match String::from_utf8(bytes.0) {
            Ok(text) => Written::Text(text),
            Err(error) => Written::Base64(BASE64_STANDARD.encode(error.as_bytes())),
        }
    }
}

impl From<Written> for Bytes {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            // What is not Base64 was not written here.
            Written::Base64(text) => Self(BASE64_STANDARD.decode(text).unwrap_or_default()),
        }
    }
}

/// What a request is known by: its method, its whole URL and its body. Headers carry what differs from call to call.
pub fn digest_of_request(method: &str, url: &str, body: &[u8]) -> Digest {
    let mut hash = begin(method, url);
    hash.update(body);
    Digest::from_sha256(hash.finalize().into())
}

fn begin(method: &str, url: &str) -> Sha256 {
    let mut hash = Sha256::new();
    for part in [method, "\n", url, "\n"] {
        hash.update(part);
    }
    hash
}

/// The answers of a running call, up to a bound.
pub(crate) struct AnswerLog {
    /// Bytes that still have room. 0 from the beginning: nothing is kept.
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    used: usize,
    entries: Vec<Entry>,
    left_out: usize,
    /// What the call knows of keys in buckets, from its own writing or from an earlier look.
    known: HashMap<(String, String), Known>,
    wrote: BTreeMap<(String, String), Option<Bytes>>,
    no_values: bool,
    time: Option<Duration>,
    random: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Presence,
    Value,
}

enum Entry {
    Request(Requested),
    Other(HostAnswer),
}

struct Requested {
    method: String,
    url: String,
    asked: Sha256,
    answer: RequestAnswer,
}

/// A request in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestNumber(Option<usize>);

impl AnswerLog {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// A request is sent. Until its answer comes there is none.
    pub(crate) fn request(&self, method: &str, url: &url::Url) -> RequestNumber {
        let mut kept = lock(&self.kept);
        let shown = &url[..url::Position::AfterPath];
        if !kept.has_room(self.most, OVERHEAD + shown.len()) {
            return RequestNumber(None);
        }
        kept.entries.push(Entry::Request(Requested {
            method: method.to_owned(),
            url: shown.to_owned(),
            asked: begin(method, url.as_str()),
            answer: RequestAnswer::Refused(HttpRefusal::ConnectionBroken),
        }));
        RequestNumber(Some(kept.entries.len() - 1))
    }

    /// A part of the request's body.
    pub(crate) fn sent(&self, number: RequestNumber, data: &[u8]) {
        self.at(number, |request, _| request.asked.update(data));
    }

    /// There is no answer.
    pub(crate) fn refused(&self, number: RequestNumber, refusal: HttpRefusal) {
        self.at(number, |request, _| request.answer = RequestAnswer::Refused(refusal));
    }

    /// An answer begins.
    pub(crate) fn came(&self, number: RequestNumber, status: u16, headers: &hyper::HeaderMap) {
        let kept = headers.iter().filter(|(name, _)| !NOT_KEPT.contains(&name.as_str()));
        let text = kept.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        let headers: Vec<_> = text.collect();
        let size = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.at(number, |request, room| {
            let answer = RequestAnswer::Came { status, headers, body: Bytes::default(), read: Read::Partly };
            request.answer = if room(size) { answer } else { RequestAnswer::TooLarge };
        });
    }

    /// The guest gets a part of the answer's body.
    pub(crate) fn given(&self, number: RequestNumber, data: &[u8]) {
        self.at(number, |request, room| {
            if let RequestAnswer::Came { body, .. } = &mut request.answer {
                match room(data.len()) {
                    true => body.0.extend_from_slice(data),
                    false => request.answer = RequestAnswer::TooLarge,
                }
            }
        });
    }

    /// The guest has got all of the answer.
    pub(crate) fn ended(&self, number: RequestNumber) {
        self.at(number, |request, _| {
            if let RequestAnswer::Came { read, .. } = &mut request.answer {
                *read = Read::Whole;
            }
        });
    }

    fn at(&self, number: RequestNumber, change: impl FnOnce(&mut Requested, &mut dyn FnMut(usize) -> bool)) {
        let Some(index) = number.0 else { return };
        let mut kept = lock(&self.kept);
        let Kept { entries, used, left_out, .. } = &mut *kept;
        if let Some(Entry::Request(request)) = entries.get_mut(index) {
            let mut room = |size| take(self.most, (used, left_out), size);
            change(request, &mut room);
        }
    }

    /// What is kept under a key, as the call finds it; later looks and what the call writes itself are its own.
    pub(crate) fn found(&self, bucket: &str, key: &str, found: FoundValue) {
        if self.most == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        let known = if found == FoundValue::Something { Known::Presence } else { Known::Value };
        let place = (bucket.to_owned(), key.to_owned());
        if kept.known.get(&place).is_some_and(|before| *before >= known) {
            return;
        }
        kept.known.insert(place, known);
        let size = if let FoundValue::Value(value) = &found { value.0.len() } else { 0 };
        if kept.has_room(self.most, OVERHEAD + bucket.len() + key.len() + size) {
            let (bucket, key) = (bucket.to_owned(), key.to_owned());
            kept.entries.push(Entry::Other(HostAnswer::Value { bucket, key, found }));
        }
    }

    /// The call writes a value itself, or removes it.
    pub(crate) fn wrote(&self, bucket: &str, key: &str, value: Option<&[u8]>) {
        if self.most == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        let place = (bucket.to_owned(), key.to_owned());
        kept.known.insert(place.clone(), Known::Value);
        if kept.has_room(self.most, OVERHEAD + bucket.len() + key.len() + value.map_or(0, <[u8]>::len)) {
            kept.wrote.insert(place, value.map(|value| Bytes(value.to_owned())));
        }
    }

    /// Values are not granted.
    pub(crate) fn no_values(&self) {
        lock(&self.kept).no_values = true;
    }

    /// A page of keys.
    pub(crate) fn listed(&self, bucket: &str, after: &str, keys: &[String]) {
        let mut kept = lock(&self.kept);
        let size = keys.iter().map(|key| key.len() + 4).sum::<usize>();
        if kept.has_room(self.most, OVERHEAD + bucket.len() + after.len() + size) {
            let (bucket, after, keys) = (bucket.to_owned(), after.to_owned(), keys.to_vec());
            kept.entries.push(Entry::Other(HostAnswer::Keys { bucket, after, keys }));
        }
    }

    /// The clock is read.
    pub(crate) fn time(&self, now: Duration) {
        if self.most > 0 {
            lock(&self.kept).time.get_or_insert(now);
        }
    }

    /// Random numbers are drawn.
    pub(crate) fn random(&self, bytes: &[u8]) {
        let mut kept = lock(&self.kept);
        if kept.has_room(self.most, bytes.len()) {
            kept.random.extend_from_slice(bytes);
        }
    }

    /// Whether anything is kept at all.
    pub(crate) fn is_kept(&self) -> bool {
        self.most > 0
    }

    /// Takes room for what is kept elsewhere, or counts that it is left out.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        lock(&self.kept).has_room(self.most, OVERHEAD + size)
    }

    /// Counts something that has no room.
    pub(crate) fn leave_out(&self) {
        lock(&self.kept).left_out += 1;
    }

    /// Bytes that still have room.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(lock(&self.kept).used + OVERHEAD)
    }

    /// All that is kept, with what the call met in its trees; nothing where it asked for nothing.
    pub(crate) fn finish(&self, files: Vec<HostAnswer>) -> Option<Box<HostAnswers>> {
        if self.most == 0 {
            return None;
        }
        let Kept { entries, left_out, wrote, no_values, time, random, .. } = std::mem::take(&mut *lock(&self.kept));
        let time = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        let time = time.map(|nanoseconds| HostAnswer::Time { nanoseconds });
        let random = (!random.is_empty()).then_some(HostAnswer::Random { bytes: Bytes(random) });
        let entries = entries.into_iter().map(|entry| match entry {
            Entry::Other(answer) => answer,
            Entry::Request(Requested { method, url, asked, answer }) => {
                HostAnswer::Request { method, url, asked: Digest::from_sha256(asked.finalize().into()), answer }
            }
        });
        let wrote = wrote.into_iter().map(|((bucket, key), value)| HostAnswer::Wrote { bucket, key, value });
        let no_values = no_values.then_some(HostAnswer::NoValues);
        let answers: Vec<_> = entries.chain(wrote).chain(files).chain(no_values).chain(time).chain(random).collect();
        (!answers.is_empty() || left_out > 0).then(|| Box::new(HostAnswers { answers, left_out }))
    }
}

impl Kept {
    fn has_room(&mut self, most: usize, size: usize) -> bool {
        take(most, (&mut self.used, &mut self.left_out), size)
    }
}

/// Takes room for so many bytes, or counts what has none.
fn take(most: usize, (used, left_out): (&mut usize, &mut usize), size: usize) -> bool {
    let fits = used.saturating_add(size) <= most;
    match fits {
        true => *used += size,
        false => *left_out += 1,
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> url::Url {
        text.parse().expect("a URL")
    }

    /// S6: an answer is kept as the guest read it, known by what was asked, and without what makes its bearer somebody.
    #[test]
    fn requests_are_kept_with_their_answers() {
        let log = AnswerLog::new(1_000);
        let number = log.request("POST", &url("https://a.example/x?key=hunter2"));
        log.sent(number, b"bo");
        log.sent(number, b"dy");
        let mut headers = hyper::HeaderMap::new();
        headers.insert("content-type", hyper::header::HeaderValue::from_static("text/plain"));
        headers.insert("set-cookie", hyper::header::HeaderValue::from_static("session=hunter2"));
        log.came(number, 200, &headers);
        log.given(number, b"ans");
        log.given(number, b"wer");
        log.ended(number);
        log.request("GET", &url("https://a.example/gone"));
        let kept = log.finish(Vec::new()).expect("answers");
        let asked = digest_of_request("POST", "https://a.example/x?key=hunter2", b"body");
        let answer = RequestAnswer::Came {
            status: 200,
            headers: vec![("content-type".into(), "text/plain".into())],
            body: Bytes(b"answer".to_vec()),
            read: Read::Whole,
        };
        let [HostAnswer::Request { url, asked: by, answer: kept_answer, .. }, gone] = &kept.answers[..] else {
            panic!("{kept:?}")
        };
        assert_eq!((url.as_str(), by, kept_answer), ("https://a.example/x", &asked, &answer));
        assert!(matches!(gone, HostAnswer::Request { answer: RequestAnswer::Refused(_), .. }), "it never came");
        assert!(!serde_json::to_string(&kept).expect("JSON").contains("hunter2"));
    }

    /// S6: what was under a key when the call first looked is kept, and what it left there; not what it wrote and read itself.
    #[test]
    fn values_are_kept_as_they_were_found() {
        let log = AnswerLog::new(1_000);
        let value = |text: &str| FoundValue::Value(Bytes(text.as_bytes().to_vec()));
        log.found("", "a", FoundValue::Something);
        log.found("", "a", value("1"));
        log.found("", "a", value("2"));
        log.wrote("", "b", Some(b"3"));
        log.found("", "b", value("3"));
        log.wrote("", "a", None);
        let found: Vec<_> = log.finish(Vec::new()).expect("answers").answers;
        let of = |key: &str, found| HostAnswer::Value { bucket: String::new(), key: key.to_owned(), found };
        let left = |key: &str, value: Option<&str>| HostAnswer::Wrote {
            bucket: String::new(),
            key: key.to_owned(),
            value: value.map(|value| Bytes(value.as_bytes().to_vec())),
        };
        assert_eq!(found, [of("a", FoundValue::Something), of("a", value("1")), left("a", None), left("b", Some("3"))]);
    }

    /// S6: answers have a bound; what has no room is counted, and an answer without its end is none.
    #[test]
    fn what_has_no_room_is_left_out() {
        let log = AnswerLog::new(200);
        let number = log.request("GET", &url("https://a.example/"));
        log.came(number, 200, &hyper::HeaderMap::new());
        log.given(number, &[b'x'; 300]);
        log.ended(number);
        log.random(&[7; 300]);
        let kept = log.finish(Vec::new()).expect("answers");
        assert!(matches!(&kept.answers[..], [HostAnswer::Request { answer: RequestAnswer::TooLarge, .. }]), "{kept:?}");
        assert_eq!(kept.left_out, 2);
        let off = AnswerLog::new(0);
        off.request("GET", &url("https://a.example/"));
        off.wrote("", "a", None);
        off.time(Duration::from_secs(1));
        assert_eq!(off.finish(Vec::new()), None);
    }

    /// Bytes come back as they were, text or not.
    #[test]
    fn bytes_are_text_where_they_can_be() {
        for (bytes, json) in [(b"text".to_vec(), r#"{"text":"text"}"#), (vec![0xff, 0], r#"{"base64":"/wA="}"#)] {
            let written = serde_json::to_string(&Bytes(bytes.clone())).expect("JSON");
            assert_eq!(written, json);
            assert_eq!(serde_json::from_str::<Bytes>(&written).expect("bytes").0, bytes);
        }
    }
}
