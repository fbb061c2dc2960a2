//! Tests both drafts of `wasi:keyvalue` (P5): quotas for values of any size and number, and counters that several
//! processes use at the same time.

use crate::scene::{Scene, run_exclusively, with_grants};
use crate::support::{agent_host, components, script};
use agent_plugins::{CallLimits, Grants};
use agent_runtime::AgentConfig;
use serde_json::{Value, json};
use std::process::Stdio;

fn with_key_value_quota(repeat: usize, bytes: u64) -> AgentConfig {
    let mut config =
        with_grants("intruder", Grants { key_value: Some(bytes), ..Grants::default() }, CallLimits::default());
    config.name = format!("keeper-{repeat}");
    config
}

/// P5: All functions of the first draft work, and values beyond its limits are refused.
#[test]
fn p5_implements_the_first_draft() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |repeat| {
            let (is_error, text) =
                scene.call(with_key_value_quota(repeat, 1 << 20), "intruder.values", json!({})).await;
            let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let expected = json!({
                "a": b"one", "none": null, "keys": ["a", "b", "c"], "many": [true, false, true],
                "there": [true, false], "refused": [true, true, true, true, true],
            });
            assert_eq!((is_error, output_text), (false, expected));
            let (is_error, text) = scene.call(AgentConfig::new("nobody"), "intruder.values", json!({})).await;
            assert!(is_error && text.contains("key_value_mib = 10"), "{text}");
        };
        scene.repeat("P5, the first draft", attack).await;
    });
}

/// P8: The buckets of a plugin share one quota, even if the plugin uses both drafts. Every entry counts towards the
/// quota, even if its value is empty.
#[test]
fn p8_one_quota_covers_all_values() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        const QUOTA: u64 = 64 << 10;
        let attack = async |repeat| {
            let attempts = [("first", 1_000, "a"), ("second", 0, "b"), ("first", 0, ""), ("second", 60_000, "c")];
            let mut stored = 0;
            for (number, (draft, bytes, bucket)) in attempts.into_iter().enumerate() {
                let arguments = json!({"draft": draft, "bytes": bytes, "bucket": bucket});
                let (is_error, text) =
                    scene.call(with_key_value_quota(repeat, QUOTA), "intruder.hoard", arguments).await;
                let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
                assert!(
                    !is_error && output_text["error"].as_str().is_some_and(|error| error.contains("65536")),
                    "{text}"
                );
                stored += output_text["kept"].as_u64().unwrap();
                assert!(number > 0 || stored > 10, "values within the quota are stored: {text}");
            }
            assert!(stored <= QUOTA / 256, "{stored} entries in {QUOTA} bytes");
        };
        scene.repeat("P8, quotas", attack).await;
    });
}

/// P5: Two processes increment the same counter, each through a different draft, and no increment is lost.
#[test]
fn p5_two_processes_count_without_lost_increments() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        const STEPS: u32 = 200;
        let attack = async |repeat| {
            let folder = scene.folder().join(format!("counting-{repeat}"));
            std::fs::create_dir_all(folder.join("plugins")).unwrap();
            std::fs::copy(components().join("intruder.wasm"), folder.join("plugins/intruder.wasm")).unwrap();
            let children: Vec<_> = ["first", "second"]
                .into_iter()
                .map(|draft| {
                    let call =
                        json!({"calls": [{"name": "intruder.count", "arguments": {"draft": draft, "times": STEPS}}]});
                    let replies = script(&[call, json!({"text": "Counted."})]).to_string();
                    std::fs::write(folder.join(format!("{draft}.json")), replies).unwrap();
                    let mut command = agent_host();
                    command.current_dir(&folder).args(["--plugins", "plugins", "--data", "data"]);
                    command.args(["--grant", "intruder:key_value_mib=1"]);
                    command.args(["--model", &format!("scripted:{draft}.json"), "--json", "Count."]);
                    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
                })
                .collect();
            let mut sums = Vec::new();
            for child in children {
                let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
                let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{output_text}{}", String::from_utf8_lossy(&output.stderr));
                let mut events =
                    output_text.lines().map(|line| serde_json::from_str::<Value>(line).expect("each line is an event"));
                let result = events.rfind(|event| event["type"] == "tool_result").expect("the tool returns a result");
                sums.push(result["content"].to_string().chars().filter(char::is_ascii_digit).collect::<String>());
            }
            sums.sort_by_key(|sum| sum.parse::<u32>().expect("the sum is a number"));
            assert_eq!(sums[1], (2 * STEPS).to_string(), "{sums:?}");
            std::fs::remove_dir_all(&folder).unwrap();
        };
        scene.repeat("P5, two processes", attack).await;
    });
}
