//! Checks whether the process can use NATS, if servers are named.

use super::{Finding, Level};
use crate::arguments::NatsArguments;
use crate::environment;
use agent_fleet::{FleetError, Nats};
use std::time::Duration;

const NATS: &str = "NATS";
/// Maximum time until NATS answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the NATS servers that the options or the environment name, and asks for JetStream. Nothing is created there.
pub(super) async fn check(arguments: &NatsArguments) -> Option<Finding> {
    let address = match environment::nats(arguments) {
        Ok(address) => address?,
        Err(error) => {
            let fix = "see the message; `agent-host serve` and `agent-host worker` do not start before";
            return Some(Finding::new(NATS, Level::Error, error.to_string(), fix));
        }
    };
    let usable = async {
        let nats = Nats::connect(&address).await?;
        nats.wait_until_usable(PATIENCE).await
    };
    Some(match usable.await {
        Ok(()) => Finding::ok(NATS, format!("{address} answers, with JetStream")),
        Err(error @ FleetError::Unreachable { .. }) => {
            let fix = "sessions work without NATS; until it answers, processes find their work in the database";
            Finding::new(NATS, Level::Warning, error.to_string(), fix)
        }
        Err(error) => Finding::new(NATS, Level::Error, error.to_string(), "see the message"),
    })
}
