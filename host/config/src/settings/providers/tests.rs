//! Tests that addresses, keys and headers of providers are read from options, `agent.toml` and the environment.

use super::*;
use crate::settings::AgentOptions;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the configuration of the model's provider, or its problems.
fn configure(
    model: &str,
    base_url: Option<&str>,
    file: &str,
    environment: &[(&str, &str)],
) -> Result<ProviderConfig, String> {
    let file = AgentFile::parse(file, Path::new("agent.toml")).expect("a valid file");
    let options = AgentOptions {
        model: Some(model.to_owned()),
        base_url: base_url.map(str::to_owned),
        ..AgentOptions::default()
    };
    let wanted = WantedModels::new(&options, &file)?;
    let environment: BTreeMap<_, _> = environment.iter().copied().collect();
    let variable = |name: &str| environment.get(name).map(|value| (*value).to_owned());
    let (configured, problems) = providers(&wanted, &file, &variable);
    if !problems.is_empty() {
        return Err(problems.into_iter().map(|(_, problem)| problem).collect::<Vec<_>>().join("\n"));
    }
    let chain = wanted.named();
    let name = provider_of(&chain[0].name).expect("a provider");
    Ok(configured.into_iter().find(|provider| provider.name == name).expect("configured"))
}

fn key(provider: &ProviderConfig) -> Option<&str> {
    provider.key.as_ref().map(Secret::reveal)
}

/// M2: a known provider needs no table. The provider's key is read from its default variable.
#[test]
fn a_known_provider_needs_only_its_key() {
    let provider = configure("groq/a", None, "", &[("GROQ_API_KEY", "k1")]).expect("configured");
    assert_eq!((provider.base_url.as_str(), key(&provider)), ("https://api.groq.com/openai/v1", Some("k1")));
    let provider = configure("ollama/a", None, "", &[("OPENAI_API_KEY", "k1")]).expect("configured");
    assert_eq!((provider.base_url.as_str(), key(&provider)), ("http://127.0.0.1:11434/v1", None));
    insta::assert_snapshot!(configure("openai/a", None, "", &[]).expect_err("no key"), @"--model: `openai/a` needs a key, and the environment variable `OPENAI_API_KEY` is not set (the default for `openai`; `key_env` in [providers.openai] names another variable). Set it, for example with `export OPENAI_API_KEY=YOUR_KEY`");
}

