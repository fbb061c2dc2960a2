//! Answers the requests of one client: lists tools, runs calls, asks questions, and announces changes of the list.

use super::content::result_of;
use super::questions::{answer_in, answer_of, can_ask, can_be_shown, form, input_request};
use super::tools::{StructuredResults, client_names, tool_of};
use super::{Answer, CallOutput, CallUpdate, Offer, OfferError, OfferProblem, OfferedTool, OpenCall, Question};
use agent_core::plugin::TraceContext;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, ErrorData, Implementation,
    InputRequiredResult, InputResponses, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time between two checks whether a client that waits for announcements still exists.
const PRESENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Answers the requests of one client.
#[derive(Clone)]
pub(super) struct ClientHandler {
    offer: Arc<dyn Offer>,
    listed: ListedTools,
    /// Whether a task announces changes of the list to a client with an older version of the protocol.
    announces: Arc<AtomicBool>,
}

/// The tools that were listed last, by which headers with arguments are checked.
#[derive(Clone, Default)]
pub(super) struct ListedTools(Arc<Mutex<Vec<Tool>>>);

impl ListedTools {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl ClientHandler {
    pub(super) fn new(offer: Arc<dyn Offer>, listed: ListedTools) -> Self {
        Self { offer, listed, announces: Arc::default() }
    }

    /// Reads the list of tools, so that headers with arguments can be checked. If the list cannot be read, the request that
    /// needs it reports the reason.
    pub(super) async fn read_list(&self) {
        if let Ok(tools) = self.named_tools().await {
            self.remember(tools, StructuredResults::AnyJson);
        }
    }

    fn remember(&self, tools: Vec<(String, OfferedTool)>, results: StructuredResults) -> Vec<Tool> {
        let tools: Vec<Tool> = tools.into_iter().map(|(name, tool)| tool_of(name, tool, results)).collect();
        self.listed.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&tools);
        tools
    }

    /// Returns the tools with their names for clients.
    async fn named_tools(&self) -> Result<Vec<(String, OfferedTool)>, ErrorData> {
        let tools = self.offer.tools().await.map_err(protocol_error)?;
        let names = client_names(&tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>());
        Ok(names.into_iter().zip(tools).collect())
    }

    /// Begins a call, or continues the call to which the request belongs.
    async fn begin(
        &self,
        request: &CallToolRequestParams,
        trace: Option<TraceContext>,
    ) -> Result<Box<dyn OpenCall>, CallRefusal> {
        let tools = self.named_tools().await.map_err(CallRefusal::Protocol)?;
        let Some((_, tool)) = tools.into_iter().find(|(name, _)| *name == request.name) else {
            let message = format!("unknown tool `{}`; tools/list returns all tools", shown_name(&request.name));
            return Err(CallRefusal::Protocol(ErrorData::invalid_params(message, None)));
        };
        let arguments = request.arguments.clone().unwrap_or_default();
        let begun = match &request.request_state {
            Some(handle) => self.offer.resume(handle, &tool.name, arguments).await,
            None => self.offer.begin(&tool.name, arguments, trace).await,
        };
        begun.map_err(CallRefusal::from)
    }

    /// Runs a call until it has ended or the client must ask its user in a further request.
    async fn run(
        &self,
        mut call: Box<dyn OpenCall>,
        mut responses: Option<InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut progress = Progress::of(context);
        loop {
            let update = tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    call.cancel().await;
                    return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, "the call was cancelled", None));
                }
                update = call.next() => update.map_err(protocol_error)?,
            };
            match update {
                CallUpdate::Progress(text) => progress.report(text).await,
                CallUpdate::Done(output) => return Ok(result_of(output).into()),
                CallUpdate::Waits(questions) => match self.ask(questions, responses.take(), context).await {
                    Asked::Answered(answers) => call.answer(answers).await.map_err(protocol_error)?,
                    Asked::LaterRequest(mut request) => {
                        request.request_state = Some(call.put_aside().await.map_err(protocol_error)?);
                        return Ok(request.into());
                    }
                    Asked::Impossible => return Ok(result_of(call.leave_waiting().await).into()),
                    Asked::Cancelled => {
                        call.cancel().await;
                        return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, "the call was cancelled", None));
                    }
                },
            }
        }
    }

    /// Asks the user of the client.
    async fn ask(
        &self,
        questions: Vec<Question>,
        responses: Option<InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> Asked {
        if !can_ask(context.client_capabilities().as_ref()) || !can_be_shown(&questions) {
            return Asked::Impossible;
        }
        if has_multi_round_trips(context) {
            return answers_or_request(questions, responses.unwrap_or_default());
        }
        let mut answers = Vec::new();
        for question in questions {
            let Some(form) = form(&question.kind) else { return Asked::Impossible };
            let answered = tokio::select! {
                biased;
                () = context.ct.cancelled() => return Asked::Cancelled,
                answered = context.peer.create_elicitation(form) => answered,
            };
            match answered {
                Ok(result) => answers.push((question.id, answer_of(&question.kind, &result))),
                Err(error) => {
                    tracing::info!(%error, "a client did not ask its user");
                    return Asked::Impossible;
                }
            }
        }
        Asked::Answered(answers)
    }
}

