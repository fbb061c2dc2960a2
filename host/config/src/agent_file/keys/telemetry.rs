//! Keys of `[telemetry]`.

use super::{Default, Key, NONE, Section, TextFormat, Value};

pub(super) const TELEMETRY: Section = Section {
    path: &["telemetry"],
    example: "telemetry",
    title: "Telemetry",
    about: "A collector that receives a trace of each turn of this agent and of its delegates, as OTLP over HTTP. Spans \
            have the attributes of OpenInference and of the OpenTelemetry conventions for generative models. A collector \
            that cannot be reached neither slows nor fails a turn: the spans are sent later. `[telemetry]` of a delegate \
            has no effect. See [telemetry](telemetry.md).",
    keys: &[
        Key {
            name: "endpoint",
            value: Value::Text(TextFormat::ServerUrl),
            default: Default::Words("none; nothing is exported"),
            meaning: "Address of the collector. The host adds `/v1/traces`, unless the address ends with it.",
            example: r#""http://localhost:4318""#,
        },
        Key {
            name: "content",
            value: Value::Choice(&["off", "shortened", "complete"]),
            default: Default::Is(r#""shortened""#),
            meaning: "How much content leaves the host: inputs, outputs, messages, arguments, results, paths and error \
                      messages. `off` exports only names, times, tokens and costs. `shortened` exports the first 1,000 \
                      characters of each text and the last 10 messages of each prompt. `complete` exports at most 64 KiB \
                      of each text, 1 MiB for each span and 200 messages of each prompt. Media and secrets are never \
                      exported.",
            example: r#""off""#,
        },
        Key {
            name: "redact",
            value: Value::Texts(TextFormat::Filled),
            default: NONE,
            meaning: "Regular expressions. Each match in an exported text is replaced by `(redacted)`.",
            example: r"['\b\d{3}-\d{2}-\d{4}\b']",
        },
        Key {
            name: "project",
            value: Value::Text(TextFormat::Line),
            default: Default::Is(r#""agent-host""#),
            meaning: "Name under which viewers such as Phoenix group the traces.",
            example: r#""harbour""#,
        },
        Key {
            name: "metrics",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether `agent-host serve` also sends its metrics to the collector, once per minute. The metrics describe all \
                      agents of the server. The host adds `/v1/metrics` to the address.",
            example: "true",
        },
        Key {
            name: "headers",
            value: Value::Pairs(TextFormat::PlainHeader, TextFormat::HeaderValue),
            default: NONE,
            meaning: "Headers that are sent with every request, by name. Put secrets into `header_env` instead.",
            example: r#"{ "x-langfuse-ingestion-version" = "4" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(TextFormat::Header, TextFormat::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by the name of the header.",
            example: r#"{ Authorization = "COLLECTOR_AUTHORIZATION" }"#,
        },
        Key {
            name: "request_timeout_ms",
            value: Value::Number(1, 600_000),
            default: Default::Is("10000"),
            meaning: "Maximum time of a request to the collector, in milliseconds.",
            example: "30000",
        },
        Key {
            name: "max_age_hours",
            value: Value::Number(1, 8_760),
            default: Default::Is("168"),
            meaning: "Spans that ended longer ago are not sent any more, for example because the collector could not be \
                      reached.",
            example: "24",
        },
    ],
};
