//! Recorded requests: what plugins ask is answered from the scenario's file, and nothing else is (S4).

use super::file::Scenario;
use super::pattern::Pattern;
use super::report::Failure;
use super::script::{Exchange, Fault};
use agent_plugins::{HttpAnswer, HttpEnding, HttpPort, HttpQuestion, HttpRefusal};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest file that is an answer's body, in bytes.
const BODY: u64 = 256 * 1024 * 1024;
/// Requests that nobody recorded and that are reported.
const REPORTED: usize = 20;

/// The recorded requests of one scenario.
pub(crate) struct Recorded {
    exchanges: Vec<(Exchange, Vec<u8>)>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How often each was asked.
    asked: Vec<usize>,
    /// Requests in the order in which they came: which of the recorded, or none.
    requests: Vec<(HttpQuestion, Option<usize>)>,
    /// How many of them were told.
    told: usize,
}

/// Whether it is a method and an address.
pub(crate) fn is_request(text: &str) -> bool {
    let Some((method, url)) = text.split_once(' ') else { return false };
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase()) && is_address && !url.contains(' ')
}

impl Recorded {
    /// Of the scenario, with the files that it names.
    pub(crate) fn read(scenario: &Scenario) -> Result<Self, String> {
        let mut exchanges = Vec::new();
        for (index, spanned) in scenario.script.http.iter().enumerate() {
            let exchange = spanned.get_ref().clone();
            let body = body_of(scenario, &exchange).map_err(|error| {
                let place = scenario.place(spanned.span(), format!("http[{index}]"));
                format!("{place}: its answer cannot be read: {error}")
            })?;
            exchanges.push((exchange, body));
        }
        let seen = Seen { asked: vec![0; exchanges.len()], requests: Vec::new(), told: 0 };
        Ok(Self { exchanges, seen: Mutex::new(seen) })
    }

    /// The requests that were not told yet, for the transcript: `METHOD URL`, and how they were answered.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut seen = self.lock();
        let requests = seen.requests[seen.told..].to_vec();
        seen.told = seen.requests.len();
        drop(seen);
        let line = |(question, by): &(HttpQuestion, Option<usize>)| {
            let answer = match by.map(|index| &self.exchanges[index].0) {
                None => "denied: not recorded".to_owned(),
                Some(Exchange { error: Some(fault), .. }) => format!("{fault:?}").to_lowercase(),
                Some(exchange) => exchange.status.to_string(),
            };
            format!("{} {} → {answer}", question.method, question.url)
        };
        let mut lines: Vec<String> = requests.iter().map(line).collect();
        // Calls that run at once ask in any order.
        lines.sort();
        lines
    }

    /// Requests that nobody recorded.
    pub(crate) fn unrecorded(&self) -> Vec<HttpQuestion> {
        let seen = self.lock();
        let unrecorded = seen.requests.iter().filter(|(_, by)| by.is_none()).map(|(question, _)| question.clone());
        unrecorded.take(REPORTED).collect()
    }

    /// What was recorded and never asked for, or not as often as was said.
    pub(crate) fn left(&self, scenario: &Scenario) -> Vec<Failure> {
        let seen = self.lock();
        let mut failures = Vec::new();
        for (index, ((exchange, _), asked)) in self.exchanges.iter().zip(&seen.asked).enumerate() {
            let wrong = exchange.times.map_or(*asked == 0, |times| *asked != times);
            if wrong {
                let place = scenario.place(scenario.script.http[index].span(), format!("http[{index}]"));
                let times = exchange.times.map_or_else(|| "at least once".to_owned(), |times| format!("{times} times"));
                let found = match asked {
                    0 => "never".to_owned(),
                    asked => format!("{asked} times"),
                };
                failures.push(Failure::at(place, &format!("`{}` to be asked {times}", exchange.request), found));
            }
        }
        failures
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first that fits and is not spent; it counts as asked.
    fn take(&self, question: HttpQuestion) -> Option<usize> {
        let mut seen = self.lock();
        let fits = |index: &usize| {
            let (exchange, asked) = (&self.exchanges[*index].0, seen.asked[*index]);
            exchange.times.is_none_or(|times| asked < times) && fits(exchange, &question)
        };
        let found = (0..self.exchanges.len()).find(fits);
        if let Some(index) = found {
            seen.asked[index] += 1;
        }
        seen.requests.push((question, found));
        found
    }
}

fn fits(exchange: &Exchange, question: &HttpQuestion) -> bool {
    let has = |(name, value): (&String, &String)| {
        question.headers.iter().any(|(other, there)| other.eq_ignore_ascii_case(name) && there == value)
    };
    let body = String::from_utf8_lossy(&question.body);
    let sends = |pattern: &Pattern| pattern.mismatches(&body, None).is_empty();
    is_same(&exchange.request, question)
        && exchange.request_headers.iter().all(has)
        && exchange.request_body.as_ref().is_none_or(sends)
}

/// An address may be written without the `/` that ends it.
fn is_same(request: &str, question: &HttpQuestion) -> bool {
    let asked = format!("{} {}", question.method, question.url);
    asked == request || asked.strip_suffix('/') == Some(request)
}

#[async_trait::async_trait]
impl HttpPort for Recorded {
    async fn answer(&self, question: HttpQuestion) -> Result<HttpAnswer, HttpRefusal> {
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
        Ok(HttpAnswer { status: exchange.status, headers, body: body.clone(), ending: HttpEnding::Whole })
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
        .map_or_else(|| Ok(Vec::new()), |file| super::folder::read(&scenario.folder().join(file), BODY))
}