/// What became of the questions of a call.
enum Asked {
    Answered(Vec<(String, Answer)>),
    /// The client answers in a further request.
    LaterRequest(InputRequiredResult),
    /// The client cannot ask its user.
    Impossible,
    Cancelled,
}

/// Returns the answers if the client has answered all questions, and otherwise the request for the missing answers.
fn answers_or_request(questions: Vec<Question>, responses: InputResponses) -> Asked {
    let is_complete = questions.iter().all(|question| responses.contains_key(&question.id));
    if is_complete {
        let answer = |question: Question| {
            let answer = answer_in(&question.kind, &responses[&question.id]);
            (question.id, answer)
        };
        return Asked::Answered(questions.into_iter().map(answer).collect());
    }
    let requests = questions.into_iter().map(|question| Some((question.id, input_request(&question.kind)?)));
    match requests.collect::<Option<_>>() {
        Some(requests) => Asked::LaterRequest(InputRequiredResult::from_input_requests(requests)),
        None => Asked::Impossible,
    }
}

/// Why a call did not begin.
enum CallRefusal {
    /// The request is wrong.
    Protocol(ErrorData),
    /// The client's model should see the reason.
    Result(Box<CallToolResult>),
}

impl From<OfferError> for CallRefusal {
    fn from(error: OfferError) -> Self {
        match error.kind {
            OfferProblem::Busy => Self::Result(Box::new(result_of(CallOutput::error(error.message)))),
            _ => Self::Protocol(protocol_error(error)),
        }
    }
}

fn protocol_error(error: OfferError) -> ErrorData {
    let code = match error.kind {
        OfferProblem::Forbidden => ErrorCode::INVALID_REQUEST,
        OfferProblem::Invalid => ErrorCode::INVALID_PARAMS,
        OfferProblem::Busy | OfferProblem::Failed => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.message, None)
}

/// Returns the beginning of a name that a client sent, for messages.
fn shown_name(name: &str) -> String {
    agent_core::visible::visible_name(name, 128)
}

fn has_multi_round_trips(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Reports the progress of a call, if the client has asked for it.
struct Progress<'c> {
    peer: &'c Peer<RoleServer>,
    token: Option<ProgressToken>,
    reported: f64,
}

impl<'c> Progress<'c> {
    fn of(context: &'c RequestContext<RoleServer>) -> Self {
        Self { peer: &context.peer, token: context.meta.get_progress_token(), reported: 0.0 }
    }

    async fn report(&mut self, text: String) {
        let Some(token) = &self.token else { return };
        self.reported += 1.0;
        let progress = ProgressNotificationParam::new(token.clone(), self.reported).with_message(text);
        if let Err(error) = self.peer.notify_progress(progress).await {
            tracing::debug!(%error, "the progress of a call was not reported");
        }
    }
}

/// Returns the trace context in the `_meta` of a request (SEP-414).
fn trace_of(context: &RequestContext<RoleServer>) -> Option<TraceContext> {
    let traceparent = context.meta.get_traceparent()?.to_owned();
    Some(TraceContext { traceparent, tracestate: context.meta.get_tracestate().map(str::to_owned) })
}

impl ServerHandler for ClientHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let mut implementation = Implementation::new("agent-host", env!("CARGO_PKG_VERSION"));
        implementation.title = Some("agent-host".to_owned());
        let mut config = ServerConfig::new(capabilities).with_server_info(implementation);
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config.instructions = Some(self.offer.instructions());
        config
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let results = match has_multi_round_trips(&context) {
            true => StructuredResults::AnyJson,
            false => StructuredResults::Objects,
        };
        let tools = self.named_tools().await?;
        let tools = self.remember(tools, results);
        // The list can change at any moment, and depends on the client's token.
        Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let listed = self.listed.0.lock().unwrap_or_else(PoisonError::into_inner);
        listed.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.begin(&request, trace_of(&context)).await {
            Ok(call) => self.run(call, request.input_responses, &context).await,
            Err(CallRefusal::Result(result)) => Ok((*result).into()),
            Err(CallRefusal::Protocol(error)) => Err(error),
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let tools = SubscriptionFilter::builder().tools_list_changed().build();
        Some(requested.intersection(&tools))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if context.accepted().tools_list_changed != Some(true) {
            context.cancelled().await;
            return Ok(());
        }
        let mut seen = self.offer.list_version();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                version = self.offer.list_changed(&seen) => seen = version,
            }
            if context.sink().notify_tool_list_changed().await.is_err() {
                return Ok(());
            }
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // A client may send this notification more than once, but needs only one announcement of a change.
        if self.announces.swap(true, Ordering::AcqRel) {
            return;
        }
        let (offer, peer) = (self.offer.clone(), context.peer);
        tokio::spawn(async move {
            let mut seen = offer.list_version();
            while !peer.is_transport_closed() {
                match tokio::time::timeout(PRESENCE_INTERVAL, offer.list_changed(&seen)).await {
                    Ok(version) => seen = version,
                    Err(_) => continue,
                }
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }
}
