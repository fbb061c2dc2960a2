//! The durations of many runs of an operation.

use std::time::Duration;

/// Durations in the order of their measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(99)
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.percentile(100)
    }

    /// Returns the median of the ratios of these samples to the samples of `base`, which were measured in turns. The ratio of
    /// two samples that follow each other does not depend on how busy the machine is at the time.
    pub(crate) fn paired_ratio(&self, base: &Self) -> f64 {
        let pairs = self.0.iter().zip(&base.0);
        let mut ratios: Vec<f64> = pairs.map(|(own, base)| own.as_secs_f64() / base.as_secs_f64()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * percent / 100).copied().unwrap_or_default()
    }
}
