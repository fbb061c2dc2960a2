//! Keys and signatures of plugins, and the policies in the section `[sharing]` of the agent file.

use super::{TestCli, component, in_plugins};
use agent_plugins::Asks;

impl TestCli {
    /// Creates a key pair in files with this name, and returns the public key.
    pub(super) fn key(&self, name: &str) -> String {
        self.succeed(&["key", "new", &format!("{name}.key"), "--no-password"]);
        let public = std::fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        public.lines().nth(1).unwrap().to_owned()
    }

    /// Writes an agent file that contains this signature policy and trusts this key for the namespace `team`.
    pub(super) fn agent(&self, policy: &str, key: &str) {
        let text = format!(
            "plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"{policy}\"\n[sharing.trusted_keys]\n\"{}/team\" = \"{key}\"\n",
            self.registry.host()
        );
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }
}

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

pub(super) fn with_agent<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &AGENT].concat()
}

/// Row 23: If signatures are required, an unsigned or wrongly signed version is refused, and the previous version stays
/// in use. The lock file contains the signature, so the host can check the signature without a network.
#[test]
fn row_23_requires_signatures_if_the_agent_does() {
    let cli = TestCli::new();
    let (team, untrusted) = (cli.key("team"), cli.key("stranger"));
    cli.agent("required", &team);
    let reference = cli.reference("team/tides:latest");
    let signed = cli.push("tides", "1.0.0", &["--sign", "team.key"]);
    let output_text = cli.succeed(&with_agent(&["plugin", "add", &reference]));
    assert!(output_text.contains(&format!("signed    {team}")), "{output_text}");
    assert!(cli.lock().contains(&format!("signer = \"{team}\"")) && cli.lock().contains("trusted comment: "));

    cli.push("tides", "1.1.0", &[]);
    cli.fails(1, &with_agent(&["plugin", "update"]), &["it is not signed", "signatures = \"required\""]);
    cli.succeed(&["plugin", "sign", &reference, "--key", "stranger.key"]);
    cli.fails(1, &with_agent(&["plugin", "update"]), &["is not trusted for"]);
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), signed, "the previous version stays");
    assert!(cli.succeed(&with_agent(&["plugin", "list"])).contains("tides"), "the previous version is still used");

    let audit = cli.succeed(&["audit"]);
    assert!(audit.matches("was refused: ").count() >= 2 && audit.contains("it is not signed"), "O3: {audit}");
    cli.registry.requests();
    let verified = cli.succeed(&with_agent(&["plugin", "verify"]));
    assert!(verified.contains("✓") && verified.contains(&format!("signed by {team}")), "{verified}");
    assert!(cli.registry.requests().is_empty(), "the verification needs no network");
    // From here on, the agent file no longer trusts the key.
    cli.agent("required", &untrusted);
    cli.fails(1, &with_agent(&["plugin", "verify"]), &["✗", "is not trusted for"]);
    cli.fails(2, &with_agent(&["plugin", "list"]), &["tides.wasm: ", "is not trusted for"]);

    cli.agent("required", &team);
    cli.succeed(&["plugin", "sign", &reference, "--key", "team.key"]);
    cli.succeed(&with_agent(&["plugin", "update"]));
    assert!(cli.lock().contains("version = \"1.1.0\""));
}

/// Row 23: A signature in the lock file is refused if it was changed, or if it was made for another version or plugin.
#[test]
fn row_23_a_lock_with_a_changed_signature_is_refused() {
    let cli = TestCli::new();
    let team = cli.key("team");
    cli.agent("warn", &team);
    cli.push("tides", "1.0.0", &["--sign", "team.key"]);
    cli.push("moon", "1.0.0", &["--sign", "team.key"]);
    for name in ["tides", "moon"] {
        cli.succeed(&with_agent(&["plugin", "add", &cli.reference(&format!("team/{name}"))]));
    }
    let lock = cli.lock();
    let path = cli.path("plugins/plugins.lock");
    std::fs::write(&path, lock.replace("version = \"1.0.0\"", "version = \"9.9.9\"")).unwrap();
    cli.fails(2, &with_agent(&["plugin", "list"]), &["it was made for the version `1.0.0`, not `9.9.9`"]);
    std::fs::write(&path, lock.replace("version:1.0.0", "version:1.0.1")).unwrap();
    cli.fails(1, &with_agent(&["plugin", "verify"]), &["does not match the component"]);
    // In the lock file, the entry of `moon` takes the place of the entry of `tides`, together with the signature
    // of `moon`.
    let parts: Vec<&str> = lock.split("[[plugin]]").collect();
    let swapped = [parts[0], &parts[1].replace("name = \"moon\"", "name = \"tides\"")].join("[[plugin]]");
    std::fs::write(&path, swapped).unwrap();
    std::fs::copy(cli.path("plugins/moon.wasm"), cli.path("plugins/tides.wasm")).unwrap();
    cli.fails(2, &with_agent(&["plugin", "list"]), &["it was made for the plugin `moon`, not `tides`"]);
}

