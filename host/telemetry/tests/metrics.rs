//! Metrics of a process (O2): their labels, their bounds, the files that refer to them, and their export to a collector.

use agent_core::event::{Event, EventKind};
use agent_core::message::Digest;
use agent_core::redaction::Redaction;
use agent_core::tool::{CallCost, ToolSource};
use agent_telemetry::{
    Collector, CollectorConfig, Metrics, MetricsExporter, ModelCallOutcome, PluginCall, Readings, StoreReading,
    VersionChangeKind,
};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric, metric::Data, number_data_point::Value};
use prost::Message;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn tool_result(name: &str) -> Event {
    let kind = EventKind::ToolResult {
        call: agent_core::message::CallId("1.1.1".to_owned()),
        name: name.to_owned(),
        content: String::new(),
        cost: CallCost { wall_us: 1_500, ..CallCost::default() },
    };
    Event { session: "s".to_owned(), turn: 1, sequence: 1, provisional: None, kind }
}

fn plugin(name: &str) -> ToolSource {
    ToolSource::Plugin { plugin: name.to_owned(), digest: Digest::from_sha256([7; 32]) }
}

/// Metrics in which every family has a series.
fn all_metrics() -> (Metrics, Readings) {
    let metrics = Metrics::default();
    let cost = agent_core::model::Usage {
        cost: Some(agent_core::cost::Cost::from_dollars(0.25)),
        ..agent_core::model::Usage::new(10, 5)
    };
    let event = |kind| Event { session: "s".to_owned(), turn: 1, sequence: 1, provisional: None, kind };
    let json =
        |text: &str| -> EventKind { serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")) };
    let events = [
        tool_result("a"),
        event(EventKind::LoopIteration { step: 1, last: false }),
        event(EventKind::StreamComplete { text: String::new(), model: "p/m".to_owned(), usage: cost, saved_tokens: 0 }),
        event(json(r#"{"type": "retry", "model": "p/m", "attempt": 2, "wait_ms": 1, "reason": "busy"}"#)),
        event(json(r#"{"type": "model_fallback", "from": "p/m", "to": "p/n", "reason": "busy"}"#)),
        event(json(r#"{"type": "denied", "plugin": "x@123456789abc", "thing": "t", "grant": "g"}"#)),
        event(json(r#"{"type": "approval_resolved", "call": "1.1.1", "name": "a", "verdict": "once"}"#)),
        event(json(r#"{"type": "output_rejected", "by": "v", "attempt": 1, "problems": []}"#)),
        event(json(
            r#"{"type": "budget_exceeded", "scope": "agent_day", "owner": "a", "resource": "tokens", "limit": 5, "used": 4, "requested": 2}"#,
        )),
        event(json(r#"{"type": "error", "code": "model_error", "message": "m"}"#)),
        event(json(r#"{"type": "loop_end", "reason": "error"}"#)),
    ];
    metrics.committed("clerk", &events, |tool| Some(plugin(tool)));
    let time = Duration::from_millis(20);
    metrics.model_called(("clerk", "p/m"), ModelCallOutcome::Replied, time, Some(time));
    let call = PluginCall {
        plugin: "x",
        version: "123456789abc",
        kind: "tool",
        outcome: "limit",
        limit: Some("memory"),
        cost: CallCost { wall_us: 5, memory_bytes: 65_536, cpu_us: 3, ..CallCost::default() },
    };
    metrics.plugin_called(&call);
    metrics.version_changed("x", VersionChangeKind::Swapped);
    metrics.request_answered(("GET", "/health"), 200, time);
    metrics.request_refused("http", "unauthorized");
    let readings = Readings {
        sessions: vec![("clerk".to_owned(), "idle".to_owned(), 3)],
        outbox: Some(agent_telemetry::OutboxReading { pending: 1, oldest: time }),
        store: Some(StoreReading {
            commits: 4,
            transactions: 3,
            waiting: 0,
            durations: vec![(0.001, 1), (0.01, 3)],
            total: Duration::from_millis(9),
        }),
        guests: Some(agent_telemetry::GuestReading { running: 1, waiting: 2, memory: 3 }),
        uptime: time,
    };
    (metrics, readings)
}

/// The names of all families.
fn all_names() -> Vec<String> {
    let (metrics, readings) = all_metrics();
    let text = metrics.text(&readings);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().expect("a name").to_owned()).collect()
}

fn repository() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// O2: ten thousand tools do not create ten thousand series, and every call is counted.
#[test]
fn o2_ten_thousand_tools_create_a_bounded_number_of_series() {
    let metrics = Metrics::default();
    for number in 0..10_000 {
        metrics.committed("clerk", &[tool_result(&format!("tool{number}"))], |_| Some(plugin("many")));
    }
    let text = metrics.text(&Readings::default());
    let calls: Vec<_> = text.lines().filter(|line| line.starts_with("agent_host_tool_calls_total{")).collect();
    assert_eq!(calls.len(), 2_001);
    let counted: f64 =
        calls.iter().map(|line| line.rsplit_once(' ').expect("a value").1.parse::<f64>().expect("a number")).sum();
    assert!((counted - 10_000.0).abs() < f64::EPSILON, "{counted}");
    assert!(text.len() < 8 << 20, "{}", text.len());
}

/// O2, row 16: a secret that a server puts into the names of its tools is not a label.
#[test]
fn o2_row_16_labels_contain_no_secrets() {
    let metrics = Metrics::default();
    metrics.add_secrets(&Redaction::new(["s3cr3t-value-0815"]));
    let source = |_: &str| Some(ToolSource::of_server("s3cr3t-value-0815"));
    metrics.committed("clerk", &[tool_result("get_s3cr3t-value-0815")], source);
    let text = metrics.text(&Readings::default());
    assert!(text.contains("tool_calls_total") && !text.contains("s3cr3t"), "{text}");
}

/// O2: the dashboard, the alert rules and the guide refer to metrics that exist, and the guide lists all of them.
#[test]
fn o2_files_refer_to_existing_metrics() {
    let names = all_names();
    assert!(names.is_sorted(), "{names:?}");
    let pattern = regex::Regex::new("agent_host_[a-z_]+").expect("a pattern");
    for file in [
        "host/telemetry/monitoring/dashboard.json",
        "host/telemetry/monitoring/alerts.yaml",
        "host/docs/guide/telemetry.md",
    ] {
        let text = std::fs::read_to_string(repository().join(file)).expect("the file exists");
        for found in pattern.find_iter(&text).map(|found| found.as_str()) {
            let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| found.strip_suffix(end));
            let is_known = |name: &str| names.iter().any(|known| known == name);
            assert!(is_known(found) || base.is_some_and(is_known), "{file}: `{found}` does not exist");
        }
    }
    let guide = std::fs::read_to_string(repository().join("host/docs/guide/telemetry.md")).expect("a file");
    for name in names {
        assert!(guide.contains(&format!("`{name}`")), "the guide does not describe `{name}`");
    }
    let dashboard =
        std::fs::read_to_string(repository().join("host/telemetry/monitoring/dashboard.json")).expect("a file");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 20));
}

/// A collector that accepts metrics, or answers with an error.
struct MetricsReceiver {
    url: String,
    received: Arc<Mutex<Vec<ExportMetricsServiceRequest>>>,
    status: Arc<Mutex<StatusCode>>,
}

impl MetricsReceiver {
    async fn start() -> Self {
        let (received, status) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(Mutex::new(StatusCode::OK)));
        let (requests, answer) = (received.clone(), status.clone());
        let receive = move |body: Bytes| async move {
            let request = ExportMetricsServiceRequest::decode(body).expect("valid protobuf");
            let status = *answer.lock().expect("no panic");
            if status == StatusCode::OK {
                requests.lock().expect("no panic").push(request);
            }
            status
        };
        let router = Router::new().route("/v1/metrics", post(receive));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, received, status }
    }

    fn collector(&self) -> Arc<Collector> {
        let config = CollectorConfig {
            url: self.url.parse().expect("a URL"),
            headers: BTreeMap::new(),
            secret_headers: BTreeMap::new(),
            project: "agent-host".to_owned(),
            timeout: Duration::from_secs(5),
        };
        Arc::new(Collector::new(config).expect("a valid collector"))
    }

    fn latest(&self) -> BTreeMap<String, Metric> {
        let received = self.received.lock().expect("no panic");
        let request = received.last().expect("a request");
        let metrics = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        metrics.flat_map(|scope| &scope.metrics).map(|metric| (metric.name.clone(), metric.clone())).collect()
    }
}

fn sum_of(metric: &Metric) -> f64 {
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?} is not a sum") };
    assert!(sum.is_monotonic);
    assert_eq!(sum.aggregation_temporality, i32::from(AggregationTemporality::Cumulative));
    let value = |value: &Option<Value>| match value {
        Some(Value::AsDouble(value)) => *value,
        other => panic!("{other:?}"),
    };
    sum.data_points.iter().map(|point| value(&point.value)).sum()
}

/// O2: metrics reach a collector as cumulative OTLP metrics. A collector that refuses them for a while loses nothing, because
/// the next export contains all counts.
#[tokio::test(flavor = "multi_thread")]
async fn o2_metrics_are_exported_as_cumulative_otlp() {
    let receiver = MetricsReceiver::start().await;
    let (metrics, readings) = all_metrics();
    let metrics = Arc::new(metrics);
    let source: agent_telemetry::ReadingSource = Arc::new(move || {
        let readings = readings.clone();
        Box::pin(async move { readings })
    });
    let start =
        |interval| MetricsExporter::start(metrics.clone(), source.clone(), vec![receiver.collector()], interval);
    *receiver.status.lock().expect("no panic") = StatusCode::SERVICE_UNAVAILABLE;
    let exporter = start(Duration::from_millis(20));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(receiver.received.lock().expect("no panic").is_empty());
    metrics.committed("clerk", &[tool_result("a")], |tool| Some(plugin(tool)));
    *receiver.status.lock().expect("no panic") = StatusCode::OK;
    exporter.shutdown(Duration::from_secs(10)).await;
    let found = receiver.latest();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), all_names());
    assert!((sum_of(&found["agent_host_tool_calls_total"]) - 2.0).abs() < f64::EPSILON);
    let Some(Data::Histogram(durations)) = &found["agent_host_store_commit_duration_seconds"].data else {
        panic!("a histogram")
    };
    let point = &durations.data_points[0];
    assert_eq!((point.count, &point.explicit_bounds, &point.bucket_counts), (3, &vec![0.001, 0.01], &vec![1, 2, 0]));
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano <= point.time_unix_nano);
    // An export at the end of the process sends what happened since the last interval.
    let exporter = start(Duration::from_secs(3_600));
    metrics.committed("clerk", &[tool_result("a")], |tool| Some(plugin(tool)));
    exporter.shutdown(Duration::from_secs(10)).await;
    assert!((sum_of(&receiver.latest()["agent_host_tool_calls_total"]) - 3.0).abs() < f64::EPSILON);
}
