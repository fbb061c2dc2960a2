//! Connections that are kept for the next request (P8): each for one plugin of one agent, for the origin that it was made
//! for, and for the address that was checked when it was made.

use super::body::Question;
use super::pattern::HttpPattern;
use crate::grants::Grants;
use crate::record::lock;
use hyper::client::conn::http1::SendRequest;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use url::Url;
use wasmtime_wasi::runtime::{AbortOnDropJoinHandle, spawn};

/// How long a connection waits for its next request. Servers usually wait longer.
const IDLE: Duration = Duration::from_secs(15);
/// How often it is looked whether the grants that it was made under are still anybody's.
const LOOK: Duration = Duration::from_millis(500);
/// Connections that wait, of one agent's plugin and of all.
const OF_ONE: usize = 8;
const OF_ALL: usize = 64;
/// A connection that has waited for no longer is not about to be closed by the server. Others are taken only for requests
/// that may be sent twice.
const FRESH: Duration = Duration::from_secs(2);

/// Whose a connection is, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) agent: String,
    pub(crate) plugin: String,
    /// Scheme, host and port.
    pub(crate) origin: String,
}

/// An open connection that somebody uses. Dropping it closes it.
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<Question>,
    owner: Owner,
    address: IpAddr,
    grants: Weak<Grants>,
    pool: Weak<Pool>,
    _connection: AbortOnDropJoinHandle<()>,
}

/// Whether a request may be sent a second time where the first one was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeatable {
    Yes,
    No,
}

/// Connections that wait for their next request.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Idle>>);

struct Idle {
    lease: Lease,
    since: Instant,
    /// Closes it in time.
    _keeper: AbortOnDropJoinHandle<()>,
}

impl Owner {
    pub(crate) fn new(agent: &str, plugin: &str, url: &Url) -> Self {
        Self { agent: agent.to_owned(), plugin: plugin.to_owned(), origin: url.origin().ascii_serialization() }
    }
}

impl Lease {
    pub(crate) fn new(
        (sender, connection): (SendRequest<Question>, AbortOnDropJoinHandle<()>),
        (owner, address): (Owner, IpAddr),
        grants: &Arc<Grants>,
        pool: &Arc<Pool>,
    ) -> Self {
        let (grants, pool) = (Arc::downgrade(grants), Arc::downgrade(pool));
        Self { sender, owner, address, grants, pool, _connection: connection }
    }

    /// The answer has been read to its end: the connection may be used again.
    pub(crate) fn give_back(self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put(self);
        }
    }

    fn is_dead(&self) -> bool {
        self.sender.is_closed() || self.grants.strong_count() == 0
    }
}

impl Pool {
    /// A connection of this owner that one of these patterns would still admit.
    pub(crate) async fn take(&self, owner: &Owner, patterns: &[HttpPattern], repeatable: Repeatable) -> Option<Lease> {
        loop {
            let mut lease = self.next(owner, patterns, repeatable)?;
            // After an answer's end its connection needs a moment; where the server has closed it, this says so.
            if let Ok(Ok(())) = tokio::time::timeout(LOOK, lease.sender.ready()).await {
                return Some(lease);
            }
        }
    }

    fn next(&self, owner: &Owner, patterns: &[HttpPattern], repeatable: Repeatable) -> Option<Lease> {
        let mut idle = lock(&self.0);
        // The latest is the one that the server is least about to close.
        let place = idle.iter().rposition(|idle| {
            let is_fit = repeatable == Repeatable::Yes || idle.since.elapsed() < FRESH;
            let is_admitted = patterns.iter().any(|pattern| pattern.admits(idle.lease.address).is_ok());
            idle.lease.owner == *owner && is_fit && is_admitted
        })?;
        Some(idle.remove(place).lease)
    }

    fn put(self: &Arc<Self>, lease: Lease) {
        if lease.is_dead() {
            return;
        }
        let since = Instant::now();
        let pool = Arc::downgrade(self);
        let keeper = spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(pool) = pool.upgrade() else { return };
                pool.sweep();
            }
        });
        let mut idle = lock(&self.0);
        let is_of_owner = |idle: &Idle| {
            let owner = &idle.lease.owner;
            owner.agent == lease.owner.agent && owner.plugin == lease.owner.plugin
        };
        let surplus = if idle.iter().filter(|idle| is_of_owner(idle)).count() >= OF_ONE {
            idle.iter().position(is_of_owner)
        } else {
            (idle.len() >= OF_ALL).then_some(0)
        };
        let closed = surplus.map(|oldest| idle.remove(oldest));
        idle.push(Idle { lease, since, _keeper: keeper });
        drop(idle);
        drop(closed);
    }

    /// Closes what has waited too long, what the server has closed, and what was made under grants that are gone.
    fn sweep(&self) {
        let mut idle = lock(&self.0);
        let (dead, alive) = idle.drain(..).partition(|idle| idle.lease.is_dead() || idle.since.elapsed() >= IDLE);
        *idle = alive;
        drop(idle);
        drop::<Vec<Idle>>(dead);
    }
}
