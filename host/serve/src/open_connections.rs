//! The open connections of the server, of which there is a maximum number (row 25). If it is reached, a connection that does
//! nothing useful is closed for the next client.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The open connections. All clones share them.
#[derive(Clone)]
pub(crate) struct OpenConnections(Arc<Shared>);

struct Shared {
    max: usize,
    state: Mutex<State>,
    /// Notified when a connection was closed, or can be closed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    last_id: u64,
    open: HashMap<u64, Arc<Activity>>,
}

/// What a connection does.
pub(crate) struct Activity {
    peer: Option<IpAddr>,
    /// Time at which the connection was opened, or at which its last request began or ended.
    since: Mutex<Instant>,
    /// Number of requests whose answers are not complete.
    requests: AtomicUsize,
    /// Whether the open request has a valid token.
    has_token: AtomicBool,
    /// Cancelled when the connection must be closed for another client.
    close: CancellationToken,
    connections: OpenConnections,
}

/// Time that a client has for the next step, before its connection counts as stale.
const FRESH: Duration = Duration::from_secs(1);

/// Time for which no connection is closed for another client, so that many clients that connect in the same moment can all send
/// their requests. With 512 connections, a client that opens connections without end therefore delays others only if it opens
/// more than 2,000 per second.
const GRACE: Duration = Duration::from_millis(250);

/// Which connections are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// No request is open for a while: the client has sent nothing, or only a part of the headers, or it may send another request.
    StaleIdle,
    /// A request without a valid token is open for a while: its body has not arrived completely, or its answer was not read.
    StaleWithoutToken,
    /// The client has just connected, or has just received an answer.
    FreshIdle,
    /// The client has just sent a request without a valid token.
    FreshWithoutToken,
    /// The open request has a valid token. Such a connection is never closed for another client.
    WithToken,
}

impl OpenConnections {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Shared { max, state: Mutex::default(), changed: Notify::new() }))
    }

    /// Adds a connection of this client. If there are too many, another connection that does nothing useful is closed first, or
    /// the method waits until there is one.
    pub(crate) async fn add(&self, peer: Option<IpAddr>) -> OpenConnection {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.try_add(peer) {
                Ok(connection) => return connection,
                Err(Some(wait)) => {
                    // Whatever happens first.
                    let _ = tokio::time::timeout(wait, changed).await;
                }
                Err(None) => changed.await,
            }
        }
    }

    /// Adds a connection, or returns the time until another one may be closed for it. `None` means that none may be closed.
    fn try_add(&self, peer: Option<IpAddr>) -> Result<OpenConnection, Option<Duration>> {
        let mut state = self.state();
        if state.open.len() >= self.0.max {
            let victim = state.least_useful()?;
            if let Some(activity) = state.open.remove(&victim) {
                activity.close.cancel();
            }
        }
        state.last_id += 1;
        let id = state.last_id;
        let activity = Arc::new(Activity {
            peer,
            since: Mutex::new(Instant::now()),
            requests: AtomicUsize::new(0),
            has_token: AtomicBool::new(false),
            close: CancellationToken::new(),
            connections: self.clone(),
        });
        state.open.insert(id, activity.clone());
        Ok(OpenConnection { id, activity })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the connection that is closed first. Among connections of the same use, it belongs to the address with the most
    /// connections, and has been open for the longest time. If none may be closed yet, the error is the time until one may be.
    fn least_useful(&self) -> Result<u64, Option<Duration>> {
        let mut of_peer: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for activity in self.open.values() {
            *of_peer.entry(activity.peer).or_default() += 1;
        }
        let order = |activity: &Activity| {
            (activity.in_use(), std::cmp::Reverse(of_peer.get(&activity.peer).copied()), activity.since())
        };
        let closable = self.open.iter().map(|(id, activity)| (order(activity), *id));
        let closable: Vec<_> = closable.filter(|((used, ..), _)| *used < Use::WithToken).collect();
        let age = |(_, _, since): &(Use, _, Instant)| since.elapsed();
        let in_time = closable.iter().filter(|(order, _)| age(order) >= GRACE);
        let oldest = || closable.iter().map(|(order, _)| age(order)).max();
        in_time.min().map(|(_, id)| *id).ok_or_else(|| Some(GRACE.saturating_sub(oldest()?)))
    }
}

