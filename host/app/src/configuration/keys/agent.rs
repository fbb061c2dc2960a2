//! The keys at the top of the file.

use super::{Default, Form, Key, NONE, Section, Value};

/// Largest weight of anything, in units.
const MOST_UNITS: u32 = agent_core::run::Weight::MOST;

pub(super) const AGENT: Section = Section {
    path: &[],
    example: "",
    title: "The agent",
    about: "Who it is and what it is told.",
    keys: &[
        Key {
            name: "name",
            value: Value::Text(Form::Name),
            default: Default::Words(
                "the file's name (the folder's for `agent.toml`) and six digits that stand for the folder",
            ),
            meaning: "The agent's name. Agents of one name are one: sessions, memory, values and approvals belong to it, wherever \
                      its file lies. `--agent NAME` finds it, or the file's name without `.toml`.",
            example: r#""reader""#,
        },
        Key {
            name: "plugin_directory",
            value: Value::Text(Form::Filled),
            default: Default::Words("none; then `--plugins DIR` only"),
            meaning: "The folder with the plugins (*.wasm).",
            example: r#""plugins""#,
        },
        Key {
            name: "instructions",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "What the agent is and does, as the first section of its prompt.",
            example: r#""Answer exactly, and name your sources.""#,
        },
        Key {
            name: "chain_of_thought",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "How it shall think.",
            example: r#""Think step by step, and check each step.""#,
        },
        Key {
            name: "tool_rules",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "How it shall use its tools.",
            example: r#""Read before you write.""#,
        },
    ],
};

