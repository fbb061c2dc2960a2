//! Row 41: A server first receives a secret, and then returns the secret at other paths, in parts, or in other
//! encodings. The host masks the secret for every plugin.

use crate::scene::{Scene, run_exclusively, with_grants};
use crate::server::{Server, head};
use agent_plugins::{CallLimits, Grants, Secret, SecretTemplate};
use agent_runtime::AgentConfig;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};

const TOKEN: &str = "tk-canary+5d1c/77e0a4f94b6e";

/// Returns the encodings in which the server repeats the token. The guest must not be able to read any of these texts.
fn encodings() -> Vec<(&'static str, String)> {
    let each = |form: &dyn Fn(u8) -> String| TOKEN.bytes().map(form).collect::<String>();
    let in_lines = |text: &str, columns: usize| {
        let lines = text.as_bytes().chunks(columns).map(|line| String::from_utf8_lossy(line).into_owned());
        lines.collect::<Vec<_>>().join("\r\n")
    };
    vec![
        ("plain", TOKEN.to_owned()),
        ("capitals", TOKEN.to_ascii_uppercase()),
        ("percent", TOKEN.replace('+', "%2B").replace('/', "%2F")),
        ("all-percent", each(&|byte| format!("%{byte:02x}"))),
        ("hex", each(&|byte| format!("{byte:02x}"))),
        ("json", each(&|byte| format!("\\u{byte:04x}"))),
        ("slashes", TOKEN.replace('/', "\\/")),
        ("html", each(&|byte| format!("&#{byte};"))),
        ("base64-0", STANDARD.encode(TOKEN)),
        ("base64-1", STANDARD.encode(format!("u:{TOKEN}"))),
        ("base64-2", STANDARD.encode(format!("user:{TOKEN}"))),
        ("base64-url", URL_SAFE_NO_PAD.encode(TOKEN)),
        ("base64-lines", in_lines(&STANDARD.encode(format!("{TOKEN}{TOKEN}{TOKEN}")), 64)),
        ("base64-short-lines", in_lines(&STANDARD.encode(TOKEN), 9)),
        ("lines", in_lines(TOKEN, 10)),
        ("backwards", TOKEN.chars().rev().collect()),
    ]
}

/// A server that stores the token sent to `/v1/`. For most other paths, the server's response contains the stored
/// token. The path determines the encoding of the token and its place in the response.
fn repeating_server() -> (Server, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let recorder = heads.clone();
    let server = Server::new(move |mut stream| {
        let Some(output_text) = head(&mut stream) else { return };
        let path = output_text.split(' ').nth(1).unwrap_or_default().to_owned();
        recorder.lock().unwrap().push(output_text);
        let answer = |headers: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")
        };
        let written = match path.trim_start_matches('/').split_once('=') {
            Some(("as", encoding)) => {
                let (_, output_text) =
                    encodings().into_iter().find(|(name, _)| *name == encoding).expect("the encoding exists");
                answer("", &format!("{{\"token\": \"{output_text}\"}}"))
            }
            Some(("slice", range)) => {
                let (from, to) = range.split_once('-').expect("the path contains a range");
                answer("", &TOKEN[from.parse::<usize>().unwrap()..to.parse::<usize>().unwrap()])
            }
            _ => match &*path {
                "/name" => answer("x-tkcanary5d1c77e0: 1\r\n", "ok"),
                "/location" => answer(&format!("location: /x?token={TOKEN}\r\nx-{}: 1\r\n", "a"), "ok"),
                "/ends-early" => format!("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nit is {}", &TOKEN[..15]),
                "/chunks" => {
                    let chunks: String = TOKEN.chars().map(|char| format!("1\r\n{char}\r\n")).collect();
                    format!(
                        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\nx-trailer: {TOKEN}\r\n\r\n"
                    )
                }
                "/compressed" => answer("content-encoding: gzip\r\n", "not looked into"),
                _ => answer("", "welcome"),
            },
        };
        let _ = stream.write_all(written.as_bytes());
    });
    (server, heads)
}

/// The secret is sent only to `/v1/`, but the plugin may request every path.
fn agent(server: &Server, value: &str, repeat: usize) -> AgentConfig {
    let template = SecretTemplate {
        name: "INTRUDER_TOKEN".to_owned(),
        hosts: vec![format!("http://{}/v1/", server.address)],
        header: "authorization".to_owned(),
        format: "Bearer {}".to_owned(),
    };
    let secrets = vec![Secret::new(template, value).expect("the secret is valid")];
    let grants = Grants { secrets, ..server.grants() };
    let limits = CallLimits { requests: 200, requests_per_minute: 2_000, ..CallLimits::default() };
    let mut config = with_grants("intruder", grants, limits);
    config.name = format!("attacker-{repeat}");
    config
}

async fn call_results(scene: &Scene, config: AgentConfig, arguments: Value) -> Vec<String> {
    let (is_error, text) = scene.call(config, "intruder.ask", arguments).await;
    assert!(!is_error, "{text}");
    let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    output_text["told"]
        .as_array()
        .expect("`told` is a list")
        .iter()
        .map(|result| result.as_str().expect("each result is a string").to_owned())
        .collect()
}

