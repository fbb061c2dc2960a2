//! A family of series: a metric with several combinations of labels. The number of series is bounded, so that names that
//! come from outside, such as the tools of an MCP server, cannot use any amount of memory.

use prometheus::core::Metric;
use prometheus::proto::{LabelPair, MetricFamily, MetricType};
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// Maximum number of series of a family. Without a limit, each new name adds series until the process ends.
const MAX_SERIES: usize = 2_000;
/// The value of all names in the series that counts what has no series of its own.
const OTHER: &str = "other";
/// Maximum number of characters of a label.
const MAX_LABEL_CHARACTERS: usize = 120;
/// A series that did not change for this time is removed if its place is needed, for example because its plugin has a new
/// version. In seconds.
const IDLE_SECONDS: u32 = 3_600;

/// Changes a label before it is shown. It removes secrets.
pub(super) type LabelFilter = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The description of a family.
#[derive(Clone, Copy)]
pub(super) struct Description {
    /// Name of the metric, without the prefix `agent_host_`.
    pub(super) name: &'static str,
    /// What the metric counts, as one sentence.
    pub(super) help: &'static str,
    /// Labels whose values are names. Their values become `other` if there are too many series.
    pub(super) names: &'static [&'static str],
    /// Labels that have few values.
    pub(super) classes: &'static [&'static str],
}

/// The series of one metric.
pub(super) struct Family<M> {
    description: Description,
    kind: MetricType,
    create: fn(&'static str) -> M,
    filter: LabelFilter,
    started: Instant,
    /// Hashes labels as they arrive. The keys are random, so that nobody can choose names whose hashes are equal.
    hasher: RandomState,
    series: RwLock<Series<M>>,
    max_series: usize,
}

/// The series by their labels.
struct Series<M> {
    /// The series by the hash of the labels as they arrive.
    by_hash: HashMap<u64, Arc<OneSeries<M>>, BuildHasherDefault<KeptHash>>,
    /// The series by the labels that are shown.
    by_labels: HashMap<Vec<String>, Arc<OneSeries<M>>>,
}

struct OneSeries<M> {
    labels: Vec<String>,
    metric: M,
    /// Time of the last change, in seconds since the family was created.
    changed: AtomicU32,
}

impl<M> OneSeries<M> {
    fn change<T>(&self, now: u32, change: impl FnOnce(&M) -> T) -> T {
        // Most changes happen in the same second as the last one, and a write would take the value from other processors.
        if self.changed.load(Ordering::Relaxed) != now {
            self.changed.store(now, Ordering::Relaxed);
        }
        change(&self.metric)
    }
}

/// Keeps keys as they are, because they are hashes already.
#[derive(Default)]
struct KeptHash(u64);

impl Hasher for KeptHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<M: Metric> Family<M> {
    pub(super) fn new(
        description: Description,
        (kind, create): (MetricType, fn(&'static str) -> M),
        filter: LabelFilter,
    ) -> Self {
        let series = RwLock::new(Series { by_hash: HashMap::default(), by_labels: HashMap::new() });
        let (started, hasher) = (Instant::now(), RandomState::new());
        Self { description, kind, create, filter, started, hasher, series, max_series: MAX_SERIES }
    }

    /// Changes the series with these labels. `names` and `classes` have the order of the description.
    pub(super) fn with<T>(&self, names: &[&str], classes: &[&str], change: impl FnOnce(&M) -> T) -> T {
        self.with_at(Instant::now(), names, classes, change)
    }

    /// Like [`Family::with`], for several changes at the same time, because reading the clock takes longer than a change.
    pub(super) fn with_at<T>(&self, now: Instant, names: &[&str], classes: &[&str], change: impl FnOnce(&M) -> T) -> T {
        debug_assert_eq!(
            (names.len(), classes.len()),
            (self.description.names.len(), self.description.classes.len()),
            "{}",
            self.description.name
        );
        let hash = self.hasher.hash_one((names, classes));
        let now = u32::try_from(now.saturating_duration_since(self.started).as_secs()).unwrap_or(u32::MAX);
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.by_hash.get(&hash) {
            return series.change(now, change);
        }
        drop(known);
        self.add(hash, (names, classes), now).change(now, change)
    }

    fn add(&self, hash: u64, (names, classes): (&[&str], &[&str]), now: u32) -> Arc<OneSeries<M>> {
        let shown = |label: &&str| -> String { (self.filter)(label).chars().take(MAX_LABEL_CHARACTERS).collect() };
        let mut labels: Vec<String> = names.iter().map(shown).collect();
        labels.extend(classes.iter().map(|class| (*class).to_owned()));
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(existing) = series.by_labels.get(&labels).cloned() {
            // Two names may be shown in the same way. Without the limit, names whose shown forms are equal would use memory.
            if series.by_hash.len() < 2 * self.max_series {
                series.by_hash.insert(hash, existing.clone());
            }
            return existing;
        }
        if series.by_labels.len() >= self.max_series {
            series.remove_idle(now);
        }
        if series.by_labels.len() >= self.max_series {
            labels[..names.len()].fill(OTHER.to_owned());
            // The labels that arrive get no entry, because there may be any number of them.
            return series.get_or_create(labels, now, || (self.create)(self.description.name));
        }
        let added = series.get_or_create(labels, now, || (self.create)(self.description.name));
        series.by_hash.insert(hash, added.clone());
        added
    }

    /// Returns all series in the order of their labels. Returns `None` if there is none.
    pub(super) fn gather(&self) -> Option<MetricFamily> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = series.by_labels.values().cloned().collect();
        drop(series);
        if all.is_empty() {
            return None;
        }
        all.sort_by(|one, other| one.labels.cmp(&other.labels));
        let names: Vec<_> = self.description.names.iter().chain(self.description.classes).copied().collect();
        let metrics = all.iter().map(|series| {
            let mut metric = series.metric.metric();
            let values = series.labels.iter().map(String::as_str);
            metric.set_label(names.iter().copied().zip(values).map(label).collect());
            metric
        });
        let mut family = new_family(self.description.name, self.description.help, self.kind);
        family.set_metric(metrics.collect());
        Some(family)
    }

    /// Sets the maximum number of series.
    #[cfg(test)]
    fn limited_to(mut self, max_series: usize) -> Self {
        self.max_series = max_series;
        self
    }
}

impl<M> Series<M> {
    fn get_or_create(&mut self, labels: Vec<String>, now: u32, create: impl FnOnce() -> M) -> Arc<OneSeries<M>> {
        let new = || Arc::new(OneSeries { labels: labels.clone(), metric: create(), changed: AtomicU32::new(now) });
        self.by_labels.entry(labels.clone()).or_insert_with(new).clone()
    }

