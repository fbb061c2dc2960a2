//! If an agent has many tools, the host offers the model only the tools that are nearest to the input. If there
//! is an embedding model, the host compares the meaning of tools and input; otherwise, it compares their words (L25).

use crate::chat_server::local_provider;
use crate::support::{TestHost, call_reply, events, records, results, run_turn, script, text_reply};
use agent_core::event::EventKind;
use agent_models::Embedder;
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An embedding server on loopback. The server returns one vector for every text about echoes or repeating, and a
/// different vector for every other text.
pub(crate) struct EmbeddingServer {
    base_url: String,
    texts: Arc<Mutex<Vec<Vec<String>>>>,
    accepting: JoinHandle<()>,
}

impl EmbeddingServer {
    pub(crate) async fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let texts = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn({
            let texts = texts.clone();
            async move {
                while let Ok((connection, _)) = listener.accept().await {
                    tokio::spawn(serve(connection, status, texts.clone()));
                }
            }
        });
        Self { base_url, texts, accepting }
    }

    pub(crate) fn embedder(&self) -> Arc<Embedder> {
        let policy = agent_models::RetryPolicy { attempts: 1, ..Default::default() };
        Arc::new(local_provider(&self.base_url).embedder("local/embedder").unwrap().with_retry(policy))
    }

    /// Returns the number of texts in each request that the server has received.
    pub(crate) fn requests(&self) -> Vec<usize> {
        self.texts.lock().unwrap().iter().map(Vec::len).collect()
    }
}

impl Drop for EmbeddingServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(connection: TcpStream, status: &str, texts: Arc<Mutex<Vec<Vec<String>>>>) {
    let mut connection = BufReader::new(connection);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if connection.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            let header = line.to_ascii_lowercase();
            length = header.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let input: Vec<String> = serde_json::from_value(body["input"].clone()).unwrap();
        let is_echo = |text: &str| text.contains("echo") || text.contains("repeat");
        let vectors = input.iter().map(|text| if is_echo(text) { [1.0, 0.1] } else { [0.1, 1.0] });
        let data: Vec<Value> =
            vectors.enumerate().map(|(index, vector)| json!({"index": index, "embedding": vector})).collect();
        texts.lock().unwrap().push(input);
        let answer = json!({"data": data, "error": {"message": "no"}}).to_string();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", answer.len());
        connection.get_mut().write_all(format!("{head}{answer}").as_bytes()).await.unwrap();
    }
}

