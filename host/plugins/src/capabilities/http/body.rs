//! The bodies of requests and responses, with limits on their size and on the time for sending and receiving them.

use super::method_field::MethodFieldSearch;
use super::pool::Lease;
use crate::grants::GrantAdvice;
use crate::grants::request_rules::BodySize;
use crate::limits::Limit;
use crate::recording::CallRecord;
use crate::recording::host_calls::RequestNumber;
use crate::sync::lock;
use agent_core::redaction::{Edges, RedactionStream, Replacement};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

/// The body of a guest's request, limited in size.
pub(crate) struct RequestBody {
    shared: Arc<Mutex<SharedRequestBody>>,
    policy: BodyPolicy,
    left: usize,
    number: RequestNumber,
    record: Arc<CallRecord>,
}

/// Whether a request may have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyPolicy {
    Allowed,
    Forbidden,
}

/// Whether the body of a guest's request is certainly not empty, according to its size hint.
pub(crate) fn size_of(body: &WasiBody) -> BodySize {
    if body.size_hint().lower() > 0 { BodySize::NonEmpty } else { BodySize::Unknown }
}

/// The body of a guest's request, and whether parts of the body have been read. All copies of a repeatable request
/// share this value.
struct SharedRequestBody {
    body: WasiBody,
    yielded: bool,
    ended: bool,
    /// Stops the body if one of its fields could override the request's method. `None` means that the fields of the
    /// body are not checked.
    method_guard: Option<MethodGuard>,
}

/// Stops a body if one of its fields could override the request's method.
pub(crate) struct MethodGuard {
    search: MethodFieldSearch,
    /// The denial that is recorded when the body is stopped.
    denial: (String, GrantAdvice),
}

impl MethodGuard {
    pub(crate) fn new(denial: (String, GrantAdvice)) -> Self {
        Self { search: MethodFieldSearch::default(), denial }
    }
}

impl RequestBody {
    pub(crate) fn new(
        body: WasiBody,
        (policy, method_guard): (BodyPolicy, Option<MethodGuard>),
        (number, record): (RequestNumber, Arc<CallRecord>),
    ) -> Self {
        let shared = SharedRequestBody { body, yielded: false, ended: false, method_guard };
        Self { shared: Arc::new(Mutex::new(shared)), policy, left: record.limits.request_body, number, record }
    }

    /// Returns a copy of the body for a second attempt to send the request. The copy can be used only if no part of the
    /// body has been read.
    pub(crate) fn retry(&self) -> Self {
        let (shared, record) = (Arc::clone(&self.shared), Arc::clone(&self.record));
        Self { shared, policy: self.policy, left: record.limits.request_body, number: self.number, record }
    }

    /// Whether no part of the body has been read yet.
    pub(crate) fn is_unread(&self) -> bool {
        !lock(&self.shared).yielded
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.policy == BodyPolicy::Forbidden {
            return Poll::Ready(None);
        }
        let mut shared = lock(&self.shared);
        if shared.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut shared.body).poll_frame(context));
        (shared.yielded, shared.ended) = (shared.yielded || frame.is_some(), frame.is_none());
        if let (Some(Ok(frame)), Some(guard)) = (&frame, &mut shared.method_guard)
            && frame.data_ref().is_some_and(|data| guard.search.finds(data))
        {
            let (thing, advice) = guard.denial.clone();
            (shared.ended, shared.method_guard) = (true, None);
            self.record.deny(thing, advice);
            return Poll::Ready(Some(Err(Error::HttpRequestDenied)));
        }
        drop(shared);
        if let Some(Ok(frame)) = &frame {
            let data = frame.data_ref();
            data.iter().for_each(|data| self.record.answers.request_body_sent(self.number, data));
            let size = data.map_or(0, Bytes::len);
            self.record.count_bytes_from_guest(size);
            match self.left.checked_sub(size) {
                Some(left) => self.left = left,
                None => {
                    let limit = self.record.limits.request_body;
                    self.record.record_request_limit(Limit::RequestBody(limit));
                    return Poll::Ready(Some(Err(Error::HttpRequestBodySize(Some(limit as u64)))));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.shared);
        self.policy == BodyPolicy::Forbidden || shared.ended || shared.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.policy {
            BodyPolicy::Forbidden => SizeHint::with_exact(0),
            BodyPolicy::Allowed => lock(&self.shared).body.size_hint(),
        }
    }
}

