//! Components that no one here wrote, from public packages (P3): a guard in Rust from crates.io, codecs in Rust, C and C++
//! from PyPI, and what was made for other hosts. `tests/install-peers` fetches them.

use crate::peers::public_component;
use crate::support::{House, calling, results, saying, script, turn};
use agent_runtime::{AgentConfig, TurnResult};
use serde_json::{Value, json};

/// A house with these public components; None: one of them is not there.
async fn house_with(components: &[&str]) -> Option<House> {
    let files = components.iter().map(|name| public_component(name)).collect::<Option<Vec<_>>>()?;
    let house = House::new(&[]).await;
    for file in files {
        std::fs::copy(&file, house.directory.path().join("plugins").join(file.file_name().unwrap())).unwrap();
    }
    Some(house)
}

/// What each call of one turn of an agent gave: whether it is an error, and its text.
async fn outcomes(house: &House, calls: &[(&str, Value)]) -> Vec<(bool, String)> {
    let mut session = house.session(AgentConfig::new("test"), script(&[calling(calls), saying("Done.")])).await;
    let result = turn(&mut session, "Go.").await;
    assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
    let results = results(house, &session).await;
    results.into_iter().map(|(_, is_error, text)| (is_error, text)).collect()
}

/// P3: a guard from crates.io and an implementation of `wasi:random`, whose functions are tools as they are.
#[tokio::test(flavor = "multi_thread")]
async fn p3_components_from_crates_io() {
    let Some(house) = house_with(&["redact-foo-guard", "wasi-random"]).await else { return };
    let calls = [
        ("scanner.scan", json!({"text": "the foo is out"})),
        ("random.get-random-bytes", json!({"len": 3})),
        ("random.get-random-u64", json!({})),
    ];
    let outcomes = outcomes(&house, &calls).await;
    assert!(outcomes.iter().all(|(is_error, _)| !is_error), "{outcomes:?}");
    let verdict: Value = serde_json::from_str(&outcomes[0].1).unwrap();
    assert!(verdict["valid"].is_boolean() && verdict["text"].is_string(), "{verdict}");
    assert_eq!(outcomes[1].1.trim_matches('"').len(), 4, "three bytes in base64: {}", outcomes[1].1);
}

/// P3: codecs from PyPI: a resource without a constructor, which a static function makes from JSON; variants of lists.
#[tokio::test(flavor = "multi_thread")]
async fn p3_components_from_pypi() {
    for (codec, config, lossy) in [
        ("zlib", json!({"level": 9}), 0.0),
        ("round", json!({"precision": 0.5}), 0.25),
        ("zfp", json!({"mode": "reversible"}), 0.0),
        ("sz3", json!({"eb_mode": "abs", "eb_abs": 0.1}), 0.1),
    ] {
        let Some(house) = house_with(&[codec]).await else { return };
        let own = json!({"config": config.to_string()});
        let values = [0.0, 1.25, 2.5, 3.75, 5.0, 6.25, 7.5, 8.75];
        let data = json!({"data": {"f64": values}, "shape": [values.len()]});
        let encode = ("codec.codec.encode", json!({"self": own, "data": data}));
        let encoded = &outcomes(&house, &[encode, ("codec.codec-id", json!({}))]).await;
        assert!(!encoded[0].0, "{codec}: {}", encoded[0].1);
        assert!(encoded[1].1.contains(codec), "{}", encoded[1].1);
        let encoded: Value = serde_json::from_str(&encoded[0].1).unwrap_or_else(|error| panic!("{error}: {encoded:?}"));
        let decoded = &outcomes(&house, &[("codec.codec.decode", json!({"self": own, "encoded": encoded}))]).await[0];
        assert!(!decoded.0, "{codec}: {}", decoded.1);
        let decoded: Value = serde_json::from_str(&decoded.1).unwrap();
        let decoded = decoded["data"]["f64"].as_array().unwrap_or_else(|| panic!("{codec}: {decoded}"));
        for (before, after) in values.iter().zip(decoded) {
            assert!((before - after.as_f64().unwrap()).abs() <= lossy, "{codec}: {before} {after}");
        }
    }
}

/// P3, P5: what calls back into the host that it was made for is refused at load, with the names of what it calls.
#[tokio::test(flavor = "multi_thread")]
async fn p5_components_of_other_hosts_name_what_they_need() {
    for (component, import) in
        [("redact", "`arcjet:redact/custom-redact`"), ("egress-guard", "`cerberust:guard/egress@0.1.0`")]
    {
        let Some(house) = house_with(&[component]).await else { return };
        let (generation, problems) = house.load(&house.directory.path().join("plugins")).await;
        assert_eq!((generation.plugins().len(), problems.len()), (0, 1), "{problems:?}");
        assert!(problems[0].contains(import) && problems[0].contains("another host"), "{problems:?}");
    }
}
