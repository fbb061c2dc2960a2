//! Configuration files over HTTP: reading, checking and saving (I2, I3, O3).

use super::client::{Answer, Client};
use super::process::ServeProcess;
use super::until;
use serde_json::{Value, json};
use std::path::Path;

const TEXT: &str = "# The clerk of the harbour.\nname = \"clerk\"\nmodel = \"offline\"\nplugin_directory = \"plugins\"\n\
                    max_interactions = 5 # enough\n";
const PATH: &str = "/api/agents/clerk/configuration";

async fn save(client: &Client, digest: &str, body: Value) -> Answer {
    let headers = [("if-match".to_owned(), format!("\"{digest}\""))];
    client.send("PUT", PATH, "application/json", &headers, body.to_string()).await
}

fn started(folder: &Path) -> ServeProcess {
    for name in ["plugins", "docs"] {
        std::fs::create_dir(folder.join(name)).expect("created");
    }
    std::fs::copy(crate::support::components().join("text.wasm"), folder.join("plugins/text.wasm")).expect("copied");
    std::fs::write(folder.join("agent.toml"), TEXT).expect("written");
    ServeProcess::start(folder, &["--agent", "agent.toml"])
}

fn audit(folder: &Path) -> String {
    let program = crate::support::agent_host()
        .args(["--data", "data", "audit", "--json"])
        .current_dir(folder)
        .output()
        .expect("the program runs");
    String::from_utf8_lossy(&program.stdout).into_owned()
}

/// I2, I3: a text is checked with the problems of `config check`, without saving it.
#[tokio::test(flavor = "multi_thread")]
async fn i2_a_text_is_checked_without_saving_it() {
    let directory = tempfile::tempdir().expect("a folder");
    let server = started(directory.path());
    let client = server.client();
    let file = client.get(PATH).await.json(200);
    assert_eq!(file["text"], TEXT);
    let check = async |text: &str| client.post(&format!("{PATH}/check"), json!({ "text": text })).await.json(200);
    let same = check(TEXT).await;
    assert_eq!(
        same,
        json!({"problems": [], "diff": "", "later": [], "adds": [], "removes": [], "digest": file["digest"]})
    );

    let wrong = check(&TEXT.replace("max_interactions = 5", "max_interactions = 0\nmodell = 3")).await;
    let lines: Vec<_> = wrong["problems"].as_array().expect("a list").iter().map(|found| &found["line"]).collect();
    assert_eq!(lines, [&json!(5), &json!(6)], "{wrong}");
    assert!(wrong["problems"][1]["message"].as_str().is_some_and(|text| text.contains("modell")), "{wrong}");
    let unknown = check(&format!("{TEXT}validators = [\"nothing\"]\n")).await;
    assert_eq!(unknown["problems"][0]["line"], 6, "a plugin that is not loaded: {unknown}");
    assert!(unknown["problems"][0]["message"].as_str().is_some_and(|text| text.contains("validators")), "{unknown}");
    assert_eq!(check("name = ").await["problems"][0]["line"], 1);

    let grants = format!("{TEXT}\n[plugins.text.grants]\nread = [\"docs\"]\n");
    let added = check(&grants).await;
    assert_eq!((&added["problems"], &added["removes"]), (&json!([]), &json!([])), "{added}");
    assert!(added["adds"].as_array().is_some_and(|adds| !adds.is_empty()), "{added}");
    assert!(added["diff"].as_str().is_some_and(|diff| diff.contains("+read = [\"docs\"]")), "{added}");
    assert_eq!(check(&TEXT.replace("\"plugins\"", "\"docs\"")).await["later"], json!(["plugin_directory"]));
    assert_eq!(std::fs::read_to_string(directory.path().join("agent.toml")).expect("read"), TEXT);

    let schema = client.get("/api/configuration-schema").await.json(200);
    assert!(schema["properties"]["max_interactions"]["description"].is_string(), "{schema}");
}

/// I3, O3: a text is saved exactly as it is, unless the file has changed or the text has problems. A text that allows more must
/// say so. The change is used by the next turn, and is in the audit log.
#[tokio::test(flavor = "multi_thread")]
async fn o3_a_saved_file_is_used_and_audited() {
    let directory = tempfile::tempdir().expect("a folder");
    let (folder, server) = (directory.path(), started(directory.path()));
    let client = server.client();
    let digest = client.get(PATH).await.json(200)["digest"].as_str().expect("a digest").to_owned();
    let text = TEXT.replace("5 # enough", "7 # more");
    let without = client.send("PUT", PATH, "application/json", &[], json!({ "text": text }).to_string()).await;
    assert_eq!(without.json(428)["code"], "precondition_required");
    assert_eq!(save(&client, "0000", json!({ "text": text })).await.json(412)["code"], "changed");
    let invalid = save(&client, &digest, json!({"text": TEXT.replace('5', "0")})).await.json(422);
    assert!(invalid["detail"].as_str().is_some_and(|detail| detail.contains("line 5")), "{invalid}");
    let saved = save(&client, &digest, json!({ "text": text })).await.json(200);
    assert_eq!(std::fs::read_to_string(folder.join("agent.toml")).expect("read"), text, "comments stay");
    assert_eq!(
        save(&client, &digest, json!({ "text": TEXT })).await.status,
        412,
        "the digest is that of the text before"
    );

    let digest = saved["digest"].as_str().expect("a digest");
    let more = format!("{text}\n[plugins.text.grants]\nread = [\"docs\"]\n");
    let refused = save(&client, digest, json!({ "text": more })).await.json(409);
    assert_eq!(refused["code"], "adds_authority");
    save(&client, digest, json!({"text": more, "adds": true})).await.json(200);
    until(async || {
        let authority = client.get("/api/agents/clerk/plugins/text/authority").await.json(200);
        let origin = authority["grants"][0]["origin"].as_str()?.to_owned();
        (authority["grants"][0]["value"] == "docs" && origin.contains("agent.toml:8")).then_some(())
    })
    .await;
    let log = audit(folder);
    let entries: Vec<&str> = log.lines().filter(|line| line.contains("file_saved")).collect();
    assert_eq!(entries.len(), 2, "{log}");
    assert!(entries[1].contains("\"token\":\"first\"") && entries[1].contains("docs"), "{log}");
    let temporary: Vec<_> = std::fs::read_dir(folder).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert!(temporary.iter().all(|name| !name.to_string_lossy().starts_with(".agent.toml")), "{temporary:?}");
}
