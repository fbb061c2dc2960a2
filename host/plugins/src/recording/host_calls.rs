//! Records the results of the host functions that a plugin calls during one call, so that the call can be explained and
//! replayed (S6). The recorded results are, for example, HTTP responses, stored values, the time and random numbers.
//! Configuration values and secrets are never recorded.

use super::bytes::{Extent, RecordedBytes};
use super::file_records::{FinalFileState, GrantedTree, InitialFileState};
use super::timing::{Timing, TimingClock};
use crate::ports::http::HttpRefusal;
use crate::sync::lock;
use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

/// Names of the response headers that are not recorded, because they contain credentials.
const UNRECORDED_HEADERS: [&str; 2] = ["set-cookie", "set-cookie2"];
/// Number of bytes that are counted for each result in addition to the size of its content.
const OVERHEAD: usize = 64;

/// The recorded results of the host calls of one plugin call, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCallLog {
    /// The results that fitted into the record.
    pub answers: Vec<HostCallResult>,
    /// Number of results, or parts of results, that were not recorded because they did not fit into the record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The result of one host call, or of several related host calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum HostCallResult {
    /// The result of an HTTP request.
    Request {
        /// HTTP method, in capital letters.
        method: String,
        /// URL of the request, without its query.
        url: String,
        /// Digest of the request's method, complete URL and body.
        asked: Digest,
        /// Digest of the headers that the guest itself set. `None` means that an earlier version of the host wrote
        /// the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<Digest>,
        /// The response to the request, or the reason why there is none.
        answer: RequestOutcome,
        /// When the request was sent, and how long it took until the last part of the response arrived that the guest
        /// read. `None` means that an earlier version of the host wrote the record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timing: Option<Timing>,
    },
    /// The value of a key when the call first read it.
    Value {
        /// Name of the bucket, chosen by the plugin.
        bucket: String,
        /// Key under which the value is stored.
        key: String,
        /// State of the key when the call first read it.
        found: FoundValue,
    },
    /// The last change that the call made to the value of a key.
    Wrote {
        /// Name of the bucket, chosen by the plugin.
        bucket: String,
        /// Key under which the value is stored.
        key: String,
        /// The value of the key at the end of the call. `None` means that the call removed the value.
        value: Option<RecordedBytes>,
    },
    /// The use of the key-value store was denied, because it is not granted.
    NoValues,
    /// A page of a listing of keys.
    Keys {
        /// Name of the bucket, chosen by the plugin.
        bucket: String,
        /// The last key of the previous page, or an empty text for the first page.
        after: String,
        /// Keys of the page, in order.
        keys: Vec<String>,
    },
    /// The granted directories of the call.
    Trees {
        /// The granted directories, which are also called trees. The number of a tree is its index in this list.
        trees: Vec<GrantedTree>,
        /// Whether all changes of the call are recorded.
        changes: Extent,
    },
    /// The state of a path when the call first accessed it.
    File {
        /// Number of the tree: its index in the list of the call's granted directories.
        tree: usize,
        /// Path in the tree, without symbolic links. An empty path is the root of the tree.
        path: String,
        /// State of the path when the call first accessed it.
        found: InitialFileState,
    },
    /// The state of a changed path at the end of the call.
    LeftFile {
        /// Number of the tree: its index in the list of the call's granted directories.
        tree: usize,
        /// Path of the file or directory in the tree.
        path: String,
        /// State of the path at the end of the call.
        left: FinalFileState,
    },
    /// The time when the call first read the clock.
    Time {
        /// The time, in nanoseconds since 1970.
        nanoseconds: u64,
    },
    /// Secure random bytes, in the order in which the call read them.
    Random {
        /// The random bytes of all reads, joined together.
        bytes: RecordedBytes,
    },
}

/// The outcome of a recorded HTTP request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestOutcome {
    /// A response, with the part of its body that the guest has read.
    #[serde(rename = "came")]
    Received {
        /// Status code from 100 to 599.
        status: u16,
        /// Headers of the response, in order, without the headers that contain credentials.
        headers: Vec<(String, String)>,
        /// Body of the response, from which the secrets were removed.
        body: RecordedBytes,
        /// Whether the guest read the whole body.
        read: Extent,
    },
    /// The request failed without a response, for this reason.
    Refused(HttpRefusal),
    /// The response did not fit into the record.
    TooLarge,
}

