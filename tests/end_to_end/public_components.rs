//! Third-party components from public packages (P3): a guard in Rust from crates.io, codecs in Rust, C and C++ from
//! PyPI, and components for other hosts. `tests/install-peers` downloads these components.

use crate::peers::public_component;
use crate::support::{TestHost, call_reply, results, run_turn, script, text_reply};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};

/// Creates a test host with these public components. Returns `None` if a component is not installed.
async fn test_host_with(components: &[&str]) -> Option<TestHost> {
    let files = components.iter().map(|name| public_component(name)).collect::<Option<Vec<_>>>()?;
    let test_host = TestHost::new(&[]).await;
    for file in files {
        std::fs::copy(&file, test_host.directory.path().join("plugins").join(file.file_name().unwrap())).unwrap();
    }
    Some(test_host)
}

/// Runs a turn with these calls. For each call, returns whether the result is an error, and the text of the result.
async fn outcomes(test_host: &TestHost, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut session =
        test_host.session(AgentConfig::new("test"), script(&[call_reply(calls), text_reply("Done.")])).await;
    let result = run_turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(test_host, &session).await;
    results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
}

/// P3: Two components from crates.io run without changes: a guard and an implementation of `wasi:random`. The
/// model can call the components' functions as tools.
#[tokio::test(flavor = "multi_thread")]
async fn p3_runs_components_from_crates_io() {
    let Some(test_host) = test_host_with(&["redact-foo-guard", "wasi-random"]).await else { return };
    let calls = [
        ("scanner.scan", json!({"text": "the foo is out"})),
        ("random.get-random-bytes", json!({"len": 3})),
        ("random.get-random-u64", json!({})),
    ];
    let outcomes = outcomes(&test_host, &calls).await;
    assert!(outcomes.iter().all(|(is_error, _)| !is_error), "{outcomes:?}");
    let verdict: Value = serde_json::from_str(&outcomes[0].1).unwrap();
    assert!(verdict["valid"].is_boolean() && verdict["text"].is_string(), "{verdict}");
    assert_eq!(outcomes[1].1.trim_matches('"').len(), 4, "three bytes in base64: {}", outcomes[1].1);
}

/// P3: The functions of codecs from PyPI can be called as tools. Their functions use variants that contain lists, and a
/// resource without a constructor, which a static function creates from JSON.
#[tokio::test(flavor = "multi_thread")]
async fn p3_runs_components_from_pypi() {
    for (codec, config, tolerance) in [
        ("zlib", json!({"level": 9}), 0.0),
        ("round", json!({"precision": 0.5}), 0.25),
        ("zfp", json!({"mode": "reversible"}), 0.0),
        ("sz3", json!({"eb_mode": "abs", "eb_abs": 0.1}), 0.1),
    ] {
        let Some(test_host) = test_host_with(&[codec]).await else { return };
        let codec_self = json!({"config": config.to_string()});
        let values = [0.0, 1.25, 2.5, 3.75, 5.0, 6.25, 7.5, 8.75];
        let data = json!({"data": {"f64": values}, "shape": [values.len()]});
        let encode = ("codec.codec.encode", json!({"self": codec_self, "data": data}));
        let encoded = &outcomes(&test_host, &[encode, ("codec.codec-id", json!({}))]).await;
        assert!(!encoded[0].0, "{codec}: {}", encoded[0].1);
        assert!(encoded[1].1.contains(codec), "{}", encoded[1].1);
        let encoded: Value = serde_json::from_str(&encoded[0].1).unwrap_or_else(|error| panic!("{error}: {encoded:?}"));
        let decoded =
            &outcomes(&test_host, &[("codec.codec.decode", json!({"self": codec_self, "encoded": encoded}))]).await[0];
        assert!(!decoded.0, "{codec}: {}", decoded.1);
        let decoded: Value = serde_json::from_str(&decoded.1).unwrap();
        let decoded = decoded["data"]["f64"].as_array().unwrap_or_else(|| panic!("{codec}: {decoded}"));
        for (before, after) in values.iter().zip(decoded) {
            assert!((before - after.as_f64().unwrap()).abs() <= tolerance, "{codec}: {before} {after}");
        }
    }
}

/// P3, P5: If a component imports functions that only another host provides, the host refuses to load the component,
/// and the error names these functions.
#[tokio::test(flavor = "multi_thread")]
async fn p5_refuses_components_of_other_hosts_and_names_their_imports() {
    for (component, import) in
        [("redact", "`arcjet:redact/custom-redact`"), ("egress-guard", "`cerberust:guard/egress@0.1.0`")]
    {
        let Some(test_host) = test_host_with(&[component]).await else { return };
        let (generation, problems) = test_host.load(&test_host.directory.path().join("plugins")).await;
        assert_eq!((generation.plugins().len(), problems.len()), (0, 1), "{problems:?}");
        assert!(problems[0].contains(import) && problems[0].contains("a different host"), "{problems:?}");
    }
}
