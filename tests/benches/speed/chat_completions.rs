//! "Chat completions": requests to `/v1/chat/completions` of the host's server with a scripted model, beside requests to a bare
//! axum handler in the same process. Both use one connection each, over loopback, which is kept open.

use crate::agent::{in_memory, scripted};
use crate::samples::Samples;
use crate::table::Table;
use agent_plugins::{Sandbox, SandboxOptions};
use agent_runtime::{Host, LiveAgent, Supervisor, SupervisorOptions};
use agent_serve::{NewToken, Right, Server, ServerOptions, TokenFile};
use agent_store::{Options, SqliteStore};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use wasmtime::{bail, format_err};

const WARM_UP: usize = 50;
const ROUNDS: usize = 1_000;
const PATH: &str = "/v1/chat/completions";

/// Measures both servers alternately. Each request to the host begins a session, whose commits are durable.
pub(crate) async fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let (directory, location) = in_memory()?;
    let store = Arc::new(SqliteStore::open(directory.path().join("sessions.db"), Options::default())?);
    let agent = scripted(directory.path(), 1)?;
    let name = agent.config().name.clone();
    // A session stays open for a short time only, so that the number of open sessions stays below its limit.
    let options = SupervisorOptions { idle_timeout: Duration::from_millis(20), ..SupervisorOptions::default() };
    let host = Host::new(store, Sandbox::new(SandboxOptions::default())?);
    let agents = BTreeMap::from([(name.clone(), LiveAgent::new(agent))]);
    let supervisor = Supervisor::start(host, agents, options);
    let tokens = TokenFile::new(directory.path().join("tokens.json"));
    let rights = [Right::Read, Right::Talk].into();
    let token = tokens.create(NewToken { name: "bench".to_owned(), agents: Vec::new(), rights, user: None })?;
    let server = Server::start(supervisor.clone(), ServerOptions::new(([127, 0, 0, 1], 0).into(), tokens)).await?;
    let (bare_address, bare_server) = bare_server().await?;
    let body = json!({"model": name, "messages": [{"role": "user", "content": "How many lines has notes.txt?"}]});
    let address = server.address().ok_or_else(|| format_err!("the server has no address"))?;
    let mut clients =
        [Client::connect(bare_address, &token, &body).await?, Client::connect(address, &token, &body).await?];
    let mut samples: [Samples; 2] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        for (client, samples) in clients.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            let answer = client.exchange().await?;
            let elapsed = start.elapsed();
            if answer["choices"][0]["message"]["content"] != "It has 42 lines." {
                bail!("the answer is {answer}");
            }
            if round >= WARM_UP {
                samples.push(elapsed);
            }
        }
    }
    drop(clients);
    bare_server.abort();
    server.shutdown().await;
    supervisor.shutdown().await;
    show(samples, location, table);
    Ok(())
}

fn show([bare, host]: [Samples; 2], location: &str, table: &mut Table) {
    table.title(format!(
        "chat completions: one connection, a new session per request, store {location}, {} samples each",
        host.count()
    ));
    let per_second = |samples: &Samples| 1.0 / samples.median().as_secs_f64();
    let (bare_rate, host_rate) = (per_second(&bare), per_second(&host));
    let verdict = format!("{host_rate:.0} requests/s, {:.1} times the time of the bare handler", bare_rate / host_rate);
    table.line("bare axum handler", bare, format!("{bare_rate:.0} requests/s"));
    table.line("host, with a scripted model", host, verdict);
}

/// Starts a server whose only handler parses a request and returns an answer of the same size.
async fn bare_server() -> wasmtime::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let handler = |Json(request): Json<Value>| async move {
        let message = json!({"role": "assistant", "content": "It has 42 lines.", "refusal": null});
        let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"}]);
        Json(json!({
            "id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": request["model"], "choices": choices,
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        // The task is aborted at the end of the benchmark.
        let _ = axum::serve(listener, Router::new().route(PATH, post(handler))).await;
    });
    Ok((address, serving))
}

/// Sends the same request again and again over one connection.
struct Client {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr, token: &str, body: &Value) -> wasmtime::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let body = body.to_string();
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Self { stream: BufReader::new(stream), request: request.into_bytes() })
    }

    async fn exchange(&mut self) -> wasmtime::Result<Value> {
        self.stream.write_all(&self.request).await?;
        let mut length = None;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the server closed the connection");
            }
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = Some(value.parse::<usize>()?),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length.ok_or_else(|| format_err!("the answer has no length"))?];
        self.stream.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }
}
