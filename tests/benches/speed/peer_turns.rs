//! The same durable turn in other systems. Their programs run in processes of their own and measure themselves, and print
//! the time of each turn in microseconds.

use crate::postgres_server::Server;
use crate::samples::Samples;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use wasmtime::error::Context;

/// The measurements of another system. Without samples, the note says why.
pub(crate) struct PeerTurns {
    pub(crate) name: &'static str,
    pub(crate) samples: Samples,
    pub(crate) note: String,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("host/app is two levels deep")
}

fn peers() -> PathBuf {
    repository().join("tests/.peers")
}

/// Runs the turn in LangGraph, with its checkpointer for PostgreSQL in the same database server.
pub(crate) fn langgraph(database: &Server, turns: usize) -> wasmtime::Result<PeerTurns> {
    let name = "LangGraph, durability=\"sync\", with a Python function";
    let mut command = Command::new(peers().join("langgraph/bin/python"));
    command.arg(repository().join("tests/benches/peers/langgraph_turn.py"));
    command.arg(format!("host={} user=agent dbname=postgres", database.folder.display())).arg(turns.to_string());
    run(name, command)
}

/// Runs the turn in Restate, with its own log.
pub(crate) fn restate(turns: usize) -> wasmtime::Result<PeerTurns> {
    let mut command = Command::new(peers().join("node/node_modules/node/bin/node"));
    command.arg(repository().join("tests/benches/peers/restate_turn.mjs"));
    command.arg(peers().join("restate/node_modules")).arg(turns.to_string());
    run("Restate, three durable steps in JavaScript", command)
}

/// Runs a program that prints a line with versions, and then the time of each turn. It ends with the exit code 77 if the
/// system is not installed.
fn run(name: &'static str, mut command: Command) -> wasmtime::Result<PeerTurns> {
    let output = match command.stdin(Stdio::null()).stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(missing(name)),
        Err(error) => return Err(error.into()),
    };
    if output.status.code() == Some(77) {
        return Ok(missing(name));
    }
    let text = String::from_utf8(output.stdout)?;
    let (note, times) = text.split_once('\n').context("the program printed its versions")?;
    let mut samples = Samples::default();
    for line in times.lines() {
        samples.push(Duration::from_micros(line.parse()?));
    }
    if !output.status.success() || samples.count() == 0 {
        return Ok(PeerTurns { name, samples: Samples::default(), note: format!("failed: {}", output.status) });
    }
    Ok(PeerTurns { name, samples, note: note.to_owned() })
}

fn missing(name: &'static str) -> PeerTurns {
    let note = "not measured, because it is not installed (tests/install-peers --benchmarks)".to_owned();
    PeerTurns { name, samples: Samples::default(), note }
}