pub(super) const MODELS: Section = Section {
    path: &[],
    example: "",
    title: "Its models",
    about: "A model is PROVIDER/MODEL, `offline` or `scripted:FILE`. PROVIDER is a known one or a table `[providers.NAME]`.",
    keys: &[
        Key {
            name: "model",
            value: Value::Text(Form::Line),
            default: Default::Is(r#""offline""#),
            meaning: "The model that is asked first. `offline` is built in and no language model.",
            example: r#""openai/gpt-4.1-mini""#,
        },
        Key {
            name: "fallback_models",
            value: Value::Texts(Form::Line),
            default: NONE,
            meaning: "Asked in this order when those before have failed. Needs `model`.",
            example: r#"["ollama/qwen3:8b"]"#,
        },
        Key {
            name: "fallback_text",
            value: Value::Text(Form::Filled),
            default: Default::Words("none; then the turn ends with an error"),
            meaning: "The answer when no model answers. With `output_schema` it is JSON that the schema takes.",
            example: r#"'{"answer": "No model can be reached."}'"#,
        },
        Key {
            name: "model_cooldown_ms",
            value: Value::Number(0, 86_400_000),
            default: Default::Is("60000"),
            meaning: "Milliseconds for which a model that kept failing is passed over while another is there.",
            example: "30000",
        },
        Key {
            name: "reply_tokens",
            value: Value::Number(1, 1_000_000),
            default: Default::Is("4096"),
            meaning: "Most tokens of a reply; so many are kept free for it in the model's window.",
            example: "2000",
        },
        Key {
            name: "tool_dialect",
            value: Value::Choice(&["native", "text"]),
            default: Default::Is(r#""native""#),
            meaning: "How they call tools: `native` by their providers' means, `text` for models without any: as `<tool>` in \
                      their reply.",
            example: r#""text""#,
        },
        Key {
            name: "offered_tools",
            value: Value::Number(1, 1024),
            default: Default::Is("15"),
            meaning: "With more tools, only so many are offered: those nearest to the input. The host's own `read_result` and `memory_search`, and what ends a turn, are always offered beside them.",
            example: "8",
        },
        Key {
            name: "embedding_model",
            value: Value::Text(Form::Line),
            default: Default::Words("none; then the words of names and descriptions decide"),
            meaning: "Says which tools are nearest, by their meaning. PROVIDER/MODEL; its server has `/embeddings`.",
            example: r#""openai/text-embedding-3-small""#,
        },
        Key {
            name: "planner",
            value: Value::Text(Form::Line),
            default: Default::Words("none; then one model does all"),
            meaning: "The model that makes a plan before the first step and writes the answer after the last.",
            example: r#""ollama/qwen3:30b""#,
        },
        Key {
            name: "executor",
            value: Value::Text(Form::Line),
            default: Default::Words("`model`"),
            meaning: "The model that carries the plan out, one tool call a step. Needs `planner`.",
            example: r#""ollama/qwen3:4b""#,
        },
    ],
};

pub(super) const TURN: Section = Section {
    path: &[],
    example: "",
    title: "The turn",
    about: "What bounds it, and what its output must be.",
    keys: &[
        Key {
            name: "max_interactions",
            value: Value::Number(1, 1000),
            default: Default::Is("10"),
            meaning: "Model calls of a turn.",
            example: "40",
        },
        Key {
            name: "at_limit",
            value: Value::Choice(&["finish", "error"]),
            default: Default::Is(r#""finish""#),
            meaning: "What happens there: `finish` makes a last call without tools, `error` ends the turn with an error.",
            example: r#""error""#,
        },
        Key {
            name: "max_corrections",
            value: Value::Number(0, 100),
            default: Default::Is("2"),
            meaning: "Rejected outputs that the model may correct.",
            example: "0",
        },
        Key {
            name: "parallel_calls",
            value: Value::Number(1, 64),
            default: Default::Is("4"),
            meaning: "Tools that run at once.",
            example: "2",
        },
        Key {
            name: "result_characters",
            value: Value::Number(200, 1_048_576),
            default: Default::Is("6000"),
            meaning: "Characters of a tool's result that the model is shown; it reads on with `read_result`.",
            example: "2000",
        },
        Key {
            name: "minimum_remaining",
            value: Value::Number(0, 1_000_000),
            default: Default::Is("1500"),
            meaning: "Tokens of the window that must be free before a step; with less the turn ends with a last answer.",
            example: "3000",
        },
        Key {
            name: "max_depth",
            value: Value::Number(1, 16),
            default: Default::Is("4"),
            meaning: "How often work may be handed down from agent to agent, counted from the one that is asked.",
            example: "2",
        },
        Key {
            name: "evict_at",
            value: Value::Number(1, 100),
            default: Default::Is("80"),
            meaning: "Percent of the history budget (the window less system text, tools and reply) beyond which the oldest \
                      messages leave the prompt; a summary stays, and `memory_search` finds them.",
            example: "90",
        },
        Key {
            name: "evict_to",
            value: Value::Number(0, 99),
            default: Default::Is("50"),
            meaning: "Percent of it down to which they leave; less than `evict_at`.",
            example: "40",
        },
        Key {
            name: "summary",
            value: Value::Choice(&["model", "extract"]),
            default: Default::Is(r#""model""#),
            meaning: "Who summarises them: `model` asks one, `extract` takes first sentences, calls and files.",
            example: r#""model""#,
        },
        Key {
            name: "summary_model",
            value: Value::Text(Form::Line),
            default: Default::Words("the model that answers"),
            meaning: "The model that summarises. A model of the command line is asked for this, too.",
            example: r#""ollama/qwen3:8b""#,
        },
        Key {
            name: "memory",
            value: Value::Choice(&["user", "agent", "off"]),
            default: Default::Is(r#""user""#),
            meaning: "What is recalled of you from earlier sessions, and remembered for later ones: `user` recalls the answers \
                      of all your agents and what this one's own tools brought, `agent` only this one's, `off` nothing, and \
                      nothing is remembered. An agent that works for another one recalls nothing.",
            example: r#""agent""#,
        },
        Key {
            name: "finish",
            value: Value::Choice(&["text", "tool"]),
            default: Default::Is(r#""text""#),
            meaning: "What ends a turn: `text` is a reply without a tool call; `tool` is a call of `task_completion`, \
                      `ask_question` or `converse`, and a reply without a tool call is reminded of that.",
            example: r#""text""#,
        },
        Key {
            name: "answer_within_ms",
            value: Value::Number(1, 2_592_000_000),
            default: Default::Words("until it comes"),
            meaning: "Milliseconds that a question of `ask_question` waits for its answer; then the turn ends with it.",
            example: "3600000",
        },
        Key {
            name: "persistence",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether a reply in English that leaves work undone, refuses or asks instead of doing is answered with \
                      a nudge to go on, and silence with the demand for a summary. With `finish = \"tool\"` it does nothing.",
            example: "true",
        },
        Key {
            name: "include_history",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the output carries the session's messages, but for those that were taken back.",
            example: "true",
        },
        Key {
            name: "output_schema",
            value: Value::Schema,
            default: Default::Words("none; then the output is text"),
            meaning: "A JSON Schema that the output must satisfy.",
            example: r#"{ type = "object", required = ["answer"], properties = { answer = { type = "string" } } }"#,
        },
        Key {
            name: "validators",
            value: Value::Texts(Form::Filled),
            default: NONE,
            meaning: "Plugins that check the output, in this order, before the schema does.",
            example: r#"["strict-json"]"#,
        },
        Key {
            name: "context_builder",
            value: Value::Text(Form::Filled),
            default: Default::Words("the host's own"),
            meaning: "The plugin that builds the context.",
            example: r#""project-context""#,
        },
        Key {
            name: "media_policies",
            value: Value::Pairs(Form::Line, Form::Filled),
            default: NONE,
            meaning: "By provider, the plugin that decides which media its models are shown.",
            example: r#"{ openai = "mask-openai" }"#,
        },
    ],
};

pub(super) const UNITS: Section = Section {
    path: &["execution_units"],
    example: "execution_units",
    title: "Execution units",
    about: "What a turn's model calls count for in its output's `execution_units`: these, added up over the turn, and a part \
            of a unit counts as one. Each agent counts its own.",
    keys: &[
        Key {
            name: "prompt_token",
            value: Value::Amount(MOST_UNITS),
            default: Default::Is("1"),
            meaning: "Units of a token of the prompt.",
            example: "0.25",
        },
        Key {
            name: "completion_token",
            value: Value::Amount(MOST_UNITS),
            default: Default::Is("1"),
            meaning: "Units of a token of the reply.",
            example: "2",
        },
        Key {
            name: "model_call",
            value: Value::Amount(MOST_UNITS),
            default: Default::Is("0"),
            meaning: "Units of a model call beside its tokens: of a step, a summary, or a plugin's question to the model.",
            example: "10",
        },
    ],
};
