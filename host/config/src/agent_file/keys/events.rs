//! Keys of `[outbox]`, `[outbox.server]`, `[schedules.NAME]`, `[webhooks.NAME]` and `[events.NAME]`.

use super::{Default, Key, NONE, Section, TextFormat, Value};

pub(super) const OUTBOX: Section = Section {
    path: &["outbox"],
    example: "outbox",
    title: "Outbox",
    about: "Where outgoing events are delivered: requests to services, and the events that are enabled in this table. \
            An event is delivered when the folder, the server in `[outbox.server]` and the subject have it, if they are set. \
            Without them, events stay in the database: `agent-host outbox list` shows them, and `outbox deliver` writes them.",
    keys: &[
        Key {
            name: "directory",
            value: Value::Text(TextFormat::Filled),
            default: NONE,
            meaning: "An existing folder. Each event becomes a JSON file in this folder. The file is written \
                      atomically. Writing the same event twice results in the same file.",
            example: r#""outbox""#,
        },
        Key {
            name: "subject",
            value: Value::Text(TextFormat::Subject),
            default: NONE,
            meaning: "A subject of NATS to which each event is published. `agent-host serve` and `worker` do this with the \
                      option `--nats`, and repeat it until a JetStream stream has stored the event. See \
                      [several machines](fleet.md).",
            example: r#""agents.clerk.events""#,
        },
        Key {
            name: "completions",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether the end of each turn is also announced by an event: `agent-host.turn.finished`, `.failed` \
                      or `.cancelled`.",
            example: "true",
        },
        Key {
            name: "approvals",
            value: Value::Flag,
            default: Default::Is("false"),
            meaning: "Whether a request to approve calls is also announced by an event: `agent-host.approval.requested`. \
                      Such a request is answered with `agent-host.approval.resolved`, in the same way as a request to \
                      a service.",
            example: "true",
        },
    ],
};

