//! The grants that apply to a running call. If a grant is revoked during the call, the revocation takes effect
//! when the guest calls the next host function (P10, row 48).

use super::Grants;
use crate::sync::lock;
use std::sync::{Arc, Mutex};

/// Provides the current grants of an agent. The owner of the agent's configuration implements this trait.
pub trait CurrentGrants: Send + Sync {
    /// A number that changes each time a grant may have changed.
    fn version(&self) -> u64;

    /// The current grants of the plugin. `None` means that nothing is granted to the plugin.
    fn grants(&self, plugin: &str) -> Option<Grants>;
}

/// The grants of a running call. Grants that are revoked during the call are removed.
pub(crate) struct LiveGrants {
    plugin: String,
    current: Option<Arc<dyn CurrentGrants>>,
    narrowed: Mutex<NarrowedGrants>,
}

struct NarrowedGrants {
    /// Version of the agent's current grants when the call's grants were last compared with them. `None` means that the
    /// grants have not been compared yet.
    version: Option<u64>,
    grants: Arc<Grants>,
}

impl LiveGrants {
    pub(crate) fn new(plugin: &str, initial_grants: Arc<Grants>, current: Option<Arc<dyn CurrentGrants>>) -> Self {
        let narrowed = Mutex::new(NarrowedGrants { version: None, grants: initial_grants });
        Self { plugin: plugin.to_owned(), current, narrowed }
    }

    /// Returns the grants that are in force now. A grant that was revoked during the call stays revoked until the call
    /// ends, even if the user restores the grant earlier.
    pub(crate) fn now(&self) -> Arc<Grants> {
        let mut last = lock(&self.narrowed);
        if let Some(current) = &self.current {
            let version = current.version();
            if last.version != Some(version) {
                let granted = current.grants(&self.plugin).unwrap_or_default();
                let mut narrowed = last.grants.within(&granted);
                if last.grants.http.iter().all(|pattern| granted.http.contains(pattern)) {
                    narrowed.http.clone_from(&last.grants.http);
                }
                // If the grants are unchanged, the same object is returned, because the connection pool closes
                // connections whose grants object no longer exists.
                if narrowed != *last.grants {
                    last.grants = Arc::new(narrowed);
                }
                last.version = Some(version);
            }
        }
        Arc::clone(&last.grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::TreeGrant;
    use crate::grants::manifest::Access;
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

    // Row 48: a revocation takes effect immediately. A grant that is restored later applies only to later calls.
    #[test]
    fn row_48_revocation_lasts_for_the_rest_of_the_call() {
        let agent = Arc::new(Agent { version: AtomicU64::new(0), grants: Mutex::new(tree(Access::ReadWrite)) });
        let change = |grants: Grants| {
            *lock(&agent.grants) = grants;
            agent.version.fetch_add(1, Ordering::SeqCst);
        };
        let initial_grants = Arc::new(tree(Access::ReadWrite));
        let in_force = LiveGrants::new("files", Arc::clone(&initial_grants), Some(agent.clone()));
        assert_eq!(*in_force.now(), *initial_grants);
        change(Grants { key_value: None, ..tree(Access::Read) });
        assert_eq!(*in_force.now(), Grants { key_value: None, ..tree(Access::Read) });
        change(tree(Access::ReadWrite));
        assert_eq!(
            *in_force.now(),
            Grants { key_value: None, ..tree(Access::Read) },
            "a restored grant does not apply to the running call"
        );
        change(Grants::default());
        assert_eq!(*in_force.now(), Grants::default());
        assert_eq!(*LiveGrants::new("other", initial_grants, Some(agent)).now(), Grants::default());
    }
}
