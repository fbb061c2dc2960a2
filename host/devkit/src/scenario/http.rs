//! Answers HTTP requests of plugins with the responses that are recorded in the scenario file, and denies all other
//! requests (S4).

use super::file::Scenario;
use super::pattern::Pattern;
use super::report::Failure;
use super::script::{Exchange, Fault};
use agent_plugins::{BodyCompleteness, HttpPort, HttpPortRequest, HttpPortResponse, HttpRefusal};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum size of a file with a response body, in bytes.
const MAX_BODY: u64 = 256 * 1024 * 1024;
/// Maximum number of unrecorded requests that are reported.
const MAX_REPORTED: usize = 20;

/// The recorded requests and responses of one scenario.
pub(crate) struct RecordedHttp {
    exchanges: Vec<(Exchange, Vec<u8>)>,
    log: Mutex<RequestLog>,
}

#[derive(Default)]
struct RequestLog {
    /// For each recorded request, the number of plugin requests that it has answered.
    uses: Vec<usize>,
    /// All requests of plugins in order, each with the index of the recorded request that it matches. `None` means that
    /// the request matches no recorded request.
    requests: Vec<(HttpPortRequest, Option<usize>)>,
    /// Number of entries in `requests` that were already added to the transcript.
    reported: usize,
}

/// Returns whether the text is a method and an address, such as `GET https://api.example.com/`.
pub(crate) fn is_request(text: &str) -> bool {
    let Some((method, url)) = text.split_once(' ') else { return false };
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase()) && is_address && !url.contains(' ')
}

impl RecordedHttp {
    /// Reads the recorded requests of the scenario, and the files that contain their response bodies.
    pub(crate) fn read(scenario: &Scenario) -> Result<Self, String> {
        let mut exchanges = Vec::new();
        for (index, spanned) in scenario.script.http.iter().enumerate() {
            let exchange = spanned.get_ref().clone();
            let body = body_of(scenario, &exchange).map_err(|error| {
                let place = scenario.place(spanned.span(), format!("http[{index}]"));
                format!("{place}: the answer cannot be read: {error}")
            })?;
            exchanges.push((exchange, body));
        }
        let log = RequestLog { uses: vec![0; exchanges.len()], requests: Vec::new(), reported: 0 };
        Ok(Self { exchanges, log: Mutex::new(log) })
    }

    /// Returns the requests that were sent since the last call to this method, as lines `METHOD URL → ANSWER` for
    /// the transcript.
    pub(crate) fn take_new_lines(&self) -> Vec<String> {
        let mut log = self.lock();
        let requests = log.requests[log.reported..].to_vec();
        log.reported = log.requests.len();
        drop(log);
        let line = |(question, index): &(HttpPortRequest, Option<usize>)| {
            let answer = match index.map(|index| &self.exchanges[index].0) {
                None => "denied: not recorded".to_owned(),
                Some(Exchange { error: Some(fault), .. }) => format!("{fault:?}").to_lowercase(),
                Some(exchange) => exchange.status.to_string(),
            };
            format!("{} {} → {answer}", question.method, question.url)
        };
        let mut lines: Vec<String> = requests.iter().map(line).collect();
        // The lines are sorted, because calls that run in parallel send their requests in any order.
        lines.sort();
        lines
    }

    /// Returns the first [`MAX_REPORTED`] requests of plugins that matched no recorded request.
    pub(crate) fn unrecorded(&self) -> Vec<Unrecorded> {
        let log = self.lock();
        let unrecorded = log.requests.iter().filter(|(_, index)| index.is_none()).map(|(question, _)| question.clone());
        let near_miss = |question: &HttpPortRequest| {
            let mut same = self.exchanges.iter().enumerate();
            let (index, (exchange, _)) =
                same.find(|(_, (exchange, _))| is_same_request(&exchange.request, question))?;
            Some(NearMiss { index, difference: difference(exchange, question) })
        };
        let unrecorded = unrecorded.take(MAX_REPORTED);
        unrecorded.map(|question| Unrecorded { near_miss: near_miss(&question), question }).collect()
    }

    /// Returns failures for recorded requests that were not sent as often as expected.
    pub(crate) fn wrong_count_failures(&self, scenario: &Scenario) -> Vec<Failure> {
        let log = self.lock();
        let mut failures = Vec::new();
        for (index, ((exchange, _), uses)) in self.exchanges.iter().zip(&log.uses).enumerate() {
            let wrong = exchange.times.map_or(*uses == 0, |times| *uses != times);
            if wrong {
                let place = scenario.place(scenario.script.http[index].span(), format!("http[{index}]"));
                let times = exchange.times.map_or_else(|| "at least once".to_owned(), |times| format!("{times} times"));
                let found = match uses {
                    0 => "never".to_owned(),
                    uses => format!("{uses} times"),
                };
                failures.push(Failure::at(place, &format!("`{}` to be sent {times}", exchange.request), found));
            }
        }
        failures
    }

