//! Bodies that end: what a guest sends and what it is answered, each with its bound.

use super::method_field::MethodFieldSearch;
use super::pool::Lease;
use super::request_rules::BodySize;
use crate::answers::RequestNumber;
use crate::grants::GrantAdvice;
use crate::limits::Limit;
use crate::record::{CallRecord, lock};
use agent_core::redaction::{Edges, RedactionStream, Replacement};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

/// What a guest sends, to its bound.
pub(crate) struct Question {
    asked: Arc<Mutex<Asked>>,
    may_have: MayHave,
    left: usize,
    number: RequestNumber,
    record: Arc<CallRecord>,
}

/// Whether a request has a body at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayHave {
    Body,
    Nothing,
}

/// What is known of a guest's body before it is read.
pub(crate) fn size_of(body: &WasiBody) -> BodySize {
    if body.size_hint().lower() > 0 { BodySize::Something } else { BodySize::Unknown }
}

/// The guest's body, and what came of it so far.
struct Asked {
    body: WasiBody,
    yielded: bool,
    ended: bool,
    /// Where no field of the body may name another method.
    methods: Option<MethodGuard>,
}

/// Ends a body in which a field names another method than the one that is granted.
pub(crate) struct MethodGuard {
    search: MethodFieldSearch,
    /// What is denied then.
    denial: (String, GrantAdvice),
}

impl MethodGuard {
    pub(crate) fn new(denial: (String, GrantAdvice)) -> Self {
        Self { search: MethodFieldSearch::default(), denial }
    }
}

impl Question {
    pub(crate) fn new(
        body: WasiBody,
        (may_have, methods): (MayHave, Option<MethodGuard>),
        (number, record): (RequestNumber, Arc<CallRecord>),
    ) -> Self {
        let asked = Asked { body, yielded: false, ended: false, methods };
        Self { asked: Arc::new(Mutex::new(asked)), may_have, left: record.limits.request_body, number, record }
    }

    /// The same once more, for as long as nothing of it has been taken.
    pub(crate) fn again(&self) -> Self {
        let (asked, record) = (Arc::clone(&self.asked), Arc::clone(&self.record));
        Self { asked, may_have: self.may_have, left: record.limits.request_body, number: self.number, record }
    }

    /// Whether nothing of it has been taken, to send it or to lose it.
    pub(crate) fn is_whole(&self) -> bool {
        !lock(&self.asked).yielded
    }
}

impl Body for Question {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.may_have == MayHave::Nothing {
            return Poll::Ready(None);
        }
        let mut asked = lock(&self.asked);
        if asked.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut asked.body).poll_frame(context));
        (asked.yielded, asked.ended) = (asked.yielded || frame.is_some(), frame.is_none());
        if let (Some(Ok(frame)), Some(guard)) = (&frame, &mut asked.methods)
            && frame.data_ref().is_some_and(|data| guard.search.finds(data))
        {
            let (thing, advice) = guard.denial.clone();
            (asked.ended, asked.methods) = (true, None);
            self.record.deny(thing, advice);
            return Poll::Ready(Some(Err(Error::HttpRequestDenied)));
        }
        drop(asked);
        if let Some(Ok(frame)) = &frame {
            let data = frame.data_ref();
            data.iter().for_each(|data| self.record.answers.sent(self.number, data));
            let size = data.map_or(0, Bytes::len);
            self.record.take(size);
            match self.left.checked_sub(size) {
                Some(left) => self.left = left,
                None => {
                    let limit = self.record.limits.request_body;
                    self.record.cut_request(Limit::RequestBody(limit));
                    return Poll::Ready(Some(Err(Error::HttpRequestBodySize(Some(limit as u64)))));
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let asked = lock(&self.asked);
        self.may_have == MayHave::Nothing || asked.ended || asked.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.may_have {
            MayHave::Nothing => SizeHint::with_exact(0),
            MayHave::Body => lock(&self.asked).body.size_hint(),
        }
    }
}

/// When a request must be over.
#[derive(Clone, Copy)]
pub(crate) struct End {
    at: Instant,
    /// The limit that says so; None: the call's own end comes first.
    limit: Option<Limit>,
}

impl End {
    /// Of a request that begins now.
    pub(crate) fn of(record: &CallRecord) -> Self {
        let (own, left) = (record.limits.request_time, record.time_left());
        Self { at: Instant::now() + own.min(left), limit: (own < left).then_some(Limit::RequestTime(own)) }
    }

    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Notes the limit, where it is what ended the request.
    pub(crate) fn note(self, record: &CallRecord) {
        if let Some(limit) = self.limit.filter(|_| self.left().is_zero()) {
            record.cut_request(limit);
        }
    }
}

/// When a body must have come.
pub(crate) struct Times {
    /// All of it.
    pub(crate) end: End,
    /// Longest wait for its next piece.
    pub(crate) between: Duration,
}

/// What the server says, to its bound and in its time, without anything that the agent keeps secret.
pub(crate) struct Answer {
    body: Incoming,
    left: usize,
    /// None where nothing is secret.
    secrets: Option<RedactionStream>,
    times: Times,
    alarm: Pin<Box<Sleep>>,
    ended: bool,
    number: RequestNumber,
    record: Arc<CallRecord>,
    /// The connection that it comes over, until its end.
    lease: Option<Lease>,
}

impl Answer {
    pub(crate) fn new(body: Incoming, times: Times, (number, record): (RequestNumber, Arc<CallRecord>)) -> Self {
        let alarm = Box::pin(tokio::time::sleep_until(times.next()));
        let left = record.limits.response_body;
        let redaction = record.secrets.redaction();
        let secrets = (!redaction.is_empty()).then(|| redaction.stream(Replacement::Stars, Edges::Cut));
        Self { body, left, secrets, times, alarm, ended: false, number, record, lease: None }
    }

    /// Over this connection, which is kept where all of the answer is read.
    pub(crate) fn over(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    fn end(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.ended = true;
        self.lease = None;
        Poll::Ready(Some(Err(error)))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A guest that knows the length does not ask for the end.
        if self.body.is_end_stream() {
            self.record.answers.ended(self.number);
            self.lease.take().into_iter().for_each(Lease::give_back);
        }
    }
}

impl Times {
    fn next(&self) -> Instant {
        self.end.at.min(Instant::now() + self.between)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if self.alarm.as_mut().poll(context).is_ready() {
                self.times.end.note(&self.record);
                return self.end(Error::HttpResponseTimeout);
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return self.end(error.into()),
                None => {
                    self.ended = true;
                    self.lease.take().into_iter().for_each(Lease::give_back);
                    let rest = self.secrets.as_mut().map(RedactionStream::finish).unwrap_or_default();
                    self.record.answers.given(self.number, &rest);
                    self.record.answers.ended(self.number);
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
                }
            };
            let next = self.times.next();
            self.alarm.as_mut().reset(next);
            // Trailers are seldom, and a secret in one would have to be looked for: they are left out.
            let Ok(data) = frame.into_data() else { continue };
            self.record.give(data.len());
            match self.left.checked_sub(data.len()) {
                Some(left) => self.left = left,
                None => {
                    let limit = self.record.limits.response_body;
                    self.record.cut_request(Limit::ResponseBody(limit));
                    return self.end(Error::HttpResponseBodySize(Some(limit as u64)));
                }
            }
            let data = match &mut self.secrets {
                Some(secrets) => secrets.push(&data).into(),
                None => data,
            };
            if !data.is_empty() {
                self.record.answers.given(self.number, &data);
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}
