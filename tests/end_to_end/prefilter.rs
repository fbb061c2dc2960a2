//! Many tools, of which a model is offered those nearest to the input: by words, and by the meaning that an embedding model
//! says (L25).

use crate::chat_server::local;
use crate::support::{House, calling, events, records, results, saying, script, turn};
use agent_core::event::EventKind;
use agent_models::Embedder;
use agent_runtime::{Agent, AgentConfig, Models, OpenSession, Session, TurnResult};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// An embedding server on loopback to which all texts about echoes and repeating mean one thing, and all others another.
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
        Arc::new(local(&self.base_url).embedder("local/embedder").unwrap().with_retry(policy))
    }

    /// How many texts each request had.
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

async fn open(house: &House, embedder: Option<Arc<Embedder>>, replies: &[Value]) -> Session {
    let mut config = AgentConfig::new("test");
    config.offered_tools = 2;
    let file = house.directory.path().join("model.json");
    std::fs::write(&file, script(replies).to_string()).unwrap();
    let model = agent_models::provider("scripted:model.json", house.directory.path()).unwrap();
    let mut models = Models::new(model, []);
    models.embedder = embedder;
    let agent = Agent::new(config, models, house.generation().await).unwrap();
    Session::open(&house.host(), Arc::new(agent), OpenSession::New).await.unwrap()
}

async fn finishes(session: &mut Session, prompt: &str) {
    let result = turn(session, prompt).await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
}

/// L25: by words; once a turn, so that the prompt stays stable; `read_result` is always there; the next turn chooses anew.
#[tokio::test(flavor = "multi_thread")]
async fn l25_by_words_once_a_turn() {
    let house = House::new(&["probe"]).await;
    let two = |mut reply: Value, tools: [&str; 4]| {
        reply["expect"] = json!({"tools": tools});
        reply
    };
    let sleepy = ["memory_search", "probe.sleep", "probe.slow", "read_result"];
    let replies = [
        two(calling(&[("probe.sleep", json!({"ms": 1}))]), sleepy),
        two(saying("Slept."), sleepy),
        two(saying("Read."), ["probe.env", "probe.file", "memory_search", "read_result"]),
    ];
    let mut session = open(&house, None, &replies).await;
    finishes(&mut session, "Sleep for some milliseconds").await;
    finishes(&mut session, "value of the environment variable, text of a file").await;
    let offered = events(&house, &session).await.into_iter().filter_map(|event| match event.kind {
        EventKind::ContextBuilt { offered_tools, .. } => Some(offered_tools),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), [Some(4); 3]);
    // L26: the budget is that of what is offered.
    let budget = session.state().turn.as_ref().unwrap().budget.tools;
    let all = session.agent().registry().tokens();
    assert!(budget > 0 && budget < all / 2, "{budget} of {all}");
    let records = records(&house, &session, 1).await;
    let context = records.iter().find(|stored| stored.record.kind == "context").unwrap();
    assert_eq!(context.record.body["offered"], json!(sleepy));
}

/// L25: a tool that is not offered this time is still there: the model may know it from the history.
#[tokio::test(flavor = "multi_thread")]
async fn l25_what_is_not_offered_still_runs() {
    let house = House::new(&["probe"]).await;
    let mut call = calling(&[("probe.echo", json!({"text": "hello"}))]);
    call["expect"] = json!({"withholds": "probe.echo"});
    let mut session = open(&house, None, &[call, saying("Done.")]).await;
    finishes(&mut session, "Sleep for some milliseconds").await;
    assert!(!results(&house, &session).await[0].1);
}

/// L25: by meaning, where no word is the same; the tools are embedded once a generation, and kept in the store.
#[tokio::test(flavor = "multi_thread")]
async fn l25_by_meaning() {
    let house = House::new(&["probe"]).await;
    let server = EmbeddingServer::start("200 OK").await;
    let mut reply = saying("Hello.");
    reply["expect"] = json!({"offers": ["probe.echo", "memory_search", "read_result"]});
    let replies = [reply.clone(), reply.clone()];
    let mut session = open(&house, Some(server.embedder()), &replies).await;
    finishes(&mut session, "repeat after me").await;
    finishes(&mut session, "repeat after me").await;
    let tools = session.agent().registry().offered().len();
    assert_eq!(server.requests(), [tools, 1, 1]);
    session.close().await.unwrap();
    // Another process: the store has them.
    let mut session = open(&house, Some(server.embedder()), &[reply]).await;
    finishes(&mut session, "repeat after me").await;
    assert_eq!(server.requests(), [tools, 1, 1, 1]);
}

/// L25: without the embedding model words decide, and the turn goes on.
#[tokio::test(flavor = "multi_thread")]
async fn l25_an_embedding_model_that_fails() {
    let house = House::new(&["probe"]).await;
    let server = EmbeddingServer::start("500 Internal Server Error").await;
    let mut reply = saying("Slept.");
    reply["expect"] = json!({"tools": ["probe.sleep", "probe.slow", "memory_search", "read_result"]});
    let mut session = open(&house, Some(server.embedder()), &[reply]).await;
    finishes(&mut session, "Sleep for some milliseconds").await;
    assert_eq!(server.requests().len(), 1);
}

/// L25: K is 15 unless an agent says otherwise.
#[test]
fn l25_fifteen_tools_are_offered_by_default() {
    assert_eq!(AgentConfig::new("test").offered_tools, 15);
}
