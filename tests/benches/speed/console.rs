//! "Console": the web console in a real browser. Measures how soon a session with 10,000 messages is shown, the frames while 200
//! tokens per second stream, and the memory of a page that watches a session for a long time.

use crate::client::Client;
use crate::component::scratch;
use crate::process::ServeProcess;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::message::TurnInput;
use agent_models::provider;
use agent_plugins::{Generation, Sandbox, SandboxOptions};
use agent_runtime::{Agent, AgentConfig, Host, OpenSession, Session};
use agent_store::{Options, SqliteStore, Synchronous};
use serde_json::{Value, json};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use wasmtime::bail;
use wasmtime::error::Context;

/// Number of turns of the long session. Each turn has a prompt and a reply.
const TURNS: usize = 5_000;
const PAINTS: usize = 20;
/// Maximum time until the messages are shown, and between two frames at 60 frames per second.
const PAINT: Duration = Duration::from_millis(500);
const FRAME: Duration = Duration::from_micros(16_700);
const FRAME_SECONDS: u32 = 30;
/// Number of streamed tokens of a reply, and the time of each token. A reply takes a minute.
const TOKENS: usize = 12_000;
const TOKEN: Duration = Duration::from_millis(5);
/// Number of minutes for which the page watches a session, unless the variable contains another number.
const MINUTES: u64 = 3;
const MINUTES_VARIABLE: &str = "AGENT_HOST_BENCH_MINUTES";

/// Runs all measurements. Without the browser, the table says so.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.peers");
    let chromium = peers.join("chromium/usr/lib/chromium/chromium-headless-shell");
    if !chromium.is_file() {
        table.title("console: not measured, because Chromium is not installed (tests/install-peers)".to_owned());
        return Ok(());
    }
    let minutes = std::env::var(MINUTES_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(MINUTES);
    std::fs::create_dir_all(scratch())?;
    let folder = tempfile::tempdir_in(scratch())?;
    let long = create_long_session(folder.path()).await?;
    write_agent(folder.path(), "streamer", &streamed_replies(minutes))?;
    let server = ServeProcess::start(folder.path(), &["--agent", "long.toml", "--agent", "streamer.toml"]);
    let client = server.client();
    let created = client.post("/api/sessions", json!({"agent": "streamer", "prompt": "Go on."})).await.json(201);
    let streaming = created["session"].as_str().context("the session has an id")?.to_owned();
    let prompts = format!("/api/sessions/{}/prompts", crate::client::encoded(&streaming));
    let prompting = tokio::spawn(prompt_again_and_again(client, prompts, minutes + 2));
    let libraries = peers.join(format!("chromium/usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let settings = json!({
        "chromium": chromium,
        "libraries": format!("{}:{}", libraries.display(), libraries.join("pulseaudio").display()),
        "url": server.url(""),
        "token": server.token(),
        "long": long,
        "last": format!("Reply {TURNS}"),
        "streaming": streaming,
        "paints": PAINTS,
        "frame_seconds": FRAME_SECONDS,
        "minutes": minutes,
    });
    let measured = tokio::task::spawn_blocking(move || run(&peers, &settings)).await??;
    prompting.abort();
    show(&measured, minutes, table);
    Ok(())
}

/// Sends prompts, each as soon as the queue of the session has room for it.
async fn prompt_again_and_again(client: Client, path: String, count: u64) {
    for _ in 0..count {
        while client.post(&path, json!({"prompt": "Go on."})).await.status != 202 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn write_agent(folder: &Path, name: &str, replies: &Value) -> std::io::Result<()> {
    std::fs::write(folder.join(format!("{name}.json")), json!({ "replies": replies }).to_string())?;
    let agent = format!("name = \"{name}\"\nmodel = \"scripted:{name}.json\"\n");
    std::fs::write(folder.join(format!("{name}.toml")), agent)
}

/// Creates a session with [`TURNS`] turns, and returns its id.
async fn create_long_session(folder: &Path) -> wasmtime::Result<String> {
    let reply = |turn: usize| json!({"text": format!("**Reply {turn}**\n\n- one point\n- another point with `code`\n\n```rust\nfn turn() -> u32 {{ {turn} }}\n```\n")});
    write_agent(folder, "long", &(1..=TURNS).map(reply).collect())?;
    let data = folder.join("data");
    DirBuilder::new().mode(0o700).create(&data)?;
    let options = Options { synchronous: Synchronous::Off, ..Options::default() };
    let store = Arc::new(SqliteStore::open(data.join("agent-host.db"), options)?);
    let host = Host::new(store, Sandbox::new(SandboxOptions::default())?);
    let agent = Agent::new(AgentConfig::new("long"), provider("scripted:long.json", folder)?, Generation::new([]))?;
    let mut session = Session::open(&host, Arc::new(agent), OpenSession::New).await?;
    for turn in 1..=TURNS {
        let input = Some(TurnInput::Text(format!("Prompt {turn}")));
        session.run(input, CancellationToken::new()).await?;
    }
    let subject = session.subject().to_owned();
    session.close().await?;
    Ok(subject)
}

/// Replies that stream for a minute each.
fn streamed_replies(minutes: u64) -> Value {
    let word =
        |number: usize| if number % 12 == 11 { format!("token{number}.\n\n") } else { format!("token{number} ") };
    let chunks: Vec<String> = (0..TOKENS).map(word).collect();
    let delay = u64::try_from(TOKEN.as_millis()).unwrap_or_default();
    (0..minutes + 3).map(|_| json!({"chunks": chunks, "delay_ms": delay})).collect()
}

fn run(peers: &Path, settings: &Value) -> wasmtime::Result<Vec<Value>> {
    let repository: PathBuf = peers.join("../..");
    let output = Command::new(peers.join("node/node_modules/node/bin/node"))
        .arg(repository.join("tests/benches/peers/console.mjs"))
        .arg(settings.to_string())
        .current_dir(peers.join("node"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("the browser failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn show(measured: &[Value], minutes: u64, table: &mut Table) {
    let samples_of = |name: &str| {
        let mut samples = Samples::default();
        let times = measured.iter().filter_map(|measured| measured[name].as_f64());
        times.for_each(|milliseconds| samples.push(Duration::from_secs_f64(milliseconds / 1e3)));
        samples
    };
    let (paints, frames) = (samples_of("paint"), samples_of("frame"));
    let in_page = measured.iter().find_map(|measured| measured["messages"].as_u64()).unwrap_or_default();
    table.title(format!("console: a session of {} messages in a browser, 200 tokens per second", 2 * TURNS));
    let verdict = format!(
        "target {} ms: {}; {in_page} messages in the page",
        PAINT.as_millis(),
        reached(paints.slowest() <= PAINT)
    );
    table.line("from the navigation to the messages", paints, verdict);
    let late = measured.iter().filter_map(|measured| measured["frame"].as_f64()).filter(|time| *time > 25.0).count();
    let per_second = frames.count() as f64 / f64::from(FRAME_SECONDS);
    let verdict = format!(
        "{per_second:.1} frames per second, {late} of {} later than one frame; target 60: {}",
        frames.count(),
        reached(frames.median() <= FRAME && per_second >= 59.0)
    );
    table.line("time between two frames while a reply streams", frames, verdict);
    let held: Vec<String> = measured
        .iter()
        .filter(|measured| measured["minute"].is_u64())
        .map(|measured| format!("{:.1}", measured["bytes"].as_f64().unwrap_or_default() / 1e6))
        .collect();
    table.line(
        &format!("memory of the page in {minutes} minutes"),
        Samples::default(),
        format!("{} MB", held.join(", ")),
    );
}
