//! Keys of `[services.NAME]`.

use super::{Default, Key, NONE, Section, TextFormat, Value};

pub(super) const SERVICE: Section = Section {
    path: &["services", "NAME"],
    example: "services.payments",
    title: "Services",
    about: "Services that do work outside the host. The model sees each service as a tool with the name NAME, which \
            has 1 to 128 letters, digits, `_`, `-` or `.`. A call is sent as a CloudEvent, and the turn waits for the \
            answer, which `agent-host session respond` delivers.",
    keys: &[
        Key {
            name: "type",
            value: Value::Text(TextFormat::EventType),
            default: Default::Words("NAME"),
            meaning: "CloudEvent type of the service's requests. Types that begin with `agent-host.` are reserved for the \
                      host.",
            example: r#""com.example.payment.requested""#,
        },
        Key {
            name: "description",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("a sentence that says that the tool asks the service and waits"),
            meaning: "What the service does and when to use it, for the model.",
            example: r#""Pays an invoice. Takes up to a day.""#,
        },
        Key {
            name: "accepts",
            value: Value::Schema,
            default: Default::Words("any object"),
            meaning: "JSON Schema for the data of a request. A property `parentSubject$$` is hidden from the model and \
                      filled in with the session's subject.",
            example: r#"{ type = "object", required = ["amount"], properties = { amount = { type = "number" } } }"#,
        },
        Key {
            name: "emits",
            value: Value::Schemas,
            default: Default::Words("any answer is accepted"),
            meaning: "JSON Schemas for the data of answers, by the CloudEvent type of the answer; `\"*\"` applies to \
                      every type that is not listed. An answer whose data does not match becomes an error result. An \
                      answer of a type that no entry covers is rejected.",
            example: r#"{ "com.example.payment.done" = { type = "object", required = ["receipt"] } }"#,
        },
        Key {
            name: "domain",
            value: Value::Text(TextFormat::Line),
            default: NONE,
            meaning: "The attribute `domain` of the service's requests, for routing.",
            example: r#""eu""#,
        },
        Key {
            name: "answer_within_ms",
            value: Value::Number(1, 2_678_400_000),
            default: Default::Words("no limit"),
            meaning: "Milliseconds until the model is told that no answer came. An answer that arrives after this time \
                      is treated as late.",
            example: "86400000",
        },
        Key {
            name: "priority",
            value: Value::Signed(-1000, 1000),
            default: Default::Is("0"),
            meaning: "Priority of calls to this service. Of all calls in one reply, only the calls with the highest \
                      priority run.",
            example: "-1",
        },
    ],
};
