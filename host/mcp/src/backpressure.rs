//! A transport that stops reading while too many requests of the server wait for their response, or too many outgoing
//! messages wait to be sent. A server that sends requests without end and never reads the responses cannot fill the
//! host's memory.

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, Semaphore};

/// Number of unsent messages, and number of unanswered requests, at which reading stops.
const MAX_UNSENT: usize = 64;

/// Wraps a transport and stops reading while too many messages wait to be sent.
pub(crate) struct BackpressureTransport<T> {
    inner: T,
    permits: Arc<Semaphore>,
    unanswered: Arc<UnansweredRequests>,
}

impl<T> BackpressureTransport<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(MAX_UNSENT)), unanswered: Arc::default() }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BackpressureTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (permits, unanswered) = (self.permits.clone(), self.unanswered.clone());
        let sending = self.inner.send(message);
        async move {
            // The semaphore is never closed, so this always gets a permit.
            let _permit = permits.acquire_owned().await;
            let sent = sending.await;
            if let Some(id) = answered {
                unanswered.remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // The semaphore is fair: this waits behind all pending sends.
        drop(self.permits.acquire().await.ok()?);
        // A request that was read but not handled yet has no pending send. Without this wait, the number of such
        // requests would depend on how soon the scheduler runs the handlers.
        self.unanswered.wait_for_room().await;
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => self.unanswered.insert(request.id.clone()),
            // The response to a cancelled request may never be sent.
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

/// The requests of the server that were read and whose response was not sent yet.
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

    /// Waits until fewer than [`MAX_UNSENT`] requests are unanswered. Only one task may wait, the one that reads.
    async fn wait_for_room(&self) {
        while self.ids.lock().unwrap_or_else(PoisonError::into_inner).len() >= MAX_UNSENT {
            self.removed.notified().await;
        }
    }
}
