//! Answers a plugin's host calls with the recorded answers (S6). If a host call was not recorded, it is denied and
//! reported as a difference.

use agent_core::message::Digest;
use agent_plugins::{
    Access, BodyCompleteness, Extent, FoundValue, Grants, HostCallLog, HostCallResult, HttpPort, HttpPortRequest,
    HttpPortResponse, HttpRefusal, KeyValueBucket, KeyValuePort, PortError, ReplayInputs, ReplayTrees, RequestOutcome,
    SwapOutcome, TreeGrant, digest_of_request,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The recorded answers to the host calls of one plugin call, and the changes to values that the replayed call
/// has made.
#[derive(Default)]
pub(super) struct RecordedHost(Mutex<State>);

/// Name of a bucket, and a key in this bucket.
type ValueKey = (String, String);

#[derive(Default)]
struct State {
    requests: BTreeMap<String, VecDeque<AnsweredRequest>>,
    /// Values that the recorded call read, by bucket and key.
    found: BTreeMap<ValueKey, FoundValue>,
    /// Pages of keys that the recorded call read, by bucket and by the key after which the page starts.
    pages: BTreeMap<ValueKey, Vec<String>>,
    /// The last value that the recorded call wrote under each key.
    recorded_writes: BTreeMap<ValueKey, Option<Vec<u8>>>,
    /// The values that the replayed call has written.
    writes: BTreeMap<ValueKey, Option<Vec<u8>>>,
    /// Requests of the replayed call that the record does not contain.
    missed: Vec<String>,
    effects: Vec<String>,
}

/// A recorded request and its answer.
struct AnsweredRequest {
    /// Method and URL of the request, without the query of the URL.
    shown: String,
    /// Digest of the request's headers, or `None` if the headers were not recorded.
    headers: Option<Digest>,
    answer: RequestOutcome,
}

/// The differences between a replayed call and the recorded call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Requests of the replayed call that the record does not contain, and that were therefore denied.
    pub(super) unrecorded: Vec<String>,
    /// Descriptions of the differences between the side effects of the two calls.
    pub(super) effects: Vec<String>,
}

/// HTTP methods without side effects (RFC 9110, section 9.2.1).
const SAFE_METHODS: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

impl RecordedHost {
    pub(super) fn new(recorded: &HostCallLog) -> Self {
        let mut state = State::default();
        for answer in recorded.answers.clone() {
            match answer {
                HostCallResult::Request { method, url, asked, headers, answer, timing: _ } => {
                    let answered = AnsweredRequest { shown: format!("{method} {url}"), headers, answer };
                    state.requests.entry(asked.to_string()).or_default().push_back(answered);
                }
                // If the call read the same value several times, the latest read is used, because it may contain
                // more data.
                HostCallResult::Value { bucket, key, found } => drop(state.found.insert((bucket, key), found)),
                HostCallResult::Keys { bucket, after, keys } => {
                    state.pages.entry((bucket, after)).or_insert(keys);
                }
                HostCallResult::Wrote { bucket, key, value } => {
                    state.recorded_writes.insert((bucket, key), value.map(|value| value.0));
                }
                // Files are not answered here, because they are recreated in a separate directory for the replay.
                HostCallResult::Trees { .. } | HostCallResult::File { .. } | HostCallResult::LeftFile { .. } => {}
                HostCallResult::NoValues | HostCallResult::Time { .. } | HostCallResult::Random { .. } => {}
            }
        }
        Self(Mutex::new(state))
    }