    fn lock(&self) -> MutexGuard<'_, RequestLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the index of the first recorded request that matches the plugin's request and may still be used. Logs
    /// the plugin's request and counts the use of the recorded request.
    fn take(&self, question: HttpPortRequest) -> Option<usize> {
        let mut log = self.lock();
        let is_usable = |index: &usize| {
            let (exchange, uses) = (&self.exchanges[*index].0, log.uses[*index]);
            exchange.times.is_none_or(|times| uses < times) && matches(exchange, &question)
        };
        let found = (0..self.exchanges.len()).find(is_usable);
        if let Some(index) = found {
            log.uses[index] += 1;
        }
        log.requests.push((question, found));
        found
    }
}

/// A request of a plugin that matched no recorded request.
pub(crate) struct Unrecorded {
    pub(crate) question: HttpPortRequest,
    /// The first recorded request with the same method and address. `None` if there is no such request.
    pub(crate) near_miss: Option<NearMiss>,
}

/// A recorded request with the same method and address as a request that did not match it.
pub(crate) struct NearMiss {
    /// Index of the recorded request in the scenario.
    pub(crate) index: usize,
    /// Why the requests do not match, as the end of a sentence.
    pub(crate) difference: String,
}

/// Returns why a request does not match a recorded request with the same method and address. The values of headers are not
/// shown, because they may be secrets.
fn difference(exchange: &Exchange, question: &HttpPortRequest) -> String {
    for (name, value) in &exchange.request_headers {
        let mut sent = question.headers.iter().filter(|(sent, _)| sent.eq_ignore_ascii_case(name)).peekable();
        if sent.peek().is_none() {
            return format!(
                "without the header `{name}` of `request_headers`; if it contains a secret, the secret must be granted for \
                 this server"
            );
        }
        if !sent.any(|(_, sent)| sent == value) {
            return format!("with another value of the header `{name}` than `request_headers` contains");
        }
    }
    match exchange.times {
        Some(times) if exchange.request_body.as_ref().is_none_or(|body| is_body(body, question)) => {
            format!("more often than `times = {times}` allows")
        }
        _ => "with a body that does not match `request_body`".to_owned(),
    }
}

fn is_body(pattern: &Pattern, question: &HttpPortRequest) -> bool {
    pattern.mismatches(&String::from_utf8_lossy(&question.body), None).is_empty()
}

fn matches(exchange: &Exchange, question: &HttpPortRequest) -> bool {
    let has = |(name, value): (&String, &String)| {
        question
            .headers
            .iter()
            .any(|(sent_name, sent_value)| sent_name.eq_ignore_ascii_case(name) && sent_value == value)
    };
    is_same_request(&exchange.request, question)
        && exchange.request_headers.iter().all(has)
        && exchange.request_body.as_ref().is_none_or(|body| is_body(body, question))
}

/// Whether the request has the recorded method and address. The recorded address may omit a final `/`.
fn is_same_request(request: &str, question: &HttpPortRequest) -> bool {
    let sent = format!("{} {}", question.method, question.url);
    sent == request || sent.strip_suffix('/') == Some(request)
}

#[async_trait::async_trait]
impl HttpPort for RecordedHttp {
    async fn answer(&self, question: HttpPortRequest) -> Result<HttpPortResponse, HttpRefusal> {
        let index = self.take(question).ok_or(HttpRefusal::Denied)?;
        let (exchange, body) = &self.exchanges[index];
        if exchange.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(exchange.delay_ms)).await;
        }
        if let Some(fault) = exchange.error {
            return Err(match fault {
                Fault::NoSuchName => HttpRefusal::NoSuchName,
                Fault::Refused => HttpRefusal::ConnectionRefused,
                Fault::Broken => HttpRefusal::ConnectionBroken,
                Fault::Timeout => HttpRefusal::Timeout,
            });
        }
        let mut headers: Vec<_> = exchange.headers.clone().into_iter().collect();
        let has_type = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if exchange.json.is_some() && !has_type {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        Ok(HttpPortResponse { status: exchange.status, headers, body: body.clone(), ending: BodyCompleteness::Whole })
    }
}

fn body_of(scenario: &Scenario, exchange: &Exchange) -> io::Result<Vec<u8>> {
    if let Some(text) = &exchange.body {
        return Ok(text.clone().into_bytes());
    }
    if let Some(json) = &exchange.json {
        return Ok(json.to_string().into_bytes());
    }
    if let Some(text) = &exchange.base64 {
        return STANDARD.decode(text).map_err(io::Error::other);
    }
    exchange
        .file
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), |file| super::folder::read(&scenario.folder().join(file), MAX_BODY))
}
