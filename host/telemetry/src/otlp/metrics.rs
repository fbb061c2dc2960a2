//! Converts metrics to the messages of OTLP. Counters and histograms are cumulative, so that a lost request loses nothing:
//! the next request contains the same counts.

use super::encoding::{process_resource, scope, text_attribute};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use prometheus::proto::{Metric as Series, MetricFamily, MetricType};

/// When counting began, and the time of the export, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExportTimes {
    pub(crate) started: u64,
    pub(crate) now: u64,
}

/// Returns the message that exports metrics. `instance` identifies the process.
pub(crate) fn metrics_request(
    instance: &str,
    families: &[MetricFamily],
    times: ExportTimes,
) -> ExportMetricsServiceRequest {
    let metrics = ScopeMetrics {
        scope: Some(scope(Vec::new())),
        metrics: families.iter().filter_map(|family| metric_of(family, times)).collect(),
        ..ScopeMetrics::default()
    };
    let resource = process_resource(vec![text_attribute("service.instance.id", instance)]);
    let metrics =
        ResourceMetrics { resource: Some(resource), scope_metrics: vec![metrics], ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![metrics] }
}

fn metric_of(family: &MetricFamily, times: ExportTimes) -> Option<Metric> {
    let series = family.get_metric();
    let temporality = AggregationTemporality::Cumulative.into();
    let data = match family.get_field_type() {
        MetricType::COUNTER => metric::Data::Sum(Sum {
            data_points: series.iter().map(|one| number(one, one.get_counter().get_value(), times)).collect(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        }),
        MetricType::GAUGE => metric::Data::Gauge(Gauge {
            data_points: series.iter().map(|one| number(one, one.get_gauge().get_value(), times)).collect(),
        }),
        MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
            data_points: series.iter().map(|one| histogram(one, times)).collect(),
            aggregation_temporality: temporality,
        }),
        _ => return None,
    };
    Some(Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

fn number(series: &Series, value: f64, times: ExportTimes) -> NumberDataPoint {
    NumberDataPoint {
        attributes: labels(series),
        start_time_unix_nano: times.started,
        time_unix_nano: times.now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn histogram(series: &Series, times: ExportTimes) -> HistogramDataPoint {
    let histogram = series.get_histogram();
    let finite = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let (mut bounds, mut counts, mut before) = (Vec::new(), Vec::new(), 0);
    for bucket in finite {
        bounds.push(bucket.upper_bound());
        // OTLP counts each bucket on its own, and Prometheus counts a bucket together with all smaller ones.
        counts.push(bucket.cumulative_count().saturating_sub(before));
        before = bucket.cumulative_count();
    }
    counts.push(histogram.get_sample_count().saturating_sub(before));
    HistogramDataPoint {
        attributes: labels(series),
        start_time_unix_nano: times.started,
        time_unix_nano: times.now,
        count: histogram.get_sample_count(),
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

fn labels(series: &Series) -> Vec<KeyValue> {
    series.get_label().iter().map(|pair| text_attribute(pair.name(), pair.value())).collect()
}