/// M2: a table in the file sets the address, key, headers, timeouts and models of a provider.
#[test]
fn a_table_sets_address_key_headers_and_limits_of_a_provider() {
    let file = r#"
        [providers.office]
        base_url = "https://models.example.com/v1/"
        key_env = "OFFICE_KEY"
        headers = { "X-Title" = "agents" }
        header_env = { "X-Team" = "TEAM" }
        connect_timeout_ms = 5
        stall_timeout_ms = 6
        total_timeout_ms = 7
        [providers.office.models."large/2"]
        window = 9000
        prompt_price = 1
        completion_price = 2.5
    "#;
    let environment = [("OFFICE_KEY", "k2"), ("TEAM", "blue")];
    let provider = configure("office/large/2", None, file, &environment).expect("configured");
    assert_eq!((provider.base_url.as_str(), key(&provider)), ("https://models.example.com/v1", Some("k2")));
    let headers: Vec<_> = provider.headers.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
    assert_eq!(headers, [("X-Title", "agents"), ("X-Team", "blue")]);
    let milliseconds = Duration::from_millis;
    let expected = Timeouts { connect: milliseconds(5), stall: milliseconds(6), total: milliseconds(7) };
    assert_eq!(provider.timeouts, expected);
    let model = provider.models["large/2"];
    assert_eq!(
        (model.window, model.price.map(|price| (price.prompt, price.completion))),
        (Some(9000), Some((1.0, 2.5)))
    );
    insta::assert_snapshot!(configure("office/large/2", None, file, &[]).expect_err("nothing is set"), @r"
    --model: `office/large/2` needs a key, and the environment variable `OFFICE_KEY` is not set (named in agent.toml:4: providers.office.key_env). Set it, for example with `export OFFICE_KEY=YOUR_KEY`
    --model: `office/large/2` needs the header `X-Team`, and the environment variable `TEAM` is not set (named in agent.toml:6: providers.office.header_env.X-Team). Set it
    ");
    // A problem with a provider is reported only if a model uses the provider.
    configure("ollama/a", None, file, &[]).expect("not asked");
}

/// The address of a provider is taken from the first source that sets it: the options, the file, the environment, or
/// the list of known providers.
#[test]
fn provider_address_comes_from_the_first_source_that_sets_it() {
    let url = |base_url, file: &str, environment: &[(&str, &str)]| {
        configure("openai/a", base_url, file, environment).map(|provider| provider.base_url)
    };
    let file = "[providers.openai]\nbase_url = \"http://file/v1\"\n";
    let environment = [("OPENAI_BASE_URL", "http://environment/v1/"), ("OPENAI_API_KEY", "k")];
    assert_eq!(url(Some("http://line/v1"), file, &environment).as_deref(), Ok("http://line/v1"));
    assert_eq!(url(None, file, &environment).as_deref(), Ok("http://file/v1"));
    assert_eq!(url(None, "", &environment).as_deref(), Ok("http://environment/v1"));
    assert_eq!(url(None, "", &environment[1..]).as_deref(), Ok("https://api.openai.com/v1"));
    let error = url(None, "", &[("OPENAI_BASE_URL", "here"), ("OPENAI_API_KEY", "k")]).expect_err("no address");
    assert!(error.contains("`OPENAI_BASE_URL` is not an address"), "{error}");
    let provider = configure("ollama/a", None, "", &environment).expect("configured");
    assert_eq!(provider.base_url, "http://127.0.0.1:11434/v1", "the variable applies only to OpenAI");
}

/// A missing API key is not an error if the user configured the provider's address. If the environment variable that
/// holds the key is set, the key is sent.
#[test]
fn a_missing_key_is_allowed_at_a_configured_address() {
    let url = Some("http://127.0.0.1:9/v1");
    assert_eq!(key(&configure("openai/a", url, "", &[]).expect("configured")), None);
    assert_eq!(key(&configure("openai/a", url, "", &[("OPENAI_API_KEY", "")]).expect("configured")), None);
    assert_eq!(key(&configure("openai/a", url, "", &[("OPENAI_API_KEY", "k")]).expect("configured")), Some("k"));
    let file = "[providers.openai]\nkey_env = \"MINE\"\n";
    assert!(
        configure("openai/a", url, file, &[("OPENAI_API_KEY", "k")])
            .expect_err("the variable in `key_env` must be set")
            .contains("`MINE`")
    );
}

/// Invalid keys are reported and never shown.
#[test]
fn reports_invalid_keys_without_showing_them() {
    let cases = [
        ("", "is empty"),
        (" \n", "is empty"),
        ("sk-secret\n", "ends with a line break"),
        ("sk-secret\r\n", "ends with a line break"),
        (" sk-secret", "begins or ends with white space"),
        ("sk-secret\t", "begins or ends with white space"),
        ("sk-se\ncret", "contains characters that are not allowed in a header"),
        ("sk-sécret", "contains characters that are not allowed in a header"),
        ("Bearer sk-secret", "begins with `Bearer `, which the host adds"),
    ];
    for (value, expected) in cases {
        let error = configure("openai/a", None, "", &[("OPENAI_API_KEY", value)]).expect_err(value);
        assert!(error.contains(expected) && error.contains("OPENAI_API_KEY"), "{value:?}: {error}");
        assert!(!error.contains("cret"), "{error}");
    }
    let provider = configure("openai/a", None, "", &[("OPENAI_API_KEY", "sk-secret")]).expect("configured");
    assert!(!format!("{provider:?}").contains("sk-secret"));
}
