//! Serves one editor over a pair of streams.

use crate::permission::EditorQuestions;
use crate::requests::Requests;
use crate::shared::{AcpOptions, Shared};
use crate::transport::Transport;
use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, DeleteSessionRequest, InitializeRequest, ListSessionsRequest,
    LoadSessionRequest, NewSessionRequest, PromptRequest, ResumeSessionRequest,
};
use agent_client_protocol::{Agent, ConnectTo, Error, on_receive_notification, on_receive_request};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// Time for writing the last messages after the connection has ended.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Serves an agent to one editor.
pub struct AcpServer {
    shared: Arc<Shared>,
}

impl AcpServer {
    /// Creates a server.
    pub fn new(options: AcpOptions) -> Self {
        Self { shared: Shared::new(options) }
    }

    /// Returns the way to ask the user of the editor.
    pub fn questions(&self) -> EditorQuestions {
        EditorQuestions(self.shared.clone())
    }

    /// Serves the editor until the input ends, the output cannot be written, or `stop` is cancelled. Open turns are not
    /// cancelled. An error means that reading or writing failed.
    pub async fn serve(
        self,
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send + 'static,
        stop: &CancellationToken,
    ) -> std::io::Result<()> {
        let Self { shared } = self;
        let Transport { reader, writer, channel } = Transport::new(&shared.flow);
        let requests = Requests::new(shared.clone());
        let gone = CancellationToken::new();
        let (write_ended, gone_guard) = (gone.clone(), gone.clone());
        let writing = tokio::spawn(async move {
            let _guard = gone_guard.drop_guard();
            writer.run(output).await
        });
        let reading = tokio::spawn(reader.run(input));
        let connected = tokio::select! {
            connected = connection(requests.clone(), channel) => connected,
            () = write_ended.cancelled() => Ok(()),
            () = stop.cancelled() => Ok(()),
        };
        shared.closed.cancel();
        drop(requests);
        reading.abort();
        shared.tasks.close();
        shared.tasks.wait().await;
        if let Err(error) = connected {
            tracing::warn!(%error, "the connection to the editor failed");
        }
        match tokio::time::timeout(LAST_WRITES, writing).await {
            Ok(Ok(written)) => written,
            Ok(Err(error)) => Err(std::io::Error::other(error)),
            // The editor does not read.
            Err(_) => Ok(()),
        }
    }
}

/// Answers the messages of the editor until the connection ends. Requests that take time are handled in tasks of their own,
/// so that other messages, such as cancellations, are handled in the meantime.
async fn connection(requests: Arc<Requests>, channel: impl ConnectTo<Agent> + 'static) -> Result<(), Error> {
    let (init, new, load, resume) = (requests.clone(), requests.clone(), requests.clone(), requests.clone());
    let (list, delete, close, prompt) = (requests.clone(), requests.clone(), requests.clone(), requests.clone());
    Agent
        .v1()
        .name("agent-host")
        .on_receive_request(
            async move |request: InitializeRequest, responder, connection| {
                // The editor may send `initialize` again.
                let _ = init.shared().connection.set(connection);
                responder.respond(init.initialize(&request))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, _| {
                let requests = new.clone();
                in_task(new.shared(), async move { requests.new_session(request, responder).await })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, _| {
                let requests = load.clone();
                in_task(load.shared(), async move { requests.load(request, responder).await })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ResumeSessionRequest, responder, _| {
                let requests = resume.clone();
                in_task(resume.shared(), async move { requests.resume(request, responder).await })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: ListSessionsRequest, responder, _| {
                let requests = list.clone();
                in_task(list.shared(), async move { responder.respond_with_result(requests.list(request).await) })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: DeleteSessionRequest, responder, _| {
                let requests = delete.clone();
                in_task(delete.shared(), async move { responder.respond_with_result(requests.delete(request).await) })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: CloseSessionRequest, responder, _| {
                let requests = close.clone();
                in_task(close.shared(), async move { responder.respond_with_result(requests.close(request).await) })
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _| prompt.prompt(request, responder),
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _| {
                requests.cancel(&notification.session_id.to_string());
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(channel)
        .await
}

/// Handles a request in a task of its own, which ends when the connection ends.
fn in_task(
    shared: &Arc<Shared>,
    handling: impl Future<Output = Result<(), Error>> + Send + 'static,
) -> Result<(), Error> {
    let closed = shared.closed.clone();
    shared.tasks.spawn(async move {
        tokio::select! {
            // The answer cannot be sent if the connection has ended.
            _ = handling => {}
            () = closed.cancelled() => {}
        }
    });
    Ok(())
}