/// The time by which a request must have ended.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    /// The limit that determines the deadline. `None` means that the wall-time limit of the call determines
    /// the deadline.
    limit: Option<Limit>,
}

impl Deadline {
    /// The deadline of a request that starts now.
    pub(crate) fn of(record: &CallRecord) -> Self {
        let (own, left) = (record.limits.request_time, record.time_left());
        Self { at: Instant::now() + own.min(left), limit: (own < left).then_some(Limit::RequestTime(own)) }
    }

    pub(crate) fn time_left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// If the deadline has passed, records that the request exceeded the limit that determines the deadline.
    pub(crate) fn record_if_passed(self, record: &CallRecord) {
        if let Some(limit) = self.limit.filter(|_| self.time_left().is_zero()) {
            record.record_request_limit(limit);
        }
    }
}

/// The time limits for receiving a response body.
pub(crate) struct ResponseTimes {
    /// Deadline for receiving the whole body.
    pub(crate) end: Deadline,
    /// Maximum time between two consecutive pieces of the body.
    pub(crate) between: Duration,
}

/// The body of a response, with limits on its size and on the time for receiving it. The agent's secrets are removed
/// from the body.
pub(crate) struct ResponseBody {
    body: Incoming,
    left: usize,
    /// Removes the agent's secrets from the body. `None` means that the agent has no secrets.
    secrets: Option<RedactionStream>,
    times: ResponseTimes,
    alarm: Pin<Box<Sleep>>,
    ended: bool,
    number: RequestNumber,
    record: Arc<CallRecord>,
    /// The connection from which the body is read. None after the body has ended.
    lease: Option<Lease>,
}

impl ResponseBody {
    pub(crate) fn new(
        body: Incoming,
        times: ResponseTimes,
        (number, record): (RequestNumber, Arc<CallRecord>),
    ) -> Self {
        let alarm = Box::pin(tokio::time::sleep_until(times.next()));
        let left = record.limits.response_body;
        let redaction = record.secrets.redaction();
        let secrets = (!redaction.is_empty()).then(|| redaction.stream(Replacement::Stars, Edges::Cut));
        Self { body, left, secrets, times, alarm, ended: false, number, record, lease: None }
    }

    /// Sets the connection from which the body is read. The connection returns to the pool when the whole response has
    /// been read.
    pub(crate) fn with_connection(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    fn end(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.ended = true;
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // A guest that knows the length of the body may drop the body after the last byte, before the end of the stream
        // is reported.
        if self.body.is_end_stream() {
            self.record.answers.response_ended(self.number);
            self.lease.take().into_iter().for_each(Lease::return_to_pool);
        }
    }
}

impl ResponseTimes {
    fn next(&self) -> Instant {
        self.end.at.min(Instant::now() + self.between)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if self.alarm.as_mut().poll(context).is_ready() {
                self.times.end.record_if_passed(&self.record);
                return self.end(Error::HttpResponseTimeout);
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return self.end(error.into()),
                None => {
                    self.ended = true;
                    self.lease.take().into_iter().for_each(Lease::return_to_pool);
                    let last_piece = self.secrets.as_mut().map(RedactionStream::finish).unwrap_or_default();
                    self.record.answers.response_body(self.number, &last_piece);
                    self.record.answers.response_ended(self.number);
                    return Poll::Ready((!last_piece.is_empty()).then(|| Ok(Frame::data(last_piece.into()))));
                }
            };
            let next = self.times.next();
            self.alarm.as_mut().reset(next);
            // Trailers are rare and could contain secrets, so they are dropped.
            let Ok(data) = frame.into_data() else { continue };
            self.record.count_bytes_to_guest(data.len());
            match self.left.checked_sub(data.len()) {
                Some(left) => self.left = left,
                None => {
                    let limit = self.record.limits.response_body;
                    self.record.record_request_limit(Limit::ResponseBody(limit));
                    return self.end(Error::HttpResponseBodySize(Some(limit as u64)));
                }
            }
            let data = match &mut self.secrets {
                Some(secrets) => secrets.push(&data).into(),
                None => data,
            };
            if !data.is_empty() {
                self.record.answers.response_body(self.number, &data);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}