/// The state of a key when the call first accessed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundValue {
    /// The key had no value.
    Nothing,
    /// The value of the key.
    Value(RecordedBytes),
    /// The key had a value, but the call only checked that it exists.
    Something,
}

/// Digest of the headers that the guest itself set. The digest does not depend on the order of the headers. Trace
/// headers are not hashed, because they differ between calls.
pub(crate) fn digest_of_headers(headers: &hyper::HeaderMap) -> Digest {
    let of_call = |name: &str| ["traceparent", "tracestate"].contains(&name);
    let mut lines: Vec<_> = headers.iter().filter(|(name, _)| !of_call(name.as_str())).collect();
    lines.sort_by_key(|(name, _)| name.as_str());
    let mut hash = Sha256::new();
    for (name, value) in lines {
        for part in [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"] {
            hash.update(part);
        }
    }
    Digest::from_sha256(hash.finalize().into())
}

/// Digest that identifies a request: its method, complete URL and body.
pub fn digest_of_request(method: &str, url: &str, body: &[u8]) -> Digest {
    let mut hash = hash_of_request_line(method, url);
    hash.update(body);
    Digest::from_sha256(hash.finalize().into())
}

fn hash_of_request_line(method: &str, url: &str) -> Sha256 {
    let mut hash = Sha256::new();
    for part in [method, "\n", url, "\n"] {
        hash.update(part);
    }
    hash
}

/// Records the results of the host calls of a running plugin call, up to a maximum size.
pub(crate) struct HostCallRecorder {
    /// Maximum size of the record, in bytes. If this is 0, nothing is recorded.
    capacity: usize,
    recorded: Mutex<RecordedAnswers>,
}

