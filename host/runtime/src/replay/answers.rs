//! What the host once answered a plugin, answered again (S6). What was not asked then is denied, and told.

use agent_plugins::{
    FoundValue, Grants, HostAnswer, HostAnswers, HttpAnswer, HttpEnding, HttpPort, HttpQuestion, HttpRefusal, KeySpace,
    KeyValuePort, PortError, Read, RecordedTrees, RequestAnswer, Swapped, Then, digest_of_request,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The answers to one call, with what the call has changed in them.
#[derive(Default)]
pub(super) struct RecordedHost(Mutex<State>);

type Place = (String, String);

#[derive(Default)]
struct State {
    requests: BTreeMap<String, VecDeque<RequestAnswer>>,
    found: BTreeMap<Place, FoundValue>,
    /// Pages of keys by bucket and the key before them.
    pages: BTreeMap<Place, Vec<String>>,
    /// What the call left then.
    left: BTreeMap<Place, Option<Vec<u8>>>,
    /// What it has written now.
    written: BTreeMap<Place, Option<Vec<u8>>>,
    /// Not all was recorded.
    is_whole: Whole,
    missed: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Whole {
    #[default]
    Yes,
    No,
}

impl RecordedHost {
    pub(super) fn new(recorded: &HostAnswers) -> Self {
        let mut state = State::default();
        if recorded.left_out > 0 {
            state.is_whole = Whole::No;
        }
        for answer in recorded.answers.clone() {
            match answer {
                HostAnswer::Request { asked, answer, .. } => {
                    state.requests.entry(asked.to_string()).or_default().push_back(answer);
                }
                // A later look at the same key knows more.
                HostAnswer::Value { bucket, key, found } => drop(state.found.insert((bucket, key), found)),
                HostAnswer::Keys { bucket, after, keys } => drop(state.pages.entry((bucket, after)).or_insert(keys)),
                HostAnswer::Wrote { bucket, key, value } => {
                    state.left.insert((bucket, key), value.map(|value| value.0));
                }
                // Files lie in a folder of their own.
                HostAnswer::Trees { .. } | HostAnswer::File { .. } | HostAnswer::LeftFile { .. } => {}
                HostAnswer::NoValues | HostAnswer::Time { .. } | HostAnswer::Random { .. } => {}
            }
        }
        Self(Mutex::new(state))
    }

    /// What was asked or changed that was not then; the call is over.
    pub(super) fn missed(&self) -> Vec<String> {
        let mut state = self.lock();
        let mut missed = std::mem::take(&mut state.missed);
        if state.is_whole == Whole::Yes {
            for (place, value) in &state.written {
                if state.left.get(place) != Some(value) {
                    missed.push(format!("keeping another value than then under {}", shown(place)));
                }
            }
            for place in state.left.keys().filter(|place| !state.written.contains_key(*place)) {
                missed.push(format!("keeping nothing under {}, as it did then", shown(place)));
            }
        }
        missed.sort();
        missed.dedup();
        missed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time, chance and files as the call saw them.
pub(super) fn then(recorded: &HostAnswers, trees: Option<Arc<RecordedTrees>>) -> Then {
    let mut then = Then { trees, ..Then::default() };
    for answer in &recorded.answers {
        match answer {
            HostAnswer::Time { nanoseconds } => then.time = Some(Duration::from_nanos(*nanoseconds)),
            HostAnswer::Random { bytes } => then.random.clone_from(&bytes.0),
            _ => {}
        }
    }
    then
}

/// What the call was allowed then, as far as it shows: values to keep, requests, and trees, before those that are granted under
/// other names.
pub(super) fn allowed(recorded: &HostAnswers, recorded_trees: Option<&RecordedTrees>, grants: &Grants) -> Grants {
    let patterns = recorded.answers.iter().filter_map(|answer| match answer {
        HostAnswer::Request { method, url, .. } => format!("{method} {url}").parse().ok(),
        _ => None,
    });
    let has_values = !recorded.answers.contains(&HostAnswer::NoValues);
    let http = grants.http.iter().cloned().chain(patterns).collect();
    let mut trees = recorded_trees.map(RecordedTrees::grants).unwrap_or_default();
    let others = grants.trees.iter().filter(|granted| !trees.iter().any(|tree| tree.guest == granted.guest));
    trees.extend(others.cloned().collect::<Vec<_>>());
    Grants { http, trees, key_value: has_values.then_some(u64::MAX), ..grants.clone() }
}

fn shown((bucket, key): &Place) -> String {
    if bucket.is_empty() { format!("`{key}`") } else { format!("`{key}` in `{bucket}`") }
}

#[async_trait]
impl HttpPort for RecordedHost {
    async fn answer(&self, question: HttpQuestion) -> Result<HttpAnswer, HttpRefusal> {
        let HttpQuestion { method, url, body, .. } = question;
        let asked = digest_of_request(&method, &url, &body).to_string();
        let mut state = self.lock();
        let answer = state.requests.get_mut(&asked).and_then(|answers| match answers.len() {
            // Who only asks may ask once more.
            1 if method == "GET" || method == "HEAD" => answers.front().cloned(),
            _ => answers.pop_front(),
        });
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        match answer {
            Some(RequestAnswer::Came { status, headers, body, read }) => {
                let ending = if read == Read::Whole { HttpEnding::Whole } else { HttpEnding::Broken };
                Ok(HttpAnswer { status, headers, body: body.0, ending })
            }
            Some(RequestAnswer::Refused(refusal)) => Err(refusal),
            Some(RequestAnswer::TooLarge) => {
                state.missed.push(format!(
                    "the request {method} {shown}, whose answer was more than is recorded (`recorded_kib`)"
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
    /// What stands under a key now. None: nobody knows.
    fn value(&mut self, place: &Place) -> Option<Option<Vec<u8>>> {
        if let Some(written) = self.written.get(place) {
            return Some(written.clone());
        }
        match self.found.get(place) {
            Some(FoundValue::Nothing) => Some(None),
            Some(FoundValue::Value(value)) => Some(Some(value.0.clone())),
            Some(FoundValue::Something) | None => {
                self.missed.push(format!("looking at {}", shown(place)));
                None
            }
        }
    }
}

fn place(space: &KeySpace, key: &str) -> Place {
    (space.bucket.clone(), key.to_owned())
}

fn unrecorded() -> PortError {
    PortError::Failed("this value was not looked at when the session was recorded".to_owned())
}

#[async_trait]
impl KeyValuePort for RecordedHost {
    async fn get(&self, space: &KeySpace, key: &str) -> Result<Option<Vec<u8>>, PortError> {
        self.lock().value(&place(space, key)).ok_or_else(unrecorded)
    }

    async fn set(&self, space: &KeySpace, key: &str, value: Vec<u8>) -> Result<(), PortError> {
        self.lock().written.insert(place(space, key), Some(value));
        Ok(())
    }

    async fn delete(&self, space: &KeySpace, key: &str) -> Result<(), PortError> {
        self.lock().written.insert(place(space, key), None);
        Ok(())
    }

    async fn exists(&self, space: &KeySpace, key: &str) -> Result<bool, PortError> {
        let place = place(space, key);
        let mut state = self.lock();
        if !state.written.contains_key(&place) && state.found.get(&place) == Some(&FoundValue::Something) {
            return Ok(true);
        }
        state.value(&place).map(|value| value.is_some()).ok_or_else(unrecorded)
    }

    async fn keys(&self, space: &KeySpace, after: &str, limit: usize) -> Result<Vec<String>, PortError> {
        let mut state = self.lock();
        let Some(page) = state.pages.get(&place(space, after)).cloned() else {
            state.missed.push(format!("listing the keys of `{}` behind `{after}`", space.bucket));
            return Err(unrecorded());
        };
        let end = (page.len() >= limit).then(|| page.last().cloned()).flatten();
        let mut keys: BTreeSet<String> = page.into_iter().collect();
        let written = state.written.iter().filter(|((bucket, key), _)| *bucket == space.bucket && key.as_str() > after);
        for ((_, key), value) in written {
            match value {
                Some(_) if end.as_ref().is_none_or(|end| key <= end) => drop(keys.insert(key.clone())),
                Some(_) => {}
                None => drop(keys.remove(key)),
            }
        }
        Ok(keys.into_iter().take(limit).collect())
    }

    async fn increment(&self, space: &KeySpace, key: &str, delta: i64) -> Result<i64, PortError> {
        let place = place(space, key);
        let mut state = self.lock();
        let value = state.value(&place).ok_or_else(unrecorded)?;
        let number = value.map_or(Ok(0), |value| String::from_utf8_lossy(&value).parse::<i64>());
        let sum = number.ok().and_then(|number| number.checked_add(delta));
        let sum =
            sum.ok_or_else(|| PortError::Refused(format!("{} is no number that can be added to", shown(&place))))?;
        state.written.insert(place, Some(sum.to_string().into_bytes()));
        Ok(sum)
    }

    async fn swap(
        &self,
        space: &KeySpace,
        key: &str,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    ) -> Result<Swapped, PortError> {
        let place = place(space, key);
        let mut state = self.lock();
        let current = state.value(&place).ok_or_else(unrecorded)?;
        if current != expected {
            return Ok(Swapped::Other(current));
        }
        state.written.insert(place, Some(value));
        Ok(Swapped::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::Bytes;

    fn space() -> KeySpace {
        KeySpace { agent: "a".into(), plugin: "p".into(), bucket: String::new(), quota: 1 }
    }

    fn host(answers: Vec<HostAnswer>) -> RecordedHost {
        RecordedHost::new(&HostAnswers { answers, left_out: 0 })
    }

    fn value(key: &str, found: Option<&str>) -> HostAnswer {
        let bytes = |text: &str| FoundValue::Value(Bytes(text.as_bytes().to_vec()));
        let found = found.map_or(FoundValue::Nothing, bytes);
        HostAnswer::Value { bucket: String::new(), key: key.to_owned(), found }
    }

    fn left(key: &str, value: &str) -> HostAnswer {
        let value = Some(Bytes(value.as_bytes().to_vec()));
        HostAnswer::Wrote { bucket: String::new(), key: key.to_owned(), value }
    }

    /// S6: a call meets the values as it found them then, with its own changes; what it leaves is compared.
    #[tokio::test]
    async fn values_are_as_they_were_found() {
        let host = host(vec![value("n", Some("4")), value("new", None), left("n", "6"), left("new", "x")]);
        assert_eq!(host.increment(&space(), "n", 2).await, Ok(6));
        assert_eq!(host.get(&space(), "n").await, Ok(Some(b"6".to_vec())));
        assert_eq!(host.exists(&space(), "new").await, Ok(false));
        assert_eq!(host.swap(&space(), "new", None, b"x".to_vec()).await, Ok(Swapped::Done));
        assert_eq!(host.swap(&space(), "new", None, b"y".to_vec()).await, Ok(Swapped::Other(Some(b"x".to_vec()))));
        assert_eq!(host.missed(), Vec::<String>::new());
        assert!(host.get(&space(), "other").await.is_err());
        host.set(&space(), "new", b"z".to_vec()).await.unwrap();
        assert_eq!(host.missed(), ["keeping another value than then under `new`", "looking at `other`"]);
    }

    /// S6: a value that is not kept any more is a difference, too.
    #[tokio::test]
    async fn what_is_left_out_is_told() {
        let host = host(vec![left("a", "1")]);
        assert_eq!(host.missed(), ["keeping nothing under `a`, as it did then"]);
    }

    /// S6: pages of keys come with the call's own changes.
    #[tokio::test]
    async fn keys_are_listed_as_then() {
        let keys = vec!["b".to_owned(), "c".to_owned()];
        let host = host(vec![HostAnswer::Keys { bucket: String::new(), after: String::new(), keys }]);
        host.set(&space(), "a", Vec::new()).await.unwrap();
        host.delete(&space(), "c").await.unwrap();
        assert_eq!(host.keys(&space(), "", 10).await, Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(host.keys(&space(), "b", 10).await.is_err());
    }

    /// S6: a request is answered by what was asked, also in another order; one that changes something only as often as then.
    #[tokio::test]
    async fn requests_are_answered_as_then() {
        let request = |method: &str, text: &str| HostAnswer::Request {
            method: method.to_owned(),
            url: "https://a.example/".to_owned(),
            asked: digest_of_request(method, "https://a.example/", text.as_bytes()),
            answer: RequestAnswer::Came {
                status: 200,
                headers: Vec::new(),
                body: Bytes(text.as_bytes().to_vec()),
                read: Read::Whole,
            },
        };
        let host = host(vec![request("GET", ""), request("POST", "1"), request("POST", "2")]);
        let ask = async |method: &str, body: &str| {
            let question = HttpQuestion {
                plugin: "p".into(),
                call: "1".into(),
                method: method.into(),
                url: "https://a.example/".into(),
                headers: Vec::new(),
                body: body.as_bytes().to_vec(),
            };
            host.answer(question).await.map(|answer| answer.body)
        };
        assert_eq!(ask("POST", "2").await, Ok(b"2".to_vec()));
        assert_eq!(ask("GET", "").await, Ok(Vec::new()));
        assert_eq!(ask("GET", "").await, Ok(Vec::new()));
        assert_eq!(host.missed(), Vec::<String>::new());
        assert_eq!(ask("POST", "2").await, Err(HttpRefusal::Denied));
        assert_eq!(ask("POST", "3").await, Err(HttpRefusal::Denied));
        assert_eq!(host.missed(), ["the request POST https://a.example/"]);
    }
}