pub(super) const OUTBOX_SERVER: Section = Section {
    path: &["outbox", "server"],
    example: "outbox.server",
    title: "Outbox server",
    about: "A server that receives outgoing events over HTTP, as CloudEvents 1.0. `agent-host serve` sends them, and \
            repeats failed requests after 1 s, 2 s, 4 s and so on, at most every 5 minutes, until the server answers \
            with a status from 200 to 299. The events of a session are sent in order. A server can receive an event \
            more than once, and recognises the repetition by the id. See [services](services.md).",
    keys: &[
        Key {
            name: "url",
            value: Value::Text(TextFormat::ServerUrl),
            default: Default::Words("none; required in this table"),
            meaning: "Address to which each event is sent with the method POST. Redirects are not followed.",
            example: r#""https://events.example.com/agents""#,
        },
        Key {
            name: "mode",
            value: Value::Choice(&["structured", "binary"]),
            default: Default::Is(r#""structured""#),
            meaning: "In structured mode, the body is the whole event as JSON. In binary mode, the body is the data of \
                      the event, and the attributes are headers such as `ce-id`.",
            example: r#""binary""#,
        },
        Key {
            name: "headers",
            value: Value::Pairs(TextFormat::PlainHeader, TextFormat::HeaderValue),
            default: NONE,
            meaning: "Headers that are sent with every request, by name. Put secrets into `header_env` instead.",
            example: r#"{ "X-Team" = "harbour" }"#,
        },
        Key {
            name: "header_env",
            value: Value::Pairs(TextFormat::Header, TextFormat::Variable),
            default: NONE,
            meaning: "Headers whose values are read from environment variables, by the name of the header.",
            example: r#"{ Authorization = "EVENTS_AUTHORIZATION" }"#,
        },
        Key {
            name: "signing_key_env",
            value: Value::Text(TextFormat::Variable),
            default: Default::Words("none: requests are not signed"),
            meaning: "Name of the environment variable that contains the key with which requests are signed, as the \
                      Standard Webhooks specification describes it (HMAC-SHA256). The key is `whsec_` and Base64, or \
                      any other text of at least 24 bytes. In binary mode, the signature covers only the id and the \
                      data.",
            example: r#""EVENTS_SIGNING_KEY""#,
        },
        Key {
            name: "request_timeout_ms",
            value: Value::Number(1, 600_000),
            default: Default::Is("10000"),
            meaning: "Maximum time of a request, in milliseconds.",
            example: "30000",
        },
    ],
};

pub(super) const SCHEDULE: Section = Section {
    path: &["schedules", "NAME"],
    example: "schedules.morning-report",
    title: "Schedules",
    about: "Times at which `agent-host serve` begins a session of this agent. Each run is a new session, which begins \
            exactly once, even if several hosts share the database. While the session of a run is still working, the \
            next run is skipped. NAME has 1 to 64 letters, digits, `-`, `_` or `.`. Schedules of a delegate have no \
            effect.",
    keys: &[
        Key {
            name: "times",
            value: Value::Text(TextFormat::Times),
            default: Default::Words("none; required in this table"),
            meaning: "A cron expression with the fields minute, hour, day of month, month and day of week, or an \
                      interval such as `every 15 minutes`, `every 2 hours` or `every 1 day`.",
            example: r#""0 7 * * mon-fri""#,
        },
        Key {
            name: "time_zone",
            value: Value::Text(TextFormat::TimeZone),
            default: Default::Is(r#""UTC""#),
            meaning: "Time zone of a cron expression. A time that summer time skips is skipped, and a time that occurs \
                      twice counts twice.",
            example: r#""Europe/Berlin""#,
        },
        Key {
            name: "prompt",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none; required in this table"),
            meaning: "Prompt of the session. The host adds the time of the run.",
            example: r#""Summarise what changed since yesterday.""#,
        },
        Key {
            name: "missed",
            value: Value::Choice(&["skip", "latest", "all"]),
            default: Default::Is(r#""latest""#),
            meaning: "What happens to runs at which no host was running, when a host starts: none of them is made up \
                      for, only the latest, or all (at most 100).",
            example: r#""skip""#,
        },
        Key {
            name: "user",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("the user of the host"),
            meaning: "User for whom the sessions work.",
            example: r#""ann""#,
        },
    ],
};

pub(super) const WEBHOOK: Section = Section {
    path: &["webhooks", "NAME"],
    example: "webhooks.tickets",
    title: "Webhooks",
    about: "Addresses at which `agent-host serve` accepts requests of other programs: `POST /webhooks/AGENT/NAME`. Each \
            request begins a session of this agent, whose prompt is the JSON data of the request. A request that is \
            repeated with the same id begins no second session: the id is in the header `webhook-id`, or it is that of \
            a CloudEvent. NAME has 1 to 64 letters, digits, `-`, `_` or `.`. \
            Webhooks of a delegate have no effect. See [server](server.md).",
    keys: &[
        Key {
            name: "prompt",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none: the prompt consists of the data"),
            meaning: "Text before the data of the request.",
            example: r#""A ticket was filed. Find out who should work on it.""#,
        },
        Key {
            name: "key_env",
            value: Value::Text(TextFormat::Variable),
            default: Default::Words("none: a request needs a token of the server with the right `talk`"),
            meaning: "Name of the environment variable that contains the key with which requests are signed. Requests \
                      with a valid signature need no token.",
            example: r#""TICKETS_SIGNING_KEY""#,
        },
        Key {
            name: "signature",
            value: Value::Choice(&["standard", "hub"]),
            default: Default::Is(r#""standard""#),
            meaning: "Form of the signature: `standard` is that of the Standard Webhooks specification, and `hub` is the \
                      header `X-Hub-Signature-256` with the signature of the body. With `hub`, a request with the same \
                      body as an earlier request is a repetition. Requires `key_env`.",
            example: r#""hub""#,
        },
        Key {
            name: "user",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("the user of the token, or else the user of the host"),
            meaning: "User for whom the sessions work.",
            example: r#""ann""#,
        },
    ],
};

pub(super) const EVENT: Section = Section {
    path: &["events", "NAME"],
    example: "events.orders",
    title: "Events",
    about: "Subjects of NATS from which `agent-host serve` and `worker` with the option `--nats` receive events. Each event \
            begins a session of this agent, whose prompt is the JSON data of the event. An event that answers a request to a \
            service is handed to the session instead. The subject must belong to a JetStream stream. An event that is \
            repeated with the same id begins no second session: the id is that of a CloudEvent, or the header `Nats-Msg-Id`. \
            NAME has 1 to 64 letters, digits, `-`, `_` or `.`. Events of a delegate have no effect. See \
            [several machines](fleet.md).",
    keys: &[
        Key {
            name: "subject",
            value: Value::Text(TextFormat::Subjects),
            default: Default::Words("none; required in this table"),
            meaning: "Subject of the events, in which `*` stands for one word, and `>` at the end for all further words. \
                      Everybody who may publish there can begin sessions of this agent.",
            example: r#""shop.orders.*""#,
        },
        Key {
            name: "stream",
            value: Value::Text(TextFormat::Server),
            default: Default::Words("the stream that contains the subject"),
            meaning: "Name of the JetStream stream.",
            example: r#""SHOP""#,
        },
        Key {
            name: "prompt",
            value: Value::Text(TextFormat::Filled),
            default: Default::Words("none: the prompt consists of the data"),
            meaning: "Text before the data of the event.",
            example: r#""An order has arrived. Check it.""#,
        },
        Key {
            name: "user",
            value: Value::Text(TextFormat::Line),
            default: Default::Words("the user of the host"),
            meaning: "User for whom the sessions work.",
            example: r#""ann""#,
        },
    ],
};
