//! Records that a guest looked up its preopened directories or its environment variables. WASI cannot return a "denied"
//! error when a guest looks up directories or variables. Therefore, if a guest looked up its directories, each
//! directory that its manifest requests and that is not granted counts as denied. The same applies to variables (P6,
//! O3). If the host inferred from a component's imports that the component needs a grant, the missing grant counts as a
//! denial only if the call fails.

use super::CallRecord;
use crate::grants::UnmetNeed;
use crate::limits::Limit;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether one call has looked up its preopened directories, and whether it has looked up its environment variables.
#[derive(Default)]
pub(crate) struct MissedLookups {
    trees: AtomicBool,
    environment: AtomicBool,
}

impl MissedLookups {
    /// Records that the guest asked for its granted directories although none is granted.
    pub(crate) fn note_no_trees(&self) {
        self.trees.store(true, Ordering::Relaxed);
    }

    /// Records that the guest read its environment.
    pub(crate) fn note_environment(&self) {
        self.environment.store(true, Ordering::Relaxed);
    }

    /// Whether the guest looked up the directories or variables that would meet this need.
    fn has_looked_up(&self, unmet: &UnmetNeed) -> bool {
        let looked = match unmet.thing.as_str() {
            "reading files" | "reading and writing files" => &self.trees,
            thing if thing.starts_with("the environment variable ") => &self.environment,
            _ => return false,
        };
        looked.load(Ordering::Relaxed)
    }
}

impl CallRecord {
    /// Handles an error that the guest's function returned: records denials for the guest's lookups. If a limit stopped
    /// one of the guest's requests, returns the limit as an error.
    pub(crate) fn failed(&self) -> Result<(), Limit> {
        self.note_denials();
        self.request_limit().map_or(Ok(()), Err)
    }

    /// Records a denial for each need of the plugin that the call looked up although the need is not granted.
    pub(crate) fn note_denials(&self) {
        self.note_lookups(&self.unmet);
    }

    /// Records a denial for each need in `unmet` whose variable, key or folder the call looked up.
    pub(crate) fn note_lookups(&self, unmet: &[UnmetNeed]) {
        for unmet in unmet.iter().filter(|unmet| self.missed_lookups.has_looked_up(unmet)) {
            self.deny(unmet.thing.clone(), unmet.advice.clone());
        }
    }
}
