//! The keys of services and of the outbox.

use super::{Default, Form, Key, NONE, Section, Value};

pub(super) const SERVICE: Section = Section {
    path: &["services", "NAME"],
    example: "services.payments",
    title: "Services",
    about: "Work that is done outside the host. The model sees a tool NAME: 1 to 128 letters, digits, `_`, `-` or `.`. A call goes \
            out as a CloudEvent, and the turn waits for the answer: `agent-host session respond`.",
    keys: &[
        Key {
            name: "type",
            value: Value::Text(Form::EventType),
            default: Default::Words("NAME"),
            meaning: "CloudEvent type of its requests. Types that begin with `agent-host.` are the host's own.",
            example: r#""com.example.payment.requested""#,
        },
        Key {
            name: "description",
            value: Value::Text(Form::Filled),
            default: Default::Words("that it asks the service and waits"),
            meaning: "For the model: what the service does, and when to ask it.",
            example: r#""Pays an invoice. Takes up to a day.""#,
        },
        Key {
            name: "accepts",
            value: Value::Schema,
            default: Default::Words("any object"),
            meaning: "What a request's data must be. A property `parentSubject$$` is hidden from the model and filled in with the \
                      session's subject.",
            example: r#"{ type = "object", required = ["amount"], properties = { amount = { type = "number" } } }"#,
        },
        Key {
            name: "emits",
            value: Value::Schemas,
            default: Default::Words("any answer is taken"),
            meaning: "What an answer's data must be, by the answer's CloudEvent type; `\"*\"` is every type that is not named. Data \
                      that is otherwise becomes an error result; other types are refused.",
            example: r#"{ "com.example.payment.done" = { type = "object", required = ["receipt"] } }"#,
        },
        Key {
            name: "domain",
            value: Value::Text(Form::Line),
            default: NONE,
            meaning: "The attribute `domain` of its requests, for routing.",
            example: r#""eu""#,
        },
        Key {
            name: "answer_within_ms",
            value: Value::Number(1, 2_678_400_000),
            default: Default::Words("none: it waits for ever"),
            meaning: "Milliseconds until the model is told that no answer came. An answer after that is late.",
            example: "86400000",
        },
        Key {
            name: "priority",
            value: Value::Signed(-1000, 1000),
            default: Default::Is("0"),
            meaning: "Of the calls of one reply only those with the highest priority run.",
            example: "-1",
        },
    ],
};

pub(super) const OUTBOX: Section = Section {
    path: &["outbox"],
    example: "outbox",
    title: "Outbox",
    about: "Where events go: the requests to services, and more where it is wanted. Without a folder they stay in the database, and \
            `agent-host outbox list` shows them, `outbox deliver` writes them.",
    keys: &[
        Key {
            name: "directory",
            value: Value::Text(Form::Filled),
            default: NONE,
            meaning: "A folder that is there: each event becomes a JSON file in it, whole or not at all, and the same again if it is \
                      written twice.",
            example: r#""outbox""#,
        },
        Key {
            name: "completions",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the end of each turn is an event, too: `agent-host.turn.finished`, `.failed` or `.cancelled`.",
            example: "true",
        },
        Key {
            name: "approvals",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether a request to allow calls is an event, too: `agent-host.approval.requested`. It is answered with \
                      `agent-host.approval.resolved`, as a service is.",
            example: "true",
        },
    ],
};
