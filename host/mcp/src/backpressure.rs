//! A transport that stops reading from the server while too many of the server's requests have no response yet, or
//! while too many outgoing messages wait to be sent. A server that endlessly sends requests and never reads the
//! responses therefore cannot fill the host's memory.

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, Semaphore};

/// Maximum number of outgoing messages that wait to be sent, and maximum number of the server's requests that have no
/// response yet. While one of these two numbers has reached the maximum, the transport does not read from the server.
const MAX_PENDING: usize = 64;

/// Wraps a transport and stops reading while too many outgoing messages, including responses, wait to be sent.
pub(crate) struct BackpressureTransport<T> {
    inner: T,
    permits: Arc<Semaphore>,
    unanswered: Arc<UnansweredRequests>,
}

impl<T> BackpressureTransport<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(MAX_PENDING)), unanswered: Arc::default() }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BackpressureTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered_id = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (permits, unanswered) = (self.permits.clone(), self.unanswered.clone());
        let sending = self.inner.send(message);
        async move {
            // The semaphore is never closed, so acquiring a permit cannot fail.
            let _permit = permits.acquire_owned().await;
            let result = sending.await;
            if let Some(id) = answered_id {
                unanswered.remove(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // The semaphore is fair: `acquire` returns only after every message that began to wait earlier has a permit to
        // be sent.
        drop(self.permits.acquire().await.ok()?);
        // Count unanswered requests in addition to permits: a request that was read but not yet handled has no outgoing
        // message that could hold a permit. If only permits were counted, the number of unhandled requests would depend
        // on how soon the scheduler runs the handlers.
        self.unanswered.wait_for_capacity().await;
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => self.unanswered.insert(request.id.clone()),
            // A request that the server cancelled no longer counts as unanswered, because its response may never
            // be sent.
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.unanswered.remove(id);
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Requests that were read from the server and to which no response has been sent yet.
#[derive(Default)]
struct UnansweredRequests {
    ids: Mutex<HashSet<RequestId>>,
    removed: Notify,
}

impl UnansweredRequests {
    fn insert(&self, id: RequestId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn remove(&self, id: &RequestId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.removed.notify_one();
    }

    /// Waits until fewer than [`MAX_PENDING`] requests are unanswered. Only the task that reads from the server may
    /// call this function.
    async fn wait_for_capacity(&self) {
        while self.ids.lock().unwrap_or_else(PoisonError::into_inner).len() >= MAX_PENDING {
            self.removed.notified().await;
        }
    }
}
