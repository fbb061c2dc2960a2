//! The configurations of providers in the guide about models.

use super::server::{FormatServer, ScriptedReply};
use crate::support::{agent_host, repository};
use std::process::Stdio;

/// Returns the first configuration in the guide that contains this text.
fn configuration_in_guide(part: &str) -> String {
    let guide = std::fs::read_to_string(repository().join("host/docs/guide/models.md")).unwrap();
    let blocks = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.into_iter().find(|block| block.contains(part)).expect("the guide contains the configuration").to_owned()
}

/// M1, M2: With the configurations in the guide, requests to OpenAI on Azure, Amazon Bedrock, Vertex AI and OpenRouter
/// have the documented paths, formats and keys. The test replaces only the hosts of the addresses.
#[tokio::test(flavor = "multi_thread")]
async fn m1_documented_providers_receive_their_paths_and_keys() {
    let reply = |_: usize, _: &_| ScriptedReply { text: "hello".to_owned(), ..ScriptedReply::default() };
    let server = FormatServer::start(reply).await;
    let folder = tempfile::tempdir().unwrap();
    let configured = configuration_in_guide("[providers.azure]");
    let line = |line: &str| match line.strip_prefix("base_url = \"https://").and_then(|rest| rest.split_once('/')) {
        Some((_, path)) => format!("base_url = \"http://{}/{path}\n", server.address),
        None => format!("{line}\n"),
    };
    let configured: String = configured.lines().map(line).collect();
    let openrouter = format!("[providers.openrouter]\nbase_url = \"http://{}/api/v1\"\n", server.address);
    std::fs::write(folder.path().join("agent.toml"), configured + &openrouter).unwrap();
    let gemini =
        "/v1/projects/PROJECT/locations/REGION/publishers/google/models/gemini-3:streamGenerateContent?alt=sse";
    let cases = [
        ("azure/gpt-5", "/openai/v1/responses", ("api-key", "azure-key")),
        ("bedrock/openai.gpt-oss", "/openai/v1/chat/completions", ("authorization", "Bearer bedrock-key")),
        ("vertex/gemini-3", gemini, ("authorization", "Bearer vertex-token")),
        ("openrouter/a/b", "/api/v1/chat/completions", ("authorization", "Bearer openrouter-key")),
    ];
    for (model, path, (header, value)) in cases {
        let mut command = agent_host();
        command.current_dir(folder.path()).env("AGENT_HOST_DATA", folder.path().join("data")).stdin(Stdio::null());
        let keys = [
            ("AZURE_OPENAI_API_KEY", "azure-key"),
            ("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key"),
            ("VERTEX_AUTHORIZATION", "Bearer vertex-token"),
            ("OPENROUTER_API_KEY", "openrouter-key"),
        ];
        command.envs(keys).args(["--agent", "agent.toml", "--model", model, "Say hello."]);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let printed = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(printed.0.trim(), "hello", "{model}: {printed:?}");
        let received = server.received().pop().expect("a request");
        assert_eq!(received.path, path, "{model}");
        assert_eq!(received.headers.get(header).map(String::as_str), Some(value), "{model}");
        let keys = received.headers.values().filter(|value| keys.iter().any(|(_, key)| value.contains(key)));
        assert_eq!(keys.count(), 1, "{model}: exactly one key is sent: {:?}", received.headers);
    }
}