impl Activity {
    fn in_use(&self) -> Use {
        let is_fresh = self.since().elapsed() < FRESH;
        match (self.requests.load(Ordering::Acquire), self.has_token.load(Ordering::Acquire)) {
            (0, _) if is_fresh => Use::FreshIdle,
            (0, _) => Use::StaleIdle,
            (_, false) if is_fresh => Use::FreshWithoutToken,
            (_, false) => Use::StaleWithoutToken,
            (_, true) => Use::WithToken,
        }
    }

    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_step(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Notes that the open request has a valid token.
    pub(crate) fn note_token(&self) {
        self.has_token.store(true, Ordering::Release);
    }

    /// Counts a request until the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>) -> OpenRequest {
        self.has_token.store(false, Ordering::Release);
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.note_step();
        OpenRequest(self.clone())
    }
}

/// An open connection, which counts until it is dropped.
pub(crate) struct OpenConnection {
    id: u64,
    pub(crate) activity: Arc<Activity>,
}

impl OpenConnection {
    /// Waits until the connection must be closed for another client.
    pub(crate) fn must_close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.activity.close.clone().cancelled_owned()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let connections = &self.activity.connections;
        connections.state().open.remove(&self.id);
        connections.0.changed.notify_one();
    }
}

/// A request whose answer is not complete.
pub(crate) struct OpenRequest(Arc<Activity>);

/// The body of an answer, which ends the request when it is dropped.
pub(crate) struct CountedBody {
    body: Body,
    _request: OpenRequest,
}

impl OpenRequest {
    pub(crate) fn with_body(self, body: Body) -> CountedBody {
        CountedBody { body, _request: self }
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        self.0.note_step();
        self.0.connections.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Lets this time pass for all connections.
    fn age(connections: &OpenConnections, time: Duration) {
        for activity in connections.state().open.values() {
            *activity.since.lock().unwrap() -= time;
        }
    }

    /// Row 25: an idle connection is closed before one with a request, one without a token before one with a token, and the
    /// client with the most connections loses one first.
    #[tokio::test]
    async fn row_25_the_least_useful_connection_is_closed() {
        let connections = OpenConnections::new(4);
        let add = |last| connections.add(address(last)).now_or_never();
        let few = add(1).expect("there is room");
        let many = [add(2).expect("room"), add(2).expect("room"), add(2).expect("room")];
        let is_closed = |connection: &OpenConnection| connection.activity.close.is_cancelled();
        assert!(add(3).is_none(), "all have just connected");
        age(&connections, GRACE);
        let next = add(3).expect("an idle connection is closed");
        assert!(is_closed(&many[0]) && !is_closed(&many[1]) && !is_closed(&few), "the oldest of the largest client");
        let requests: Vec<_> = [&few, &many[1], &many[2], &next].map(|open| open.activity.begin_request()).into();
        for open in [&few, &many[1], &next] {
            open.activity.has_token.store(true, Ordering::Release);
        }
        age(&connections, GRACE);
        let last = add(3).expect("a connection without a token is closed");
        assert!(is_closed(&many[2]) && !is_closed(&many[1]));
        let request = last.activity.begin_request();
        last.activity.has_token.store(true, Ordering::Release);
        assert!(add(4).is_none(), "nothing may be closed");
        drop(request);
        age(&connections, GRACE);
        assert!(add(4).is_some() && is_closed(&last), "its request has ended");
        drop(requests);
    }

    /// Row 25: a client that has just connected keeps its connection if another one does nothing for a while, whatever it has sent.
    #[test]
    fn row_25_a_new_connection_is_closed_last() {
        let connections = OpenConnections::new(2);
        let add = || connections.add(None).now_or_never().expect("there is room");
        let is_closed = |connection: &OpenConnection| connection.activity.close.is_cancelled();
        let (slow, new) = (add(), add());
        let request = slow.activity.begin_request();
        age(&connections, GRACE);
        let next = add();
        assert!(is_closed(&new) && !is_closed(&slow), "both are fresh, and one has a request");
        drop((request, slow, new, next));
        let (slow, new) = (add(), add());
        let _request = slow.activity.begin_request();
        *slow.activity.since.lock().unwrap() -= FRESH;
        let _next = add();
        assert!(is_closed(&slow) && !is_closed(&new), "the request without a token takes too long");
    }

    /// Row 25: a client waits until there is room, and a connection that was closed for another one is not counted twice.
    #[tokio::test]
    async fn row_25_a_client_waits_for_room() {
        let connections = OpenConnections::new(1);
        let first = connections.add(None).await;
        let request = first.activity.begin_request();
        first.activity.has_token.store(true, Ordering::Release);
        let mut waiting = Box::pin(connections.add(None));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(request);
        let second = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.expect("there is room");
        first.must_close().await;
        drop(first);
        assert_eq!(connections.state().open.len(), 1);
        drop(second);
        assert_eq!(connections.state().open.len(), 0);
    }
}
