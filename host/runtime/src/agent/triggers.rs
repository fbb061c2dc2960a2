//! What begins turns of an agent without a user: schedules, webhooks and events of other systems (I9).

use super::UserName;
use crate::schedule_times::ScheduleTimes;
use crate::signature::SigningKey;
use agent_fleet::EventSource;
use std::sync::Arc;

/// Begins a session at fixed times, while a [`Supervisor`](crate::Supervisor) runs the agent.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// When the schedule begins a session.
    pub times: ScheduleTimes,
    /// The prompt of the session. The host adds the time for which the session begins.
    pub prompt: Arc<str>,
    /// What happens to times at which no host was running.
    pub missed: MissedRuns,
    /// The user for whom the sessions work. `None` means the user in the agent's configuration.
    pub user: Option<UserName>,
}

/// What happens to the times of a schedule at which no host was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedRuns {
    /// They are skipped.
    Skip,
    /// One session begins for the latest of them.
    #[default]
    Latest,
    /// A session begins for each of them, but at most for the latest 100.
    All,
}

/// Begins a session for each request that another program sends to the server.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Text before the data of the request. `None` means that the prompt consists of the data.
    pub prompt: Option<Arc<str>>,
    /// How requests are authenticated.
    pub authentication: WebhookAuthentication,
    /// The user for whom the sessions work. `None` means the user in the agent's configuration.
    pub user: Option<UserName>,
}

/// Begins a session for each event that comes over NATS, or hands the event to the session whose request it answers.
#[derive(Clone, Debug)]
pub struct EventInput {
    /// Where the events come from.
    pub source: EventSource,
    /// Text before the data of the event. `None` means that the prompt consists of the data.
    pub prompt: Option<Arc<str>>,
    /// The user for whom the sessions work. `None` means the user in the agent's configuration.
    pub user: Option<UserName>,
}

/// How the requests to a webhook are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAuthentication {
    /// With a token of the server.
    Token,
    /// With a signature as the Standard Webhooks specification describes it.
    Standard(SigningKey),
    /// With the header `X-Hub-Signature-256`, which contains `sha256=` and the signature of the body in hexadecimal digits.
    /// The signature contains neither an id nor a time, so requests with the same body begin only one session.
    Hub(SigningKey),
}
