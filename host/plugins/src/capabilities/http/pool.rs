//! The pool of idle connections (P8). Each connection belongs to one plugin of one agent, to one origin, and to the
//! address that was checked when the connection was opened.

use super::body::RequestBody;
use crate::grants::Grants;
use crate::grants::http_pattern::HttpPattern;
use crate::sync::lock;
use hyper::client::conn::http1::SendRequest;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use url::Url;
use wasmtime_wasi::runtime::{AbortOnDropJoinHandle, spawn};

/// Time after which the host closes an idle connection. Servers usually wait longer than this time before they close an
/// idle connection.
const IDLE_TIME: Duration = Duration::from_secs(15);
/// Interval at which the pool checks whether the grants under which each connection was opened are still in force.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of idle connections of one plugin of one agent.
const MAX_IDLE_PER_PLUGIN: usize = 8;
/// Maximum number of idle connections of all plugins together.
const MAX_IDLE: usize = 64;
/// A server is unlikely to have closed a connection that was idle for less than this time. Connections that were idle
/// for a longer time are used only for requests that may be sent twice.
const FRESH_TIME: Duration = Duration::from_secs(2);

/// The agent and the plugin to which a connection belongs, and the origin to which the connection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) agent: String,
    pub(crate) plugin: String,
    /// Scheme, host and port of the server.
    pub(crate) origin: String,
}

/// An open connection that one request uses. Dropping the lease without returning it to the pool closes the connection.
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<RequestBody>,
    owner: Owner,
    address: IpAddr,
    grants: Weak<Grants>,
    pool: Weak<Pool>,
    _connection: AbortOnDropJoinHandle<()>,
}

/// Whether a request may be sent again if the first attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeatable {
    Yes,
    No,
}

/// Idle connections, oldest first.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<IdleConnection>>);

struct IdleConnection {
    lease: Lease,
    since: Instant,
    /// Task that closes the connection when the connection has been idle for too long.
    _sweeper: AbortOnDropJoinHandle<()>,
}

impl Owner {
    pub(crate) fn new(agent: &str, plugin: &str, url: &Url) -> Self {
        Self { agent: agent.to_owned(), plugin: plugin.to_owned(), origin: url.origin().ascii_serialization() }
    }
}

impl Lease {
    pub(crate) fn new(
        (sender, connection): (SendRequest<RequestBody>, AbortOnDropJoinHandle<()>),
        (owner, address): (Owner, IpAddr),
        grants: &Arc<Grants>,
        pool: &Arc<Pool>,
    ) -> Self {
        let (grants, pool) = (Arc::downgrade(grants), Arc::downgrade(pool));
        Self { sender, owner, address, grants, pool, _connection: connection }
    }

    /// Returns the connection to the pool after the whole response was read.
    pub(crate) fn return_to_pool(self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.put(self);
        }
    }

    fn is_dead(&self) -> bool {
        self.sender.is_closed() || self.grants.strong_count() == 0
    }
}

impl Pool {
    /// Takes an idle connection of this owner from the pool. At least one of the patterns must still allow the address
    /// of the connection.
    pub(crate) async fn take(&self, owner: &Owner, patterns: &[HttpPattern], repeatable: Repeatable) -> Option<Lease> {
        loop {
            let mut lease = self.next(owner, patterns, repeatable)?;
            // A connection is not ready for the next request immediately after a response. `ready` waits until the
            // connection is ready, and returns an error if the server has closed the connection.
            if let Ok(Ok(())) = tokio::time::timeout(SWEEP_INTERVAL, lease.sender.ready()).await {
                return Some(lease);
            }
        }
    }

    fn next(&self, owner: &Owner, patterns: &[HttpPattern], repeatable: Repeatable) -> Option<Lease> {
        let mut idle = lock(&self.0);
        // The most recently used connection is taken first, because it is the least likely to have been closed by
        // the server.
        let index = idle.iter().rposition(|idle| {
            let is_usable = repeatable == Repeatable::Yes || idle.since.elapsed() < FRESH_TIME;
            let is_admitted = patterns.iter().any(|pattern| pattern.admits(idle.lease.address).is_ok());
            idle.lease.owner == *owner && is_usable && is_admitted
        })?;
        Some(idle.remove(index).lease)
    }

    fn put(self: &Arc<Self>, lease: Lease) {
        if lease.is_dead() {
            return;
        }
        let since = Instant::now();
        let pool = Arc::downgrade(self);
        let sweeper = spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let Some(pool) = pool.upgrade() else { return };
                pool.sweep();
            }
        });
        let mut idle = lock(&self.0);
        let is_of_owner = |idle: &IdleConnection| {
            let owner = &idle.lease.owner;
            owner.agent == lease.owner.agent && owner.plugin == lease.owner.plugin
        };
        let surplus = if idle.iter().filter(|idle| is_of_owner(idle)).count() >= MAX_IDLE_PER_PLUGIN {
            idle.iter().position(is_of_owner)
        } else {
            (idle.len() >= MAX_IDLE).then_some(0)
        };
        let closed = surplus.map(|oldest| idle.remove(oldest));
        idle.push(IdleConnection { lease, since, _sweeper: sweeper });
        drop(idle);
        drop(closed);
    }

    /// Closes connections that were idle for too long, that the server has closed, or whose grants are no longer
    /// in force.
    fn sweep(&self) {
        let mut idle = lock(&self.0);
        let (dead, alive) = idle.drain(..).partition(|idle| idle.lease.is_dead() || idle.since.elapsed() >= IDLE_TIME);
        *idle = alive;
        drop(idle);
        drop::<Vec<IdleConnection>>(dead);
    }
}
