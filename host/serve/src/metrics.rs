//! The functions with which the embedder counts requests and returns the metrics of the process (O2).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest<'a> {
    /// The method, or `other` for a method that no route has.
    pub method: &'a str,
    /// The route, such as `/api/sessions/{session}`, or `unknown` if the request fits no route.
    pub route: &'a str,
    /// Status code of the answer.
    pub status: u16,
    /// Time until the headers of the answer were ready.
    pub time: Duration,
}

type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// Counts requests, and returns the metrics of the process. It is cheap to clone.
#[derive(Clone)]
pub struct ServerMetrics {
    answered: Arc<dyn Fn(&AnsweredRequest<'_>) + Send + Sync>,
    text: Arc<dyn Fn() -> Text + Send + Sync>,
}

impl ServerMetrics {
    /// Uses these functions. `answered` is called after each request and must return immediately. `text` returns the metrics in
    /// the text format of Prometheus.
    pub fn new<T: Future<Output = String> + Send + 'static>(
        answered: impl Fn(&AnsweredRequest<'_>) + Send + Sync + 'static,
        text: impl Fn() -> T + Send + Sync + 'static,
    ) -> Self {
        Self { answered: Arc::new(answered), text: Arc::new(move || Box::pin(text())) }
    }

    pub(crate) fn answered(&self, request: &AnsweredRequest<'_>) {
        (self.answered)(request);
    }

    pub(crate) async fn text(&self) -> String {
        (self.text)().await
    }
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerMetrics")
    }
}