    /// Returns the differences between the replayed call and the recorded call. Use this method after the replayed call
    /// has ended.
    pub(super) fn differences(&self) -> Differences {
        let mut state = self.lock();
        let (mut unrecorded, mut effects) = (std::mem::take(&mut state.missed), std::mem::take(&mut state.effects));
        for (value_key, value) in &state.writes {
            match state.recorded_writes.get(value_key) {
                Some(recorded) if recorded == value => {}
                Some(_) => effects.push(format!("stores a different value under {}", shown(value_key))),
                None => {
                    effects.push(format!("stores a value under {}, for which nothing is recorded", shown(value_key)))
                }
            }
        }
        for value_key in state.recorded_writes.keys().filter(|value_key| !state.writes.contains_key(*value_key)) {
            effects.push(format!("no longer stores a value under {}", shown(value_key)));
        }
        for answered in state.requests.values().flatten() {
            let is_safe = SAFE_METHODS.iter().any(|method| answered.shown.starts_with(&format!("{method} ")));
            // A request that was denied because of a missing grant had no side effect.
            if !is_safe && answered.answer != RequestOutcome::Refused(HttpRefusal::Denied) {
                effects.push(format!("no longer sends the request {}", answered.shown));
            }
        }
        for list in [&mut unrecorded, &mut effects] {
            list.sort();
            list.dedup();
        }
        Differences { unrecorded, effects }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time, the random bytes and the files that the recorded call received.
pub(super) fn recorded_environment(recorded: &HostCallLog, trees: Option<Arc<ReplayTrees>>) -> ReplayInputs {
    let mut inputs = ReplayInputs { trees, ..ReplayInputs::default() };
    for answer in &recorded.answers {
        match answer {
            HostCallResult::Time { nanoseconds } => inputs.time = Some(Duration::from_nanos(*nanoseconds)),
            HostCallResult::Random { bytes } => inputs.random.clone_from(&bytes.0),
            _ => {}
        }
    }
    inputs
}

/// Returns `grants` and also the grants for stored values, HTTP requests and directories that the recorded call had,
/// according to the recorded answers. The recorded directories come first, followed by the directories in `grants` that
/// have other names. A replay must not change these directories, so the plugin may only read them, even if `grants`
/// allows changes.
pub(super) fn recorded_grants(recorded: &HostCallLog, recorded_trees: Option<&ReplayTrees>, grants: &Grants) -> Grants {
    let patterns = recorded.answers.iter().filter_map(|answer| match answer {
        HostCallResult::Request { method, url, .. } => format!("{method} {url}").parse().ok(),
        _ => None,
    });
    let has_values = !recorded.answers.contains(&HostCallResult::NoValues);
    let http = grants.http.iter().cloned().chain(patterns).collect();
    let mut trees = recorded_trees.map(ReplayTrees::grants).unwrap_or_default();
    let others = grants.trees.iter().filter(|granted| !trees.iter().any(|tree| tree.guest == granted.guest));
    let read_only = |tree: &TreeGrant| TreeGrant { access: Access::Read, ..tree.clone() };
    trees.extend(others.map(read_only).collect::<Vec<_>>());
    Grants { http, trees, key_value: has_values.then_some(u64::MAX), ..grants.clone() }
}

fn shown((bucket, key): &ValueKey) -> String {
    if bucket.is_empty() { format!("`{key}`") } else { format!("`{key}` in `{bucket}`") }
}

#[async_trait]
impl HttpPort for RecordedHost {
    async fn answer(&self, question: HttpPortRequest) -> Result<HttpPortResponse, HttpRefusal> {
        let HttpPortRequest { method, url, own_headers, body, .. } = question;
        let digest = digest_of_request(&method, &url, &body).to_string();
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        let mut state = self.lock();
        let answered = state.requests.get_mut(&digest).and_then(|answers| {
            let has_same_headers = |answered: &AnsweredRequest| answered.headers.as_ref() == Some(&own_headers);
            let index = answers.iter().position(has_same_headers).unwrap_or_default();
            let answered = answers.get(index)?;
            let matches = answered.headers.is_none() || has_same_headers(answered);
            let answer = match answers.len() {
                // A request without side effects may be sent more often than it was recorded.
                1 if SAFE_METHODS.contains(&method.as_str()) => answered.answer.clone(),
                _ => answers.remove(index)?.answer,
            };
            Some((answer, matches))
        });
        if let Some((_, false)) = answered {
            state.effects.push(format!("sends different headers with the request {method} {shown}"));
        }
        match answered.map(|(answer, _)| answer) {
            Some(RequestOutcome::Received { status, headers, body, read }) => {
                let ending = if read == Extent::Whole { BodyCompleteness::Whole } else { BodyCompleteness::Broken };
                Ok(HttpPortResponse { status, headers, body: body.0, ending })
            }
            Some(RequestOutcome::Refused(refusal)) => Err(refusal),
            Some(RequestOutcome::TooLarge) => {
                state.missed.push(format!(
                    "the request {method} {shown}, whose answer was too large to be recorded (`recorded_kib`)"
                ));
                Err(HttpRefusal::Denied)
            }
            None => {
                state.missed.push(format!("the request {method} {shown}"));
                Err(HttpRefusal::Denied)
            }
        }
    }
}

impl State {
    /// Returns the current value under a key (the inner `None` if there is no value), or `None` if the value is
    /// not recorded.
    fn value(&mut self, value_key: &ValueKey) -> Option<Option<Vec<u8>>> {
        if let Some(written) = self.writes.get(value_key) {
            return Some(written.clone());
        }
        match self.found.get(value_key) {
            Some(FoundValue::Nothing) => Some(None),
            Some(FoundValue::Value(value)) => Some(Some(value.0.clone())),
            Some(FoundValue::Something) | None => {
                self.missed.push(format!("reading {}", shown(value_key)));
                None
            }
        }
    }
}

fn value_key(space: &KeyValueBucket, key: &str) -> ValueKey {
    (space.bucket.clone(), key.to_owned())
}

fn unrecorded() -> PortError {
    PortError::Failed("this value was not read when the session was recorded".to_owned())
}

#[async_trait]
impl KeyValuePort for RecordedHost {
    async fn get(&self, space: &KeyValueBucket, key: &str) -> Result<Option<Vec<u8>>, PortError> {
        self.lock().value(&value_key(space, key)).ok_or_else(unrecorded)
    }

    async fn set(&self, space: &KeyValueBucket, key: &str, value: Vec<u8>) -> Result<(), PortError> {
        self.lock().writes.insert(value_key(space, key), Some(value));
        Ok(())
    }

    async fn delete(&self, space: &KeyValueBucket, key: &str) -> Result<(), PortError> {
        self.lock().writes.insert(value_key(space, key), None);
        Ok(())
    }

    async fn exists(&self, space: &KeyValueBucket, key: &str) -> Result<bool, PortError> {
        let value_key = value_key(space, key);
        let mut state = self.lock();
        if !state.writes.contains_key(&value_key) && state.found.get(&value_key) == Some(&FoundValue::Something) {
            return Ok(true);
        }
        state.value(&value_key).map(|value| value.is_some()).ok_or_else(unrecorded)
    }

    async fn keys(&self, space: &KeyValueBucket, after: &str, limit: usize) -> Result<Vec<String>, PortError> {
        let mut state = self.lock();
        let Some(page) = state.pages.get(&value_key(space, after)).cloned() else {
            state.missed.push(format!("listing the keys of `{}` after `{after}`", space.bucket));
            return Err(unrecorded());
        };
        let end = (page.len() >= limit).then(|| page.last().cloned()).flatten();
        let mut keys: BTreeSet<String> = page.into_iter().collect();
        let written = state.writes.iter().filter(|((bucket, key), _)| *bucket == space.bucket && key.as_str() > after);
        for ((_, key), value) in written {
            match value {
                Some(_) if end.as_ref().is_none_or(|end| key <= end) => drop(keys.insert(key.clone())),
                Some(_) => {}
                None => drop(keys.remove(key)),
            }
        }
        Ok(keys.into_iter().take(limit).collect())
    }

    async fn increment(&self, space: &KeyValueBucket, key: &str, delta: i64) -> Result<i64, PortError> {
        let value_key = value_key(space, key);
        let mut state = self.lock();
        let value = state.value(&value_key).ok_or_else(unrecorded)?;
        let number = value.map_or(Ok(0), |value| String::from_utf8_lossy(&value).parse::<i64>());
        let sum = number.ok().and_then(|number| number.checked_add(delta));
        let sum = sum.ok_or_else(|| {
            PortError::Refused(format!("{} is not a number that can be incremented", shown(&value_key)))
        })?;
        state.writes.insert(value_key, Some(sum.to_string().into_bytes()));
        Ok(sum)
    }

    async fn swap(
        &self,
        space: &KeyValueBucket,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<SwapOutcome, PortError> {
        let value_key = value_key(space, key);
        let mut state = self.lock();
        let current = state.value(&value_key).ok_or_else(unrecorded)?;
        if current != expected {
            return Ok(SwapOutcome::Other(current));
        }
        state.writes.insert(value_key, Some(value));
        Ok(SwapOutcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::RecordedBytes;

    fn space() -> KeyValueBucket {
        KeyValueBucket { agent: "a".into(), plugin: "p".into(), bucket: String::new(), quota: 1 }
    }

    fn host(answers: Vec<HostCallResult>) -> RecordedHost {
        RecordedHost::new(&HostCallLog { answers, left_out: 0 })
    }

    fn value(key: &str, found: Option<&str>) -> HostCallResult {
        let bytes = |text: &str| FoundValue::Value(RecordedBytes(text.as_bytes().to_vec()));
        let found = found.map_or(FoundValue::Nothing, bytes);
        HostCallResult::Value { bucket: String::new(), key: key.to_owned(), found }
    }

    fn wrote(key: &str, value: &str) -> HostCallResult {
        let value = Some(RecordedBytes(value.as_bytes().to_vec()));
        HostCallResult::Wrote { bucket: String::new(), key: key.to_owned(), value }
    }

    /// S6: a replayed call may read a directory that the recorded call could not access, but may not change it, even if
    /// the plugin may change the directory outside of replays.
    #[test]
    fn s6_directories_that_were_not_recorded_are_only_read() {
        let granted = TreeGrant { host: "/home/me/docs".into(), guest: "docs".into(), access: Access::ReadWrite };
        let grants = Grants { trees: vec![granted.clone()], ..Grants::default() };
        let replayed = recorded_grants(&HostCallLog::default(), None, &grants);
        assert_eq!(replayed.trees, [TreeGrant { access: Access::Read, ..granted }]);
    }

    /// S6: a replayed call reads the recorded values, or the values that it has written itself, and the values that it
    /// writes are compared with the recorded values.
    #[tokio::test]
    async fn s6_values_are_read_as_recorded() {
        let host = host(vec![value("n", Some("4")), value("new", None), wrote("n", "6"), wrote("new", "x")]);
        assert_eq!(host.increment(&space(), "n", 2).await, Ok(6));
        assert_eq!(host.get(&space(), "n").await, Ok(Some(b"6".to_vec())));
        assert_eq!(host.exists(&space(), "new").await, Ok(false));
        assert_eq!(host.swap(&space(), "new", None, b"x".to_vec()).await, Ok(SwapOutcome::Done));
        assert_eq!(host.swap(&space(), "new", None, b"y".to_vec()).await, Ok(SwapOutcome::Other(Some(b"x".to_vec()))));
        assert_eq!(host.differences(), Differences::default());
        assert!(host.get(&space(), "other").await.is_err());
        host.set(&space(), "new", b"z".to_vec()).await.unwrap();
        let Differences { unrecorded, effects } = host.differences();
        assert_eq!(effects, ["stores a different value under `new`"]);
        assert_eq!(unrecorded, ["reading `other`"]);
    }

    /// S6: if the recorded call wrote a value and the replayed call does not, this is reported as a difference.
    #[tokio::test]
    async fn s6_missing_writes_are_reported() {
        let host = host(vec![wrote("a", "1")]);
        assert_eq!(host.differences().effects, ["no longer stores a value under `a`"]);
    }

    /// S6: if the record does not contain all answers, the recorded answers are compared, and every request without a
    /// recorded answer is reported.
    #[tokio::test]
    async fn s6_incomplete_recordings_are_still_compared() {
        let host = RecordedHost::new(&HostCallLog { answers: vec![wrote("a", "1")], left_out: 1 });
        host.set(&space(), "a", b"2".to_vec()).await.unwrap();
        host.delete(&space(), "b").await.unwrap();
        let effects = host.differences().effects;
        let expected =
            ["stores a different value under `a`", "stores a value under `b`, for which nothing is recorded"];
        assert_eq!(effects, expected);
    }

    /// S6: a page of keys contains the keys that the replayed call has added, and not those that it has removed.
    #[tokio::test]
    async fn s6_keys_are_listed_as_recorded() {
        let keys = vec!["b".to_owned(), "c".to_owned()];
        let host = host(vec![HostCallResult::Keys { bucket: String::new(), after: String::new(), keys }]);
        host.set(&space(), "a", Vec::new()).await.unwrap();
        host.delete(&space(), "c").await.unwrap();
        assert_eq!(host.keys(&space(), "", 10).await, Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(host.keys(&space(), "b", 10).await.is_err());
    }

    /// S6: recorded requests are answered even if they are sent in another order. A request with side effects is
    /// answered only as often as it was recorded.
    #[tokio::test]
    async fn s6_requests_are_answered_as_recorded() {
        let request = |method: &str, text: &str| HostCallResult::Request {
            method: method.to_owned(),
            url: "https://a.example/".to_owned(),
            asked: digest_of_request(method, "https://a.example/", text.as_bytes()),
            headers: Some(Digest::from_sha256([1; 32])),
            answer: RequestOutcome::Received {
                status: 200,
                headers: Vec::new(),
                body: RecordedBytes(text.as_bytes().to_vec()),
                read: Extent::Whole,
            },
            timing: None,
        };
        let host = host(vec![request("GET", ""), request("POST", "1"), request("POST", "2"), request("PUT", "3")]);
        let ask = async |method: &str, body: &str, headers: u8| {
            let question = HttpPortRequest {
                plugin: "p".into(),
                call: "1".into(),
                method: method.into(),
                url: "https://a.example/".into(),
                headers: Vec::new(),
                own_headers: Digest::from_sha256([headers; 32]),
                body: body.as_bytes().to_vec(),
            };
            host.answer(question).await.map(|answer| answer.body)
        };
        assert_eq!(ask("POST", "2", 1).await, Ok(b"2".to_vec()));
        assert_eq!(ask("GET", "", 1).await, Ok(Vec::new()));
        assert_eq!(ask("GET", "", 1).await, Ok(Vec::new()));
        let not_sent = |method: &str| format!("no longer sends the request {method} https://a.example/");
        assert_eq!(
            host.differences(),
            Differences { unrecorded: vec![], effects: vec![not_sent("POST"), not_sent("PUT")] }
        );
        assert_eq!(ask("POST", "2", 1).await, Err(HttpRefusal::Denied));
        assert_eq!(ask("POST", "3", 1).await, Err(HttpRefusal::Denied));
        assert_eq!(ask("POST", "1", 2).await, Ok(b"1".to_vec()));
        let Differences { unrecorded, effects } = host.differences();
        assert_eq!(unrecorded, ["the request POST https://a.example/"]);
        let other = "sends different headers with the request POST https://a.example/";
        assert_eq!(effects, [not_sent("PUT").as_str(), other]);
    }
}
