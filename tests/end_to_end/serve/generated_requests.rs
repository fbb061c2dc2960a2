//! Generated requests to every route: no request makes the server fail, and every answer is one that the OpenAPI document
//! describes (I3, row 26). The requests come from a third-party program.

use super::process::ServeProcess;
use crate::peers::python_peer;
use crate::support::components;
use serde_json::json;
use std::process::Command;

/// Number of generated requests for each route.
const REQUESTS: u32 = 25;
/// What is checked in each answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
                      response_headers_conformance,ignored_auth,use_after_free";

#[tokio::test(flavor = "multi_thread")]
async fn i3_row_26_generated_requests_get_documented_answers() {
    let Some(program) = python_peer("schemathesis") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("created");
    std::fs::copy(components().join("probe.wasm"), folder.path().join("plugins/probe.wasm")).expect("copied");
    let agent = "name = \"clerk\"\nmodel = \"scripted:replies.json\"\nplugin_directory = \"plugins\"\n\
                 [approval]\ndefault = \"ask\"\n[webhooks.tickets]\n";
    std::fs::write(folder.path().join("clerk.toml"), agent).expect("written");
    let call = json!({"calls": [{"name": "probe.echo", "arguments": {"text": "a"}}]});
    let replies = [vec![call], vec![json!({"text": "Done."}); 500]].concat();
    std::fs::write(folder.path().join("replies.json"), json!({"replies": replies}).to_string()).expect("written");
    let server = ServeProcess::start(folder.path(), &["--agent", "clerk.toml"]);
    let created =
        server.client().post("/api/sessions", json!({"agent": "clerk", "prompt": "Go.", "user": "ann"})).await;
    let session = created.json(201)["session"].as_str().expect("an id").to_owned();
    let parameters = format!(
        "[parameters]\n\"path.agent\" = \"clerk\"\n\"path.plugin\" = \"probe\"\n\"path.webhook\" = \"tickets\"\n\
         \"path.session\" = \"{session}\"\n\"query.user\" = \"ann\"\n"
    );
    let settings = folder.path().join("schemathesis.toml");
    std::fs::write(&settings, parameters).expect("written");
    let (url, token) = (server.url("/openapi.json"), server.token());
    let output = Command::new(program)
        .arg("--config-file")
        .arg(&settings)
        .args(["run", &url, "--header", &format!("Authorization: Bearer {token}"), "--checks", CHECKS])
        // A stream of events does not end.
        .args(["--exclude-path", "/api/sessions/{session}/events", "--max-examples", &REQUESTS.to_string()])
        .args(["--phases", "examples,coverage,fuzzing", "--seed", "1", "--suppress-health-check", "all", "--no-shrink"])
        .current_dir(folder.path())
        .output()
        .expect("the program runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let tested = shown.lines().any(|line| line.contains("generated") && line.contains("passed"));
    assert!(tested, "requests were generated: {shown}");
    assert_eq!(server.client().get("/health").await.status, 200, "the server still runs");
}