/// P11: The policy `warn` reports missing signatures, and `off` reports nothing. A key is trusted only for its
/// namespace.
#[test]
fn p11_the_policy_decides_whether_missing_signatures_are_reported() {
    let cli = TestCli::new();
    let team = cli.key("team");
    let reference = cli.reference("others/tides");
    std::fs::write(cli.path("tides.wasm"), component("tides", "1.0.0", Asks::default())).unwrap();
    cli.succeed(&["plugin", "push", &reference, "tides.wasm", "--sign", "team.key"]);
    cli.agent("required", &team);
    cli.fails(1, &with_agent(&["plugin", "add", &reference]), &["no key is trusted for"]);
    cli.agent("warn", &team);
    assert!(cli.succeed(&with_agent(&["plugin", "add", &reference])).contains("no key is trusted for"));
    cli.agent("off", &team);
    let output_text = cli.succeed(&with_agent(&["plugin", "add", &reference]));
    assert!(!output_text.contains("trusted") && !output_text.contains('!'), "{output_text}");
}

/// P11: A plugin can be added from a web server, with the signature file next to the component. An address without TLS
/// is refused.
#[test]
fn p11_adds_plugins_from_a_web_server() {
    let cli = TestCli::new();
    let team = cli.key("team");
    cli.agent("required", &team);
    let bytes = cli.push("tides", "1.0.0", &["--sign", "team.key"]);
    cli.succeed(&with_agent(&["plugin", "add", &cli.reference("team/tides")]));
    let lock: toml::Table = cli.lock().parse().unwrap();
    let signature = lock["plugin"][0]["signature"].as_str().unwrap().to_owned();
    cli.succeed(&with_agent(&["plugin", "remove", "tides"]));
    let address = format!("http://{}/team/files/tides.wasm", cli.registry.host());
    cli.fails(1, &with_agent(&["plugin", "add", &address]), &["tides.wasm was not found"]);
    cli.registry.put_page("/team/files/tides.wasm", &bytes);
    cli.fails(1, &with_agent(&["plugin", "add", &address]), &["it is not signed"]);
    cli.registry.put_page("/team/files/tides.wasm.minisig", signature.as_bytes());
    let output_text = cli.succeed(&with_agent(&["plugin", "add", &address]));
    assert!(output_text.contains(&team), "{output_text}");
    assert!(cli.lock().contains(&format!("reference = \"{address}\"")) && !cli.lock().contains("manifest = "));
    assert!(cli.succeed(&with_agent(&["plugin", "verify"])).contains("signed by"));
    let newer = component("tides", "1.1.0", Asks::default());
    cli.registry.put_page("/team/files/tides.wasm", &newer);
    cli.fails(1, &with_agent(&["plugin", "update"]), &["does not match the component"]);
    cli.agent("off", &team);
    cli.succeed(&with_agent(&["plugin", "update"]));
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), newer);
    let remote = ["plugin", "add", "http://plugins.example/tides.wasm"];
    cli.fails(1, &with_agent(&remote), &["does not use TLS", "--plain-http"]);
}

/// P11: The command that creates a key does not overwrite existing key files. By default, the command protects the key
/// with a password.
#[test]
fn p11_does_not_overwrite_keys() {
    let cli = TestCli::new();
    cli.fails(2, &["key", "new", "team.key"], &["AGENT_HOST_KEY_PASSWORD", "--no-password"]);
    assert!(!cli.path("team.key").exists());
    let public = cli.key("team");
    assert!(public.starts_with("RW"));
    cli.fails(2, &["key", "new", "team.key", "--no-password"], &["keys are not replaced"]);
    cli.push("tides", "1.0.0", &[]);
    let reference = cli.reference("team/tides");
    cli.fails(2, &["plugin", "sign", &reference, "--key", "team.pub"], &["team.pub"]);
    cli.fails(2, &["plugin", "sign", &reference, "--key", "absent.key"], &["absent.key cannot be read"]);
    cli.agent("required", "RWnonsense");
    cli.fails(2, &with_agent(&["plugin", "verify"]), &["agent.toml:5", "is not a valid public key"]);
    let added = cli.succeed(&in_plugins(&["plugin", "add", &reference]));
    assert!(added.contains("it is not signed"), "{added}");
}
