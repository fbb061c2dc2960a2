//! Serves one client over a pair of byte streams, such as standard input and output.

use super::handler::{ClientHandler, ListedTools};
use super::{MAX_CLIENT_MESSAGE_BYTES, Offer};
use crate::bounded_lines::{BoundedLines, ExceededLimit, LimitFlag, MAX_DEPTH};
use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage, serve_server_with_ct};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Maximum number of messages that wait until the client reads them. While so many messages wait, the server does not read
/// from the client.
const MAX_UNREAD: usize = 64;

/// How the connection with a client ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StdioEnd {
    /// The client closed the connection, or the host stopped.
    Closed,
    /// The client broke the protocol, as this text describes.
    Refused(String),
}

/// Serves a client until it closes the connection or `stop` is cancelled.
pub async fn serve_stdio(
    offer: Arc<dyn Offer>,
    (input, output): (impl AsyncRead + Send + Unpin + 'static, impl AsyncWrite + Send + Unpin + 'static),
    stop: CancellationToken,
) -> StdioEnd {
    let exceeded = LimitFlag::default();
    let input = BoundedLines::new(input, MAX_CLIENT_MESSAGE_BYTES, exceeded.clone());
    // `BoundedLines` enforces the limit and reports it. The transport would skip a longer line silently.
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(usize::MAX);
    let transport = ReadOnlyWhatIsRead { inner: transport, permits: Arc::new(Semaphore::new(MAX_UNREAD)) };
    let served = serve_server_with_ct(ClientHandler::new(offer, ListedTools::default()), transport, stop.clone()).await;
    let ended = match served {
        Ok(service) => service.waiting().await.map(drop).map_err(|error| error.to_string()),
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    match (exceeded.get(), ended) {
        (Some(ExceededLimit::LineTooLong), _) => {
            StdioEnd::Refused(format!("the client sent a message of more than {} MiB", MAX_CLIENT_MESSAGE_BYTES >> 20))
        }
        (Some(ExceededLimit::TooDeeplyNested), _) => {
            StdioEnd::Refused(format!("the client sent a message that is nested more than {MAX_DEPTH} levels deep"))
        }
        (None, Ok(())) => StdioEnd::Closed,
        (None, Err(reason)) => StdioEnd::Refused(format!("the client broke the protocol: {reason}")),
    }
}

/// A transport that stops reading while the client does not read, so that answers cannot fill the host's memory.
struct ReadOnlyWhatIsRead<T> {
    inner: T,
    permits: Arc<Semaphore>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ReadOnlyWhatIsRead<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (permits, sending) = (self.permits.clone(), self.inner.send(message));
        async move {
            // The semaphore is never closed, so acquiring a permit cannot fail.
            let _permit = permits.acquire_owned().await;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // The semaphore is fair: this permit is available only after all waiting messages have begun to be sent.
        drop(self.permits.acquire().await.ok()?);
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