async fn open(test_host: &TestHost, embedder: Option<Arc<Embedder>>, replies: &[Value]) -> Session {
    let mut config = AgentConfig::new("test");
    config.offered_tools = 3;
    let file = test_host.directory.path().join("model.json");
    std::fs::write(&file, script(replies).to_string()).unwrap();
    let model = agent_models::provider("scripted:model.json", test_host.directory.path()).unwrap();
    let mut models = Models::new(model, []);
    models.embedder = embedder;
    let agent = Agent::new(config, models, test_host.generation().await).unwrap();
    Session::open(&test_host.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

async fn run_to_answer(session: &mut Session, prompt: &str) {
    let result = run_turn(session, prompt).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
}

/// L25: Without an embedding model, the host selects tools by words once per turn, so that the beginning of the
/// prompt does not change within the turn. The tool `read_result` is always selected. For the next turn, the host
/// makes a new selection, which contains the tools that were used before.
#[tokio::test(flavor = "multi_thread")]
async fn l25_selects_tools_by_words_once_per_turn() {
    let test_host = TestHost::new(&["probe"]).await;
    let expecting_tools = |mut reply: Value, tools: [&str; 3]| {
        reply["expect"] = json!({"tools": tools});
        reply
    };
    let sleep_tools = ["probe.sleep", "probe.slow", "read_result"];
    let replies = [
        expecting_tools(call_reply(&[("probe.sleep", json!({"ms": 1}))]), sleep_tools),
        expecting_tools(text_reply("Slept."), sleep_tools),
        expecting_tools(text_reply("Read."), ["probe.env", "probe.sleep", "read_result"]),
    ];
    let mut session = open(&test_host, None, &replies).await;
    run_to_answer(&mut session, "Sleep for some milliseconds").await;
    run_to_answer(&mut session, "value of the environment variable, text of a file").await;
    let offered = events(&test_host, &session).await.into_iter().filter_map(|event| match event.kind {
        EventKind::ContextBuilt { offered_tools, .. } => Some(offered_tools),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), [Some(3); 3]);
    // L26: The context budget counts the tokens of the offered tools and of no other tools.
    let budget = session.state().turn.as_ref().unwrap().budget.tools;
    let all_tools = session.agent().registry().tokens();
    assert!(budget > 0 && budget < all_tools / 2, "{budget} of {all_tools}");
    let records = records(&test_host, &session, 1).await;
    let context = records.iter().find(|stored| stored.record.kind == "context").unwrap();
    assert_eq!(context.record.body["offered"], json!(sleep_tools));
}

/// L25: If the model calls a tool that is not offered, the tool still runs, because the model may know the tool from
/// the history.
#[tokio::test(flavor = "multi_thread")]
async fn l25_a_tool_that_is_not_offered_still_runs() {
    let test_host = TestHost::new(&["probe"]).await;
    let mut call = call_reply(&[("probe.echo", json!({"text": "hello"}))]);
    call["expect"] = json!({"withholds": "probe.echo"});
    let mut session = open(&test_host, None, &[call, text_reply("Done.")]).await;
    run_to_answer(&mut session, "Sleep for some milliseconds").await;
    assert!(!results(&test_host, &session).await[0].1);
}

/// L25: If the input does not describe a task, such as "yes, please go on", the tools of the previous turn are
/// offered again.
#[tokio::test(flavor = "multi_thread")]
async fn l25_a_short_answer_keeps_the_tools_of_the_conversation() {
    let test_host = TestHost::new(&["probe"]).await;
    let offering = |mut reply: Value, tools: &[&str]| {
        reply["expect"] = json!({"offers": tools});
        reply
    };
    let replies = [
        call_reply(&[("probe.echo", json!({"text": "hello"}))]),
        text_reply("Shall I sleep for some milliseconds now?"),
        offering(text_reply("Done."), &["probe.echo", "probe.sleep"]),
    ];
    let mut session = open(&test_host, None, &replies).await;
    run_to_answer(&mut session, "Echo a text").await;
    run_to_answer(&mut session, "yes, please go on").await;
}

/// L25: An embedding model selects tools by meaning, even if no word of the input matches. The host embeds the tools
/// once per generation, and keeps the vectors in the store.
#[tokio::test(flavor = "multi_thread")]
async fn l25_selects_tools_by_meaning() {
    let test_host = TestHost::new(&["probe"]).await;
    let server = EmbeddingServer::start("200 OK").await;
    let mut reply = text_reply("Hello.");
    reply["expect"] = json!({"offers": ["probe.echo", "read_result"]});
    let replies = [reply.clone(), reply.clone()];
    let mut session = open(&test_host, Some(server.embedder()), &replies).await;
    run_to_answer(&mut session, "repeat after me").await;
    run_to_answer(&mut session, "repeat after me").await;
    let tools = session.agent().registry().offered().len();
    assert_eq!(server.requests(), [tools, 1, 1]);
    session.close().await.unwrap();
    // A new agent, which stands for a new process, finds the vectors in the store and does not embed the tools again.
    let mut session = open(&test_host, Some(server.embedder()), &[reply]).await;
    run_to_answer(&mut session, "repeat after me").await;
    assert_eq!(server.requests(), [tools, 1, 1, 1]);
}

/// L25: If the embedding model fails, tools are selected by words, and the turn continues.
#[tokio::test(flavor = "multi_thread")]
async fn l25_falls_back_to_words_when_the_embedding_model_fails() {
    let test_host = TestHost::new(&["probe"]).await;
    let server = EmbeddingServer::start("500 Internal Server Error").await;
    let mut reply = text_reply("Slept.");
    reply["expect"] = json!({"tools": ["probe.sleep", "probe.slow", "read_result"]});
    let mut session = open(&test_host, Some(server.embedder()), &[reply]).await;
    run_to_answer(&mut session, "Sleep for some milliseconds").await;
    assert_eq!(server.requests().len(), 1);
}

/// L25: By default, an agent offers at most 15 tools to the model.
#[test]
fn l25_fifteen_tools_are_offered_by_default() {
    assert_eq!(AgentConfig::new("test").offered_tools, 15);
}