/// Row 41: A secret was sent to one path, and the server returns it at other paths in every common encoding. In all
/// answers that the guest reads, asterisks replace the secret.
#[test]
fn row_41_masks_a_secret_in_every_encoding() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = repeating_server();
        let attack = async |repeat| {
            let first = std::iter::once("/v1/login".to_owned());
            let paths = first.chain(encodings().into_iter().map(|(encoding, _)| format!("/as={encoding}")));
            let urls: Vec<_> = paths.map(|path| server.url(&path)).collect();
            let call_results = call_results(&scene, agent(&server, TOKEN, repeat), json!({"urls": urls})).await;
            assert!(call_results[0].ends_with("welcome"), "{call_results:?}");
            for ((encoding, output_text), result) in encodings().into_iter().zip(&call_results[1..]) {
                assert!(result.starts_with("200") && result.contains("********"), "{encoding}: {result}");
                assert!(
                    !result.contains(&output_text) && !result.contains(&output_text[4..output_text.len() - 4]),
                    "{encoding}: {result}"
                );
            }
        };
        scene.repeat("row 41, encodings", attack).await;
        let heads = heads.lock().unwrap();
        assert!(heads[0].contains(&format!("Bearer {TOKEN}")), "the server gets the secret: {}", heads[0]);
        assert!(heads.iter().filter(|head| !head.contains("/v1/")).all(|head| !head.contains("Bearer")));
    });
}

/// Row 41: The guest cannot read a secret that the server returns in halves, in a header, at the end of a response that
/// breaks off, or in chunks of one byte. A compressed response is refused.
#[test]
fn row_41_masks_a_secret_in_parts() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, _) = repeating_server();
        let attack = async |repeat| {
            let paths =
                ["/slice=0-13", "/slice=13-27", "/slice=5-20", "/location", "/ends-early", "/chunks", "/compressed"];
            let urls: Vec<_> = paths.iter().map(|path| server.url(path)).collect();
            let results = call_results(&scene, agent(&server, TOKEN, repeat), json!({"urls": urls})).await;
            for (path, result) in paths.iter().zip(&results) {
                let found = (0..TOKEN.len() - 8).find(|from| result.contains(&TOKEN[*from..from + 8]));
                assert_eq!(found, None, "{path}: {result}");
            }
            assert!(results[3].contains("location: /x?token=***"), "{}", results[3]);
            assert!(results[4].contains("it is"), "the guest reads the text before the secret: {}", results[4]);
            assert!(results[6].contains("compressed its response"), "{}", results[6]);
            // A header name is always in lower case and cannot contain a plus sign, so the token of this request has
            // only lower-case letters and digits.
            let config = agent(&server, "tkcanary5d1c77e0", repeat);
            let results = call_results(&scene, config, json!({"urls": [server.url("/name")]})).await;
            assert!(results[0].contains("x-****************: 1"), "{}", results[0]);
        };
        scene.repeat("row 41, parts", attack).await;
    });
}

/// Row 41: A plugin cannot request byte ranges from a server that received a secret, because the server could return
/// the secret in pieces.
#[test]
fn row_41_refuses_ranges_where_a_secret_is_known() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let (server, heads) = repeating_server();
        // The second server has a different IP address, because another port of the same address would count as the
        // same server.
        let other_server = Server::at("127.0.0.2", |mut stream| {
            if head(&mut stream).is_some() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
            }
        });
        let attack = async |repeat| {
            for (name, value) in [("Range", "bytes=0-12"), ("If-Range", "\"x\"")] {
                let before = heads.lock().unwrap().len();
                let arguments = json!({"urls": [server.url("/as=plain")], "headers": [[name, value]]});
                let results = call_results(&scene, agent(&server, TOKEN, repeat), arguments).await;
                assert!(results[0].contains("HttpRequestDenied"), "{results:?}");
                assert_eq!(heads.lock().unwrap().len(), before, "nothing was sent");
            }
            let mut config = agent(&server, TOKEN, repeat);
            let allowance = config.plugins.get_mut("intruder").expect("the plugin is configured");
            allowance.grants.http.extend(other_server.grants().http);
            let arguments = json!({"urls": [other_server.url("/")], "headers": [["Range", "bytes=0-12"]]});
            let results = call_results(&scene, config, arguments).await;
            assert!(results[0].starts_with("200"), "another server can be asked for ranges: {results:?}");
        };
        scene.repeat("row 41, ranges", attack).await;
    });
}

/// Row 41: A plugin can read neither the secrets of another plugin nor a key of the agent's model.
#[test]
fn row_41_masks_secrets_of_other_plugins() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder", "web"]).await;
        let (server, _) = repeating_server();
        let mut config = agent(&server, TOKEN, 0);
        let limits = CallLimits::default();
        let allowance = agent_runtime::PluginAllowance { grants: server.grants(), limits, ..Default::default() };
        config.plugins.insert("web".to_owned(), allowance);
        let (is_error, text) = scene.call(config, "web.fetch", json!({"url": server.url("/as=plain")})).await;
        assert!(!text.contains("canary") && (is_error || text.contains("****")), "{text}");
    });
}
