//! Measures the tasks, threads, open handles and memory of this process. The numbers come from the runtime and from
//! `/proc`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The maximum time that this process may take to free resources that are no longer used. Resources that still exist
/// after this time are a leak.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of handles of the store's own files. The store has one writing connection and four reading
/// connections, each of which is opened when it is first needed and has three open files. A connection may
/// have more than three open files while the store opens the connection.
const STORE_HANDLES: usize = 20;
/// The maximum growth of this process's memory that does not count as a leak, in KiB. The allocator does not return
/// free memory immediately, the pool keeps one MiB for each of its 16 slots, and the store fills its page caches. If an
/// attack is repeated 100 times, this maximum is half a MiB for each repeat. A run with all repeats needs
/// `MALLOC_ARENA_MAX=1`, because without this setting, each thread has its own arena, and large schemas fragment the
/// arenas by more than [`MEMORY_KIB`].
const MEMORY_KIB: u64 = 48 * 1024;

/// The resources in use at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) tasks: usize,
    pub(crate) threads: usize,
    /// The number of open handles for each target, without the handles of the store.
    pub(crate) handles: BTreeMap<String, usize>,
    pub(crate) memory_kib: u64,
}

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tasks, threads, handles) = (self.tasks, self.threads, self.count());
        write!(formatter, "{tasks} tasks, {threads} threads, {handles} handles, {} MiB", self.memory_kib / 1024)
    }
}

impl Usage {
    /// Returns the current usage. `store` is the folder of the database.
    pub(crate) fn now(store: &Path) -> Self {
        let mut handles = BTreeMap::new();
        let mut store_handles = 0;
        for entry in std::fs::read_dir("/proc/self/fd").expect("/proc exists").flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            if target.parent() == Some(store) && target.to_string_lossy().contains(".db") {
                store_handles += 1;
                continue;
            }
            // The number of a socket or pipe is left out, because it is different each time.
            let name = target.to_string_lossy().split(":[").next().unwrap_or_default().to_owned();
            *handles.entry(name).or_default() += 1;
        }
        assert!(store_handles <= STORE_HANDLES, "the store has {store_handles} handles");
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc exists");
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("no {key}"));
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("the value is a number")
        };
        let tasks = Handle::current().metrics().num_alive_tasks();
        Self { tasks, threads: number("Threads") as usize, handles, memory_kib: number("RssAnon") }
    }

    fn count(&self) -> usize {
        self.handles.values().sum()
    }

    /// Waits until the numbers of tasks, threads and handles are not higher than in an earlier measurement, and then
    /// checks how much the memory has grown.
    pub(crate) async fn wait_until_settled(&self, row: &str, store: &Path) -> Usage {
        let start = Instant::now();
        loop {
            let now = Usage::now(store);
            if now.tasks <= self.tasks && now.threads <= self.threads && now.count() <= self.count() {
                let growth = now.memory_kib.saturating_sub(self.memory_kib);
                assert!(growth <= MEMORY_KIB, "{row}: memory has grown: {self} before, {now} after");
                return now;
            }
            let new: Vec<_> =
                now.handles.iter().filter(|(name, count)| self.handles.get(*name) != Some(*count)).collect();
            assert!(
                start.elapsed() < SETTLE_TIMEOUT,
                "{row}: not all resources were released: {self} before, {now} after; handles {new:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the usage of resources no longer falls.
    pub(crate) async fn wait_until_quiet(store: &Path) -> Usage {
        let mut before = Usage::now(store);
        loop {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = Usage::now(store);
            if (now.tasks, now.threads, now.count()) >= (before.tasks, before.threads, before.count()) {
                return now;
            }
            before = now;
        }
    }
}
