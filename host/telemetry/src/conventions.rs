//! Names of attributes. The names are constants of this crate, because the conventions of OpenTelemetry for generative
//! models are still in development and have moved between repositories (decision 0096).

/// Version of the OpenTelemetry conventions for generative models (`semantic-conventions-genai`) whose names are used.
pub(crate) const GEN_AI_VERSION: &str = "0.1";
/// Version of the OpenInference conventions whose names are used.
pub(crate) const OPEN_INFERENCE_VERSION: &str = "1.0";

/// Names of OpenInference.
pub(crate) mod open_inference {
    pub(crate) const KIND: &str = "openinference.span.kind";
    pub(crate) const PROJECT: &str = "openinference.project.name";
    pub(crate) const SESSION: &str = "session.id";
    pub(crate) const USER: &str = "user.id";
    pub(crate) const AGENT_NAME: &str = "agent.name";
    pub(crate) const INPUT: &str = "input.value";
    pub(crate) const INPUT_TYPE: &str = "input.mime_type";
    pub(crate) const OUTPUT: &str = "output.value";
    pub(crate) const OUTPUT_TYPE: &str = "output.mime_type";
    pub(crate) const MODEL: &str = "llm.model_name";
    pub(crate) const PROVIDER: &str = "llm.provider";
    pub(crate) const PARAMETERS: &str = "llm.invocation_parameters";
    pub(crate) const PROMPT_TOKENS: &str = "llm.token_count.prompt";
    pub(crate) const COMPLETION_TOKENS: &str = "llm.token_count.completion";
    pub(crate) const TOTAL_TOKENS: &str = "llm.token_count.total";
    pub(crate) const CACHE_READ: &str = "llm.token_count.prompt_details.cache_read";
    pub(crate) const CACHE_WRITE: &str = "llm.token_count.prompt_details.cache_write";
    pub(crate) const REASONING: &str = "llm.token_count.completion_details.reasoning";
    pub(crate) const COST: &str = "llm.cost.total";
    pub(crate) const INPUT_MESSAGES: &str = "llm.input_messages";
    pub(crate) const OUTPUT_MESSAGES: &str = "llm.output_messages";
    pub(crate) const TOOLS: &str = "llm.tools";
    pub(crate) const TOOL_NAME: &str = "tool.name";
    pub(crate) const TOOL_ID: &str = "tool.id";
    pub(crate) const TOOL_PARAMETERS: &str = "tool.parameters";
    pub(crate) const EMBEDDING_MODEL: &str = "embedding.model_name";

    /// The kinds of spans.
    pub(crate) mod kind {
        pub(crate) const AGENT: &str = "AGENT";
        pub(crate) const LLM: &str = "LLM";
        pub(crate) const TOOL: &str = "TOOL";
        pub(crate) const CHAIN: &str = "CHAIN";
        pub(crate) const GUARDRAIL: &str = "GUARDRAIL";
        pub(crate) const EMBEDDING: &str = "EMBEDDING";
    }
}

/// Names of the OpenTelemetry conventions for generative models.
pub(crate) mod gen_ai {
    pub(crate) const OPERATION: &str = "gen_ai.operation.name";
    pub(crate) const PROVIDER: &str = "gen_ai.provider.name";
    pub(crate) const AGENT_NAME: &str = "gen_ai.agent.name";
    pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
    pub(crate) const REQUEST_MODEL: &str = "gen_ai.request.model";
    pub(crate) const RESPONSE_MODEL: &str = "gen_ai.response.model";
    pub(crate) const MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub(crate) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    pub(crate) const CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
    pub(crate) const CACHE_WRITE: &str = "gen_ai.usage.cache_creation.input_tokens";
    pub(crate) const TOOL_NAME: &str = "gen_ai.tool.name";
    pub(crate) const TOOL_CALL: &str = "gen_ai.tool.call.id";
    pub(crate) const TOOL_TYPE: &str = "gen_ai.tool.type";

    /// The operations of spans.
    pub(crate) mod operation {
        pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
        pub(crate) const CHAT: &str = "chat";
        pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
        pub(crate) const EMBEDDINGS: &str = "embeddings";
    }
}

/// Stable names of OpenTelemetry.
pub(crate) mod common {
    pub(crate) const ERROR_TYPE: &str = "error.type";
    pub(crate) const METHOD: &str = "http.request.method";
    pub(crate) const STATUS: &str = "http.response.status_code";
    pub(crate) const SERVER: &str = "server.address";
    pub(crate) const URL: &str = "url.full";
    pub(crate) const SERVICE_NAME: &str = "service.name";
    pub(crate) const SERVICE_VERSION: &str = "service.version";
}

/// Names for facts that no convention describes.
pub(crate) mod host {
    pub(crate) const TURN: &str = "agent_host.turn";
    pub(crate) const STEP: &str = "agent_host.step";
    pub(crate) const END_REASON: &str = "agent_host.end_reason";
    pub(crate) const PLUGINS: &str = "agent_host.plugins";
    pub(crate) const PLUGIN: &str = "agent_host.plugin";
    pub(crate) const SOURCE: &str = "agent_host.tool.source";
    pub(crate) const SERVER: &str = "agent_host.tool.mcp_server";
    pub(crate) const DELEGATE: &str = "agent_host.tool.delegate";
    pub(crate) const ATTEMPTS: &str = "agent_host.tool.attempts";
    pub(crate) const WALL: &str = "agent_host.tool.wall_us";
    pub(crate) const CPU: &str = "agent_host.tool.cpu_us";
    pub(crate) const QUEUE: &str = "agent_host.tool.queue_us";
    pub(crate) const MEMORY: &str = "agent_host.tool.memory_bytes";
    pub(crate) const HOST_CALLS_OMITTED: &str = "agent_host.host_calls.omitted";
    pub(crate) const UNITS: &str = "agent_host.turn.execution_units";
    pub(crate) const MODEL_CALLS: &str = "agent_host.turn.model_calls";
    pub(crate) const TURN_PROMPT: &str = "agent_host.turn.prompt_tokens";
    pub(crate) const TURN_COMPLETION: &str = "agent_host.turn.completion_tokens";
    pub(crate) const TURN_COST: &str = "agent_host.turn.cost_usd";
    pub(crate) const COST_IS_PARTIAL: &str = "agent_host.cost_is_partial";
    pub(crate) const ROLE: &str = "agent_host.model_role";
    pub(crate) const VERDICT: &str = "agent_host.verdict";
    pub(crate) const BUCKET: &str = "agent_host.values.bucket";
    pub(crate) const KEY: &str = "agent_host.values.key";
    pub(crate) const TREE: &str = "agent_host.files.tree";
    pub(crate) const PATH: &str = "agent_host.files.path";
    pub(crate) const EVENT_TYPE: &str = "agent_host.event_type";
    pub(crate) const MESSAGES_OMITTED: &str = "agent_host.input_messages.omitted";
    pub(crate) const CONTENT_OMITTED: &str = "agent_host.content.omitted_values";
    pub(crate) const REASON: &str = "agent_host.reason";
    pub(crate) const WAIT: &str = "agent_host.wait_ms";
    pub(crate) const NAME: &str = "agent_host.name";
}
