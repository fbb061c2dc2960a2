//! Keys at the top of the file, and `[execution_units]`.

use super::{Default, Key, NONE, Section, TextFormat, Value};

/// Maximum weight, in execution units.
const MAX_UNITS: u32 = agent_core::run::Weight::MAX;

pub(super) const AGENT: Section = Section {
    path: &[],
    example: "",
    title: "The agent",
    about: "The name of the agent and the instructions in its prompt.",
    keys: &[
        Key {
            name: "name",
            value: Value::Text(TextFormat::Name),
            default: Default::Words(
                "the file's name (for `agent.toml`, the folder's name), with six digits that identify the folder",
            ),
            meaning: "The agent's name. Sessions, memory, stored values and approvals belong to the name, so agents with \
                      the same name share them, wherever their files are. `--agent` accepts this name, or the file's name \
                      without `.toml`.",
            example: r#""reader""#,
        },
        Key {
            name: "plugin_directory",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none; use `--plugins DIR`"),
            meaning: "The folder with the plugins (*.wasm).",
            example: r#""plugins""#,
        },
        Key {
            name: "instructions",
            value: Value::Text(TextFormat::Filled),
            default: NONE,
            meaning: "What the agent is and does. This text is the first section of the agent's prompt.",
            example: r#""Answer exactly, and name your sources.""#,
        },
        Key {
            name: "chain_of_thought",
            value: Value::Text(TextFormat::Filled),
            default: NONE,
            meaning: "How the model should reason. This text is a section of the prompt.",
            example: r#""Think step by step, and check each step.""#,
        },
        Key {
            name: "tool_rules",
            value: Value::Text(TextFormat::Filled),
            default: NONE,
            meaning: "How the model should use its tools. This text is a section of the prompt.",
            example: r#""Read before you write.""#,
        },
    ],
};