    fn remove_idle(&mut self, now: u32) {
        let is_idle = |series: &OneSeries<M>| series.changed.load(Ordering::Relaxed) + IDLE_SECONDS < now;
        self.by_labels.retain(|_, series| !is_idle(series));
        self.by_hash.retain(|_, series| !is_idle(series));
    }
}

/// Returns an empty family. The name gets the prefix of all metrics.
pub(super) fn new_family(name: &str, help: &str, kind: MetricType) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(format!("agent_host_{name}"));
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family
}

pub(super) fn label((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::IntCounter;

    const CALLS: Description = Description { name: "calls", help: "Calls.", names: &["tool"], classes: &["outcome"] };

    fn family() -> Family<IntCounter> {
        let create = |name| IntCounter::new(name, "a test").expect("a valid name");
        let filter: LabelFilter = Arc::new(|label| label.replace("s3cret", "(redacted)"));
        Family::new(CALLS, (MetricType::COUNTER, create), filter)
    }

    fn shown(family: &Family<IntCounter>) -> Vec<(String, f64)> {
        let gathered = family.gather().map(|mut family| family.take_metric()).unwrap_or_default();
        let text = |metric: &prometheus::proto::Metric| {
            let labels: Vec<_> = metric.get_label().iter().map(LabelPair::value).collect();
            (labels.join(" "), metric.get_counter().get_value())
        };
        gathered.iter().map(text).collect()
    }

    fn count(family: &Family<IntCounter>, tool: &str) {
        family.with(&[tool], &["ok"], IntCounter::inc);
    }

    /// O2: any number of names creates a bounded number of series, and nothing is lost.
    #[test]
    fn o2_too_many_names_share_one_series() {
        let family = family().limited_to(3);
        for number in 0..10_000 {
            count(&family, &format!("tool{number}"));
        }
        count(&family, "tool1");
        let expected = [("other ok", 9_997.0), ("tool0 ok", 1.0), ("tool1 ok", 2.0), ("tool2 ok", 1.0)];
        assert_eq!(shown(&family), expected.map(|(labels, value)| (labels.to_owned(), value)));
        let series = family.series.read().expect("no panic");
        assert_eq!(series.by_hash.len(), 3);
    }

    /// O2: a series that is no longer used makes room for another.
    #[test]
    fn o2_idle_series_make_room() {
        let family = family().limited_to(2);
        count(&family, "old");
        count(&family, "used");
        let mut series = family.series.write().expect("no panic");
        series.by_labels[&vec!["used".to_owned(), "ok".to_owned()]].changed.store(2 * IDLE_SECONDS, Ordering::Relaxed);
        series.remove_idle(2 * IDLE_SECONDS);
        drop(series);
        count(&family, "new");
        assert_eq!(shown(&family), [("new ok".to_owned(), 1.0), ("used ok".to_owned(), 1.0)]);
    }

    /// O2: labels contain no secrets and are not longer than their limit. Names that are shown in the same way share a
    /// series.
    #[test]
    fn o2_labels_are_filtered_and_short() {
        let family = family();
        count(&family, "get_s3cret");
        count(&family, &"n".repeat(500));
        count(&family, &"n".repeat(501));
        let expected = [("get_(redacted) ok".to_owned(), 1.0), (format!("{} ok", "n".repeat(120)), 2.0)];
        assert_eq!(shown(&family), expected);
    }
}
