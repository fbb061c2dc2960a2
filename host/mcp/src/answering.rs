//! A connection that hears no more than it can answer: a server that asks without end, and never reads, is not heard.

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Messages that are on their way out before nothing more is read.
const UNSENT: usize = 64;

/// A transport that reads nothing while too many of its own messages wait to be sent.
pub(crate) struct Answering<T> {
    inner: T,
    room: Arc<Semaphore>,
}

impl<T> Answering<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, room: Arc::new(Semaphore::new(UNSENT)) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Answering<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (sending, room) = (self.inner.send(message), self.room.clone());
        async move {
            // Never closed, so that there is always a permit in the end.
            let _permit = room.acquire_owned().await;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Behind all that wait for room already.
        drop(self.room.acquire().await.ok()?);
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
