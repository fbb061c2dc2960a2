//! Keys of `[budget]` and its tables, which limit tokens, money and time (O4).

use super::{Default, Key, Section, TextFormat, Value};

const UNLIMITED: Default = Default::Words("no limit");

/// The keys of each budget.
const LIMITS: &[Key] = &[
    Key {
        name: "tokens",
        value: Value::Limit(1, 1_000_000_000_000),
        default: UNLIMITED,
        meaning: "Maximum number of tokens of prompts and replies, including tokens of the provider's prompt cache.",
        example: "200000",
    },
    Key {
        name: "cost",
        value: Value::Amount(1_000_000),
        default: UNLIMITED,
        meaning: "Maximum cost in US dollars. A model whose price is not known is not called.",
        example: "0.50",
    },
    Key {
        name: "seconds",
        value: Value::Limit(1, 31_536_000),
        default: UNLIMITED,
        meaning: "Maximum time of work in seconds, after which no model is called. The time in which a turn waits for people, \
                  services or other agents does not count.",
        example: "600",
    },
];

pub(super) const BUDGET: Section = Section {
    path: &["budget"],
    example: "budget",
    title: "Budgets",
    about: "How many tokens, how much money and how much time may be used. Before each model call, the host checks that the \
            prompt and the longest possible reply fit into all budgets. If they do not, the turn ends with the error \
            `budget_exceeded`. Model calls for summaries and by plugins count, too.",
    keys: &[Key {
        name: "time_zone",
        value: Value::Text(TextFormat::TimeZone),
        default: Default::Is(r#""UTC""#),
        meaning: "Time zone in which the days of `[budget.agent_day]` and `[budget.user_day]` begin.",
        example: r#""Europe/Berlin""#,
    }],
};

pub(super) const BUDGET_TURN: Section = Section {
    path: &["budget", "turn"],
    example: "budget.turn",
    title: "Budget of a turn",
    about: "What each turn may use, including the work that it delegates to other agents.",
    keys: LIMITS,
};

pub(super) const BUDGET_SESSION: Section = Section {
    path: &["budget", "session"],
    example: "budget.session",
    title: "Budget of a session",
    about: "What all turns of a session may use, including the work that they delegate to other agents.",
    keys: LIMITS,
};

pub(super) const BUDGET_AGENT_DAY: Section = Section {
    path: &["budget", "agent_day"],
    example: "budget.agent_day",
    title: "Budget of the agent per day",
    about: "What all sessions of the agent may use on one day, for all users. The work of delegates counts for the \
            delegates' own agents.",
    keys: LIMITS,
};

pub(super) const BUDGET_USER_DAY: Section = Section {
    path: &["budget", "user_day"],
    example: "budget.user_day",
    title: "Budget of a user per day",
    about: "What a user may use on one day, with all agents that use the same data folder. Before a model call of this agent, \
            the usage of the user with all agents is compared with this limit.",
    keys: LIMITS,
};