#[derive(Default)]
struct RecordedAnswers {
    used: usize,
    entries: Vec<Entry>,
    left_out: usize,
    /// For each key that the call has read or written: whether the call knows the key's value or only whether the key
    /// exists. Reading known information again is not recorded.
    known: HashMap<(String, String), KnownState>,
    written: BTreeMap<(String, String), Option<RecordedBytes>>,
    no_values: bool,
    time: Option<Duration>,
    random: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KnownState {
    Presence,
    Value,
}

enum Entry {
    Request(RecordedRequest),
    Other(HostCallResult),
}

struct RecordedRequest {
    method: String,
    url: String,
    asked: Sha256,
    headers: Digest,
    answer: RequestOutcome,
    clock: TimingClock,
    took: Duration,
}

/// The index of a request in the record, or None if the request is not recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestNumber(Option<usize>);

impl HostCallRecorder {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, recorded: Mutex::default() }
    }

    /// Records that a request is sent. Until a response is recorded, the outcome in the record is a broken connection.
    pub(crate) fn request(&self, method: &str, url: &url::Url, headers: &Digest) -> RequestNumber {
        let mut recorded = lock(&self.recorded);
        let shown = &url[..url::Position::AfterPath];
        if !recorded.has_room(self.capacity, OVERHEAD + shown.len()) {
            return RequestNumber(None);
        }
        recorded.entries.push(Entry::Request(RecordedRequest {
            method: method.to_owned(),
            url: shown.to_owned(),
            asked: hash_of_request_line(method, url.as_str()),
            headers: headers.clone(),
            answer: RequestOutcome::Refused(HttpRefusal::ConnectionBroken),
            clock: TimingClock::start(),
            took: Duration::ZERO,
        }));
        RequestNumber(Some(recorded.entries.len() - 1))
    }

    /// Adds a part of the request's body to the request's digest.
    pub(crate) fn request_body_sent(&self, number: RequestNumber, data: &[u8]) {
        self.change_request(number, |request, _| request.asked.update(data));
    }

    /// Records why the request got no response.
    pub(crate) fn request_refused(&self, number: RequestNumber, refusal: HttpRefusal) {
        self.change_request(number, |request, _| request.answer = RequestOutcome::Refused(refusal));
    }

    /// Records the status and headers of a response.
    pub(crate) fn response_started(&self, number: RequestNumber, status: u16, headers: &hyper::HeaderMap) {
        let recorded = headers.iter().filter(|(name, _)| !UNRECORDED_HEADERS.contains(&name.as_str()));
        let text =
            recorded.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        let headers: Vec<_> = text.collect();
        let size = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.change_request(number, |request, room| {
            let answer =
                RequestOutcome::Received { status, headers, body: RecordedBytes::default(), read: Extent::Partly };
            request.answer = if room(size) { answer } else { RequestOutcome::TooLarge };
        });
    }

    /// Records a part of the response's body.
    pub(crate) fn response_body(&self, number: RequestNumber, data: &[u8]) {
        self.change_request(number, |request, room| {
            if let RequestOutcome::Received { body, .. } = &mut request.answer {
                match room(data.len()) {
                    true => body.0.extend_from_slice(data),
                    false => request.answer = RequestOutcome::TooLarge,
                }
            }
        });
    }

    /// Records that the guest has read the whole response.
    pub(crate) fn response_ended(&self, number: RequestNumber) {
        self.change_request(number, |request, _| {
            if let RequestOutcome::Received { read, .. } = &mut request.answer {
                *read = Extent::Whole;
            }
        });
    }

    fn change_request(
        &self,
        number: RequestNumber,
        change: impl FnOnce(&mut RecordedRequest, &mut dyn FnMut(usize) -> bool),
    ) {
        let Some(index) = number.0 else { return };
        let mut recorded = lock(&self.recorded);
        let RecordedAnswers { entries, used, left_out, .. } = &mut *recorded;
        if let Some(Entry::Request(request)) = entries.get_mut(index) {
            request.took = request.clock.elapsed();
            let mut room = |size| reserve(self.capacity, (used, left_out), size);
            change(request, &mut room);
        }
    }

    /// Records the state of a key, unless the call has already read or written it.
    pub(crate) fn value_read(&self, bucket: &str, key: &str, found: FoundValue) {
        if self.capacity == 0 {
            return;
        }
        let mut recorded = lock(&self.recorded);
        let known = if found == FoundValue::Something { KnownState::Presence } else { KnownState::Value };
        let bucket_and_key = (bucket.to_owned(), key.to_owned());
        if recorded.known.get(&bucket_and_key).is_some_and(|before| *before >= known) {
            return;
        }
        recorded.known.insert(bucket_and_key, known);
        let size = if let FoundValue::Value(value) = &found { value.0.len() } else { 0 };
        if recorded.has_room(self.capacity, OVERHEAD + bucket.len() + key.len() + size) {
            let (bucket, key) = (bucket.to_owned(), key.to_owned());
            recorded.entries.push(Entry::Other(HostCallResult::Value { bucket, key, found }));
        }
    }

    /// Records that the call writes or removes a value.
    pub(crate) fn value_written(&self, bucket: &str, key: &str, value: Option<&[u8]>) {
        if self.capacity == 0 {
            return;
        }
        let mut recorded = lock(&self.recorded);
        let bucket_and_key = (bucket.to_owned(), key.to_owned());
        recorded.known.insert(bucket_and_key.clone(), KnownState::Value);
        if recorded.has_room(self.capacity, OVERHEAD + bucket.len() + key.len() + value.map_or(0, <[u8]>::len)) {
            recorded.written.insert(bucket_and_key, value.map(|value| RecordedBytes(value.to_owned())));
        }
    }

    /// Records that the use of the key-value store was denied.
    pub(crate) fn key_value_store_denied(&self) {
        lock(&self.recorded).no_values = true;
    }

    /// Records a page of keys that the call has listed.
    pub(crate) fn keys_listed(&self, bucket: &str, after: &str, keys: &[String]) {
        let mut recorded = lock(&self.recorded);
        let size = keys.iter().map(|key| key.len() + 4).sum::<usize>();
        if recorded.has_room(self.capacity, OVERHEAD + bucket.len() + after.len() + size) {
            let (bucket, after, keys) = (bucket.to_owned(), after.to_owned(), keys.to_vec());
            recorded.entries.push(Entry::Other(HostCallResult::Keys { bucket, after, keys }));
        }
    }

    /// Records the time that the call gets when it reads the clock for the first time. Later times are not recorded.
    pub(crate) fn time(&self, now: Duration) {
        if self.capacity > 0 {
            lock(&self.recorded).time.get_or_insert(now);
        }
    }

    /// Records random bytes that the call reads.
    pub(crate) fn random(&self, bytes: &[u8]) {
        let mut recorded = lock(&self.recorded);
        if recorded.has_room(self.capacity, bytes.len()) {
            recorded.random.extend_from_slice(bytes);
        }
    }

    /// Whether the results of host calls are recorded. False if the maximum size of the record is 0.
    pub(crate) fn is_enabled(&self) -> bool {
        self.capacity > 0
    }

    /// Reserves space in the record for data that the caller stores. If the data does not fit, returns false and
    /// increments the number of results that were left out.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        lock(&self.recorded).has_room(self.capacity, OVERHEAD + size)
    }

    /// Counts one result that does not fit into the record.
    pub(crate) fn leave_out(&self) {
        lock(&self.recorded).left_out += 1;
    }

    /// Number of bytes that still fit into the record.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(lock(&self.recorded).used + OVERHEAD)
    }

    /// Takes the whole record, appends the records in `files`, and returns the result. `None` means that nothing
    /// was recorded.
    pub(crate) fn finish(&self, files: Vec<HostCallResult>) -> Option<Box<HostCallLog>> {
        if self.capacity == 0 {
            return None;
        }
        let RecordedAnswers { entries, left_out, written, no_values, time, random, .. } =
            std::mem::take(&mut *lock(&self.recorded));
        let time = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        let time = time.map(|nanoseconds| HostCallResult::Time { nanoseconds });
        let random = (!random.is_empty()).then_some(HostCallResult::Random { bytes: RecordedBytes(random) });
        let entries = entries.into_iter().map(|entry| match entry {
            Entry::Other(answer) => answer,
            Entry::Request(RecordedRequest { method, url, asked, headers, answer, clock, took }) => {
                let asked = Digest::from_sha256(asked.finalize().into());
                let timing = Some(clock.timing(took));
                HostCallResult::Request { method, url, asked, headers: Some(headers), answer, timing }
            }
        });
        let written = written.into_iter().map(|((bucket, key), value)| HostCallResult::Wrote { bucket, key, value });
        let no_values = no_values.then_some(HostCallResult::NoValues);
        let answers: Vec<_> = entries.chain(written).chain(files).chain(no_values).chain(time).chain(random).collect();
        (!answers.is_empty() || left_out > 0).then(|| Box::new(HostCallLog { answers, left_out }))
    }
}