pub(super) const MODELS: Section = Section {
    path: &[],
    example: "",
    title: "Models",
    about: "A model is written as PROVIDER/MODEL, `offline` or `scripted:FILE`. PROVIDER is a known provider or a \
            provider with a table `[providers.NAME]`.",
    keys: &[
        Key {
            name: "model",
            value: Value::Text(TextFormat::Line),
            default: Default::Is(r#""offline""#),
            meaning: "The model that is called first. `offline` is built in and is not a language model.",
            example: r#""openai/gpt-4.1-mini""#,
        },
        Key {
            name: "fallback_models",
            value: Value::Texts(TextFormat::Line),
            default: NONE,
            meaning: "Fallback models, which are called in this order, each after the models before it have failed. \
                      Requires `model`.",
            example: r#"["ollama/qwen3:8b"]"#,
        },
        Key {
            name: "fallback_text",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none; the turn ends with an error"),
            meaning: "The output of the turn if every model fails. With `output_schema`, it must be JSON that \
                      satisfies the schema.",
            example: r#"'{"answer": "No model can be reached."}'"#,
        },
        Key {
            name: "model_cooldown_ms",
            value: Value::Number(0, 86_400_000),
            default: Default::Is("60000"),
            meaning: "Time in milliseconds during which the host skips a model after repeated failures, if another \
                      model is available.",
            example: "30000",
        },
        Key {
            name: "reply_tokens",
            value: Value::Number(1, 1_000_000),
            default: Default::Is("4096"),
            meaning: "Maximum number of tokens in a reply. The host keeps this many tokens of the model's context window \
                      free.",
            example: "2000",
        },
        Key {
            name: "tool_dialect",
            value: Value::Choice(&["native", "text"]),
            default: Default::Is(r#""native""#),
            meaning: "How the models call tools. `native` uses the provider's tool calls. `text` is for models without \
                      tool calls: they write calls into their reply as `<tool>`.",
            example: r#""text""#,
        },
        Key {
            name: "offered_tools",
            value: Value::Number(1, 1024),
            default: Default::Is("15"),
            meaning: "Maximum number of tools that are offered to the model. If the agent has more tools, the host offers \
                      the tools that were used before in the session, and the tools that best match the input and the \
                      last messages. Tools that end a turn are always offered in addition.",
            example: "8",
        },
        Key {
            name: "command_tools",
            value: Value::Choice(&["each", "one"]),
            default: Default::Is(r#""each""#),
            meaning: "How the command-line programs among the plugins (`wasi:cli/run`) are offered to the model. With `each`, \
                      every program is a tool. With `one`, the tool `run_command` runs all programs by name; grants and \
                      approvals still belong to each program.",
            example: r#""one""#,
        },
        Key {
            name: "embedding_model",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("none; tools are selected by the words in their names and descriptions"),
            meaning: "The embedding model that selects the tools that best match the input, written as PROVIDER/MODEL. \
                      The provider must offer `/embeddings`.",
            example: r#""openai/text-embedding-3-small""#,
        },
        Key {
            name: "planner",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("none; one model does all the work"),
            meaning: "The model that makes a plan before the first step and writes the answer after the last step.",
            example: r#""ollama/qwen3:30b""#,
        },
        Key {
            name: "executor",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("`model`"),
            meaning: "The model that carries out the plan, with one tool call per step. Requires `planner`.",
            example: r#""ollama/qwen3:4b""#,
        },
    ],
};

pub(super) const TURN: Section = Section {
    path: &[],
    example: "",
    title: "Turns",
    about: "The limits of a turn and the requirements for its output.",
    keys: &[
        Key {
            name: "max_interactions",
            value: Value::Number(1, 1000),
            default: Default::Is("10"),
            meaning: "Maximum number of model calls in a turn.",
            example: "40",
        },
        Key {
            name: "at_limit",
            value: Value::Choice(&["finish", "error"]),
            default: Default::Is(r#""finish""#),
            meaning: "What happens when `max_interactions` is reached: `finish` makes a last call without tools, and \
                      `error` ends the turn with an error.",
            example: r#""error""#,
        },
        Key {
            name: "max_corrections",
            value: Value::Number(0, 100),
            default: Default::Is("2"),
            meaning: "Maximum number of times that the model may correct a rejected output.",
            example: "0",
        },
        Key {
            name: "parallel_calls",
            value: Value::Number(1, 64),
            default: Default::Is("4"),
            meaning: "Maximum number of tool calls that run at the same time.",
            example: "2",
        },
        Key {
            name: "result_characters",
            value: Value::Number(200, 1_048_576),
            default: Default::Is("6000"),
            meaning: "Maximum number of characters of a tool's result that are shown to the model. The model can read \
                      the rest with `read_result`.",
            example: "2000",
        },
        Key {
            name: "minimum_remaining",
            value: Value::Number(0, 1_000_000),
            default: Default::Is("1500"),
            meaning: "Number of tokens of the context window that must be free before a step. If fewer tokens are \
                      free, the turn ends with a final answer.",
            example: "3000",
        },
        Key {
            name: "max_depth",
            value: Value::Number(1, 16),
            default: Default::Is("4"),
            meaning: "Maximum length of a chain of delegations from agent to agent, counted from the agent that you \
                      prompt.",
            example: "2",
        },
        Key {
            name: "evict_at",
            value: Value::Number(1, 100),
            default: Default::Is("80"),
            meaning: "Percentage of the history budget above which the oldest messages are removed from the prompt. The \
                      budget is the part of the context window that is left after the system text, the tools and the \
                      reply. A summary of the removed messages stays in the prompt, and `memory_search` finds them.",
            example: "90",
        },
        Key {
            name: "evict_to",
            value: Value::Number(0, 99),
            default: Default::Is("50"),
            meaning: "Messages are removed until the remaining messages take at most this percentage of the history \
                      budget. Must be less than `evict_at`.",
            example: "40",
        },
        Key {
            name: "summary",
            value: Value::Choice(&["model", "extract"]),
            default: Default::Is(r#""model""#),
            meaning: "How removed messages are summarised: `model` asks a model, and `extract` takes the first \
                      sentences, the calls and the files from the messages.",
            example: r#""model""#,
        },
        Key {
            name: "summary_model",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("the model that answers"),
            meaning: "The model that summarises removed messages. If the command line names a model, that model also \
                      writes the summaries.",
            example: r#""ollama/qwen3:8b""#,
        },
        Key {
            name: "memory",
            value: Value::Choice(&["project", "user", "agent", "off"]),
            default: Default::Is(r#""project""#),
            meaning: "What is recalled from earlier sessions and remembered for later sessions. `user` recalls answers \
                      that all your agents gave you and results of this agent's own tools. `project` recalls only those \
                      of the project folder: the working folder, or the folder above it that contains `.git`. In a \
                      server, which has no project folder, it recalls only what this agent was told there. `agent` recalls only the \
                      answers and results of this agent. `off` neither recalls nor remembers anything. An agent that \
                      works for another agent recalls nothing.",
            example: r#""agent""#,
        },
        Key {
            name: "finish",
            value: Value::Choice(&["text", "tool"]),
            default: Default::Is(r#""text""#),
            meaning: "What ends a turn. With `text`, a reply without a tool call ends the turn. With `tool`, a call to \
                      `task_completion`, `ask_question` or `converse` ends the turn, and after a reply without a tool \
                      call, the host reminds the model to call one of these tools.",
            example: r#""text""#,
        },
        Key {
            name: "answer_within_ms",
            value: Value::Number(1, 2_592_000_000),
            default: Default::Words("no limit"),
            meaning: "Maximum time to wait for the answer to a question that was asked with `ask_question`, in \
                      milliseconds. After this time, the turn ends, and the question is its output.",
            example: "3600000",
        },
        Key {
            name: "persistence",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the host asks the model to continue after a reply in English that leaves work undone, \
                      refuses the task, or asks a question instead of acting. After an empty reply, the host asks for \
                      a summary. Has no effect with `finish = \"tool\"`.",
            example: "true",
        },
        Key {
            name: "include_history",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the output contains the session's messages. Messages of undone turns are never included.",
            example: "true",
        },
        Key {
            name: "output_schema",
            value: Value::Schema,
            default: Default::Words("none; the output is text"),
            meaning: "A JSON Schema that the output must satisfy.",
            example: r#"{ type = "object", required = ["answer"], properties = { answer = { type = "string" } } }"#,
        },
        Key {
            name: "validators",
            value: Value::Texts(TextFormat::Filled),
            default: NONE,
            meaning: "Plugins that validate the output, in this order, before it is checked against the schema.",
            example: r#"["strict-json"]"#,
        },
        Key {
            name: "context_builder",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("the built-in context builder"),
            meaning: "The plugin that builds the context.",
            example: r#""project-context""#,
        },
        Key {
            name: "media_policies",
            value: Value::Pairs(TextFormat::Line, TextFormat::Filled),
            default: NONE,
            meaning: "For each provider, the plugin that decides which media are shown to its models.",
            example: r#"{ openai = "mask-openai" }"#,
        },
    ],
};

pub(super) const UNITS: Section = Section {
    path: &["execution_units"],
    example: "execution_units",
    title: "Execution units",
    about: "How the `execution_units` in a turn's output are computed: the sum over all model calls of the turn, rounded \
            up to a whole unit. Each agent counts its own execution units.",
    keys: &[
        Key {
            name: "prompt_token",
            value: Value::Amount(MAX_UNITS),
            default: Default::Is("1"),
            meaning: "Units per token of the prompt.",
            example: "0.25",
        },
        Key {
            name: "completion_token",
            value: Value::Amount(MAX_UNITS),
            default: Default::Is("1"),
            meaning: "Units per token of the reply.",
            example: "2",
        },
        Key {
            name: "model_call",
            value: Value::Amount(MAX_UNITS),
            default: Default::Is("0"),
            meaning: "Units per model call, in addition to the units for its tokens. The calls for steps, summaries \
                      and plugins are counted.",
            example: "10",
        },
    ],
};
