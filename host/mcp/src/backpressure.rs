//! A transport that stops reading while too many outgoing messages wait. A server that sends requests without end and
//! never reads the responses cannot fill the host's memory.

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Number of unsent messages at which reading stops.
const MAX_UNSENT: usize = 64;

/// Wraps a transport and stops reading while too many messages wait to be sent.
pub(crate) struct BackpressureTransport<T> {
    inner: T,
    permits: Arc<Semaphore>,
}

impl<T> BackpressureTransport<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(MAX_UNSENT)) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BackpressureTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (sending, permits) = (self.inner.send(message), self.permits.clone());
        async move {
            // The semaphore is never closed, so this always gets a permit.
            let _permit = permits.acquire_owned().await;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // The semaphore is fair: this waits behind all pending sends.
        drop(self.permits.acquire().await.ok()?);
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
