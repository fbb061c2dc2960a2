//! The grants of a running call, as far as they still hold: a grant that is revoked while the call runs ends with the next host
//! call (P10, row 48).

use crate::grants::Grants;
use crate::record::lock;
use std::sync::{Arc, Mutex};

/// What an agent grants at this moment. Implemented by whoever holds the agent's configuration.
pub trait CurrentGrants: Send + Sync {
    /// Another number whenever anything may have changed.
    fn version(&self) -> u64;

    /// The grants of the plugin. None: it is granted nothing.
    fn grants(&self, plugin: &str) -> Option<Grants>;
}

/// The grants that a call began with, narrowed by every revocation since.
pub(crate) struct GrantsInForce {
    plugin: String,
    current: Option<Arc<dyn CurrentGrants>>,
    held: Mutex<Held>,
}

struct Held {
    /// None: the grants were not compared with the current ones yet.
    version: Option<u64>,
    grants: Arc<Grants>,
}

impl GrantsInForce {
    pub(crate) fn new(plugin: &str, begun_with: Arc<Grants>, current: Option<Arc<dyn CurrentGrants>>) -> Self {
        let held = Mutex::new(Held { version: None, grants: begun_with });
        Self { plugin: plugin.to_owned(), current, held }
    }

    /// What holds now. A grant that was revoked during the call does not come back to it.
    pub(crate) fn now(&self) -> Arc<Grants> {
        let mut held = lock(&self.held);
        if let Some(current) = &self.current {
            let version = current.version();
            if held.version != Some(version) {
                let granted = current.grants(&self.plugin).unwrap_or_default();
                let mut narrowed = held.grants.within(&granted);
                if held.grants.http.iter().all(|pattern| granted.http.contains(pattern)) {
                    narrowed.http.clone_from(&held.grants.http);
                }
                // Connections are kept for as long as the grants are the same object.
                if narrowed != *held.grants {
                    held.grants = Arc::new(narrowed);
                }
                held.version = Some(version);
            }
        }
        Arc::clone(&held.grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::TreeGrant;
    use crate::manifest::Access;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Agent {
        version: AtomicU64,
        grants: Mutex<Grants>,
    }

    impl CurrentGrants for Agent {
        fn version(&self) -> u64 {
            self.version.load(Ordering::SeqCst)
        }

        fn grants(&self, plugin: &str) -> Option<Grants> {
            (plugin == "files").then(|| lock(&self.grants).clone())
        }
    }

    fn tree(access: Access) -> Grants {
        let trees = vec![TreeGrant { host: "/srv".into(), guest: ".".to_owned(), access }];
        Grants { trees, key_value: Some(5), ..Grants::default() }
    }

    // Row 48: a revocation holds at once, and what is granted anew later is the next call's.
    #[test]
    fn a_revocation_holds_for_the_rest_of_the_call() {
        let agent = Arc::new(Agent { version: AtomicU64::new(0), grants: Mutex::new(tree(Access::ReadWrite)) });
        let change = |grants: Grants| {
            *lock(&agent.grants) = grants;
            agent.version.fetch_add(1, Ordering::SeqCst);
        };
        let begun_with = Arc::new(tree(Access::ReadWrite));
        let in_force = GrantsInForce::new("files", Arc::clone(&begun_with), Some(agent.clone()));
        assert_eq!(*in_force.now(), *begun_with);
        change(Grants { key_value: None, ..tree(Access::Read) });
        assert_eq!(*in_force.now(), Grants { key_value: None, ..tree(Access::Read) });
        change(tree(Access::ReadWrite));
        assert_eq!(*in_force.now(), Grants { key_value: None, ..tree(Access::Read) }, "it does not come back");
        change(Grants::default());
        assert_eq!(*in_force.now(), Grants::default());
        assert_eq!(*GrantsInForce::new("other", begun_with, Some(agent)).now(), Grants::default());
    }
}