impl RecordedAnswers {
    fn has_room(&mut self, capacity: usize, size: usize) -> bool {
        reserve(capacity, (&mut self.used, &mut self.left_out), size)
    }
}

/// Reserves `size` bytes in the record. If the record has too little space for `size` bytes, returns false and
/// increments `left_out`.
fn reserve(capacity: usize, (used, left_out): (&mut usize, &mut usize), size: usize) -> bool {
    let fits = used.saturating_add(size) <= capacity;
    match fits {
        true => *used += size,
        false => *left_out += 1,
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_headers() -> Digest {
        digest_of_headers(&hyper::HeaderMap::new())
    }

    /// S6: the digest of headers depends on names and values, but not on their order or on trace headers.
    #[test]
    fn s6_header_digest_ignores_order_and_trace() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (hyper::header::HeaderName::from_static(name), hyper::header::HeaderValue::from_static(value))
            });
            digest_of_headers(&headers.collect())
        };
        let first = of(&[("accept", "text/plain"), ("x-a", "1"), ("traceparent", "00-1")]);
        assert_eq!(first, of(&[("traceparent", "00-2"), ("x-a", "1"), ("accept", "text/plain")]));
        assert_ne!(first, of(&[("accept", "text/plain"), ("x-a", "2")]));
        assert_ne!(first, of(&[("accept", "text/plain"), ("x-a", "1"), ("authorization", "x")]));
    }

    fn url(text: &str) -> url::Url {
        text.parse().expect("a URL")
    }

    /// S6: a response is recorded with the digest of its request and without credentials.
    #[test]
    fn s6_requests_are_recorded_with_their_responses() {
        let log = HostCallRecorder::new(1_000);
        let number = log.request("POST", &url("https://a.example/x?key=hunter2"), &no_headers());
        log.request_body_sent(number, b"bo");
        log.request_body_sent(number, b"dy");
        let mut headers = hyper::HeaderMap::new();
        headers.insert("content-type", hyper::header::HeaderValue::from_static("text/plain"));
        headers.insert("set-cookie", hyper::header::HeaderValue::from_static("session=hunter2"));
        log.response_started(number, 200, &headers);
        log.response_body(number, b"ans");
        log.response_body(number, b"wer");
        log.response_ended(number);
        log.request("GET", &url("https://a.example/gone"), &no_headers());
        let recorded = log.finish(Vec::new()).expect("answers");
        let asked = digest_of_request("POST", "https://a.example/x?key=hunter2", b"body");
        let answer = RequestOutcome::Received {
            status: 200,
            headers: vec![("content-type".into(), "text/plain".into())],
            body: RecordedBytes(b"answer".to_vec()),
            read: Extent::Whole,
        };
        let [HostCallResult::Request { url, asked: by, answer: recorded_answer, .. }, gone] = &recorded.answers[..]
        else {
            panic!("{recorded:?}")
        };
        assert_eq!((url.as_str(), by, recorded_answer), ("https://a.example/x", &asked, &answer));
        assert!(
            matches!(gone, HostCallResult::Request { answer: RequestOutcome::Refused(_), .. }),
            "the request has no response"
        );
        assert!(!serde_json::to_string(&recorded).expect("JSON").contains("hunter2"));
    }

    /// S6: if a call reads a value that the call itself has written, the read is not recorded.
    #[test]
    fn s6_values_are_recorded_as_first_read_and_last_written() {
        let log = HostCallRecorder::new(1_000);
        let value = |text: &str| FoundValue::Value(RecordedBytes(text.as_bytes().to_vec()));
        log.value_read("", "a", FoundValue::Something);
        log.value_read("", "a", value("1"));
        log.value_read("", "a", value("2"));
        log.value_written("", "b", Some(b"3"));
        log.value_read("", "b", value("3"));
        log.value_written("", "a", None);
        let found: Vec<_> = log.finish(Vec::new()).expect("answers").answers;
        let of = |key: &str, found| HostCallResult::Value { bucket: String::new(), key: key.to_owned(), found };
        let left = |key: &str, value: Option<&str>| HostCallResult::Wrote {
            bucket: String::new(),
            key: key.to_owned(),
            value: value.map(|value| RecordedBytes(value.as_bytes().to_vec())),
        };
        assert_eq!(found, [of("a", FoundValue::Something), of("a", value("1")), left("a", None), left("b", Some("3"))]);
    }

    /// S6: results that do not fit into the record are counted. A response that does not fit completely is not recorded
    /// at all.
    #[test]
    fn s6_answers_beyond_the_maximum_size_are_left_out() {
        let log = HostCallRecorder::new(200);
        let number = log.request("GET", &url("https://a.example/"), &no_headers());
        log.response_started(number, 200, &hyper::HeaderMap::new());
        log.response_body(number, &[b'x'; 300]);
        log.response_ended(number);
        log.random(&[7; 300]);
        let recorded = log.finish(Vec::new()).expect("answers");
        assert!(
            matches!(&recorded.answers[..], [HostCallResult::Request { answer: RequestOutcome::TooLarge, .. }]),
            "{recorded:?}"
        );
        assert_eq!(recorded.left_out, 2);
        let off = HostCallRecorder::new(0);
        off.request("GET", &url("https://a.example/"), &no_headers());
        off.value_written("", "a", None);
        off.time(Duration::from_secs(1));
        assert_eq!(off.finish(Vec::new()), None);
    }

    /// Recorded bytes are read back unchanged, whether they are UTF-8 or not.
    #[test]
    fn recorded_bytes_round_trip_as_text_or_base64() {
        for (bytes, json) in [(b"text".to_vec(), r#"{"text":"text"}"#), (vec![0xff, 0], r#"{"base64":"/wA="}"#)] {
            let written = serde_json::to_string(&RecordedBytes(bytes.clone())).expect("JSON");
            assert_eq!(written, json);
            assert_eq!(serde_json::from_str::<RecordedBytes>(&written).expect("bytes").0, bytes);
        }
    }
}
