//! `dead-letter list`, `retry` and `drop`: shows the messages of NATS that no process could handle, and repeats or removes them (F2).

use crate::arguments::{DeadLetterCommand, NatsArguments, SelectedLetters};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_fleet::{DeadLetter, DeadLetterKind, FleetError, Nats};
use std::time::Duration;

/// Maximum time until NATS answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum displayed length of a name, in characters.
const MAX_NAME: usize = 120;
/// Maximum displayed length of a reason, in characters.
const MAX_REASON: usize = 400;

/// Runs a subcommand of `dead-letter`.
pub(crate) async fn run(command: DeadLetterCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    let (DeadLetterCommand::List { nats, .. }
    | DeadLetterCommand::Retry { nats, .. }
    | DeadLetterCommand::Drop { nats, .. }) = &command;
    let nats = connect(nats).await?;
    match command {
        DeadLetterCommand::List { json, .. } => list(&nats, json, terminal).await,
        DeadLetterCommand::Retry { selected, .. } => {
            let retry = async |number| nats.retry_dead_letter(number).await;
            for_each((&nats, &selected), ("repeated", retry), terminal).await
        }
        DeadLetterCommand::Drop { selected, .. } => {
            let drop = async |number| nats.drop_dead_letter(number).await;
            for_each((&nats, &selected), ("dropped", drop), terminal).await
        }
    }
}

async fn connect(arguments: &NatsArguments) -> Result<Nats, Failure> {
    let address = environment::nats(arguments)?.ok_or_else(|| {
        Failure::refused("name the NATS servers: add --nats nats://HOST:4222, or set the variable AGENT_HOST_NATS")
    })?;
    let nats = Nats::connect(&address).await.map_err(Failure::refused)?;
    nats.wait_until_usable(PATIENCE).await.map_err(Failure::refused)?;
    Ok(nats)
}

async fn list(nats: &Nats, json: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    let letters = nats.dead_letters().await.map_err(Failure::failed)?;
    for letter in &letters {
        let line = if json { serde_json::to_string(letter).map_err(Failure::failed)? } else { describe(letter) };
        terminal.print(line).map_err(Failure::output)?;
    }
    if letters.is_empty() && !json {
        terminal.note("there are no dead letters");
    }
    Ok(Exit::Done)
}

/// Does something with each of the selected dead letters. If one of them does not exist, the others are still handled.
async fn for_each(
    (nats, selected): (&Nats, &SelectedLetters),
    (done, action): (&str, impl AsyncFn(u64) -> Result<DeadLetter, FleetError>),
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let numbers = match selected.all {
        true => nats.dead_letters().await.map_err(Failure::failed)?.iter().map(|letter| letter.number).collect(),
        false => selected.numbers.clone(),
    };
    let (mut count, mut failure) = (0, None);
    for number in numbers {
        match action(number).await {
            Ok(letter) => {
                count += 1;
                if selected.json {
                    terminal
                        .print(serde_json::to_string(&letter).map_err(Failure::failed)?)
                        .map_err(Failure::output)?;
                }
            }
            // Somebody else may have handled it in the meantime.
            Err(FleetError::NoDeadLetter(_)) if selected.all => {}
            Err(error) => failure = Some(error),
        }
    }
    if !selected.json {
        terminal.note(format!("{done} {}", text::count(count, "dead letter")));
    }
    failure.map_or(Ok(Exit::Done), |error| Err(Failure::failed(error)))
}

fn describe(letter: &DeadLetter) -> String {
    let DeadLetter { number, kind, reason, deliveries, worker, time } = letter;
    let what = match kind {
        DeadLetterKind::Work { session } => format!("session {}", text::one_line(session, MAX_NAME)),
        DeadLetterKind::Event { agent, name } => {
            format!("event for {} of {}", text::one_line(name, MAX_NAME), text::one_line(agent, MAX_NAME))
        }
    };
    let deliveries = text::count(usize::try_from(*deliveries).unwrap_or(usize::MAX), "attempt");
    let (reason, worker) = (text::one_line(reason, MAX_REASON), text::one_line(worker, MAX_NAME));
    let time = text::one_line(time, MAX_NAME);
    format!("{BOLD}{number}{BOLD:#} {what}\n  {reason} {DIM}{time}, after {deliveries}, by {worker}{DIM:#}")
}
