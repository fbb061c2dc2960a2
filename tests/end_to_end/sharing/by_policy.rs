//! Keys, signatures and what [sharing] says of them.

use super::{Desk, component, in_plugins};
use agent_plugins::Asks;

impl Desk {
    /// A new key, in its file of that name; its public half.
    pub(super) fn key(&self, name: &str) -> String {
        self.done(&["key", "new", &format!("{name}.key"), "--no-password"]);
        let public = std::fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        public.lines().nth(1).unwrap().to_owned()
    }

    /// An agent whose file has this policy, and trusts this key for `team`.
    pub(super) fn agent(&self, policy: &str, key: &str) {
        let text = format!(
            "plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"{policy}\"\n[sharing.trusted_keys]\n\"{}/team\" = \"{key}\"\n",
            self.registry.host()
        );
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }
}

const AGENT: [&str; 2] = ["--agent", "agent.toml"];

pub(super) fn of_agent<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &AGENT].concat()
}

/// Row 23: unsigned or wrongly signed is refused where signatures are required, and the one before serves; the signature is
/// in the lock, and is checked without any network.
#[test]
fn row_23_signatures_are_required_where_the_agent_says_so() {
    let desk = Desk::new();
    let (team, stranger) = (desk.key("team"), desk.key("stranger"));
    desk.agent("required", &team);
    let reference = desk.reference("team/tides:latest");
    let signed = desk.push("tides", "1.0.0", &["--sign", "team.key"]);
    let said = desk.done(&of_agent(&["plugin", "add", &reference]));
    assert!(said.contains(&format!("signed    {team}")), "{said}");
    assert!(desk.lock().contains(&format!("signer = \"{team}\"")) && desk.lock().contains("trusted comment: "));

    desk.push("tides", "1.1.0", &[]);
    desk.fails(1, &of_agent(&["plugin", "update"]), &["it is not signed", "signatures = \"required\""]);
    desk.done(&["plugin", "sign", &reference, "--key", "stranger.key"]);
    desk.fails(1, &of_agent(&["plugin", "update"]), &["is not trusted for"]);
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), signed, "the one before stays");
    assert!(desk.done(&of_agent(&["plugin", "list"])).contains("tides"), "and serves");

    desk.registry.requests();
    let verified = desk.done(&of_agent(&["plugin", "verify"]));
    assert!(verified.contains("✓") && verified.contains(&format!("signed by {team}")), "{verified}");
    assert!(desk.registry.requests().is_empty(), "offline");
    // Somebody whose word does not count any more.
    desk.agent("required", &stranger);
    desk.fails(1, &of_agent(&["plugin", "verify"]), &["✗", "is not trusted for"]);
    desk.fails(2, &of_agent(&["plugin", "list"]), &["tides.wasm: ", "is not trusted for"]);

    desk.agent("required", &team);
    desk.done(&["plugin", "sign", &reference, "--key", "team.key"]);
    desk.done(&of_agent(&["plugin", "update"]));
    assert!(desk.lock().contains("version = \"1.1.0\""));
}

/// Row 23: a signature in the lock that was changed, or was made for something else.
#[test]
fn row_23_a_lock_with_a_changed_signature_is_refused() {
    let desk = Desk::new();
    let team = desk.key("team");
    desk.agent("warn", &team);
    desk.push("tides", "1.0.0", &["--sign", "team.key"]);
    desk.push("moon", "1.0.0", &["--sign", "team.key"]);
    for name in ["tides", "moon"] {
        desk.done(&of_agent(&["plugin", "add", &desk.reference(&format!("team/{name}"))]));
    }
    let lock = desk.lock();
    let path = desk.path("plugins/plugins.lock");
    std::fs::write(&path, lock.replace("version = \"1.0.0\"", "version = \"9.9.9\"")).unwrap();
    desk.fails(2, &of_agent(&["plugin", "list"]), &["it was made for the version `1.0.0`, not `9.9.9`"]);
    std::fs::write(&path, lock.replace("version:1.0.0", "version:1.0.1")).unwrap();
    desk.fails(1, &of_agent(&["plugin", "verify"]), &["does not fit what came"]);
    // One plugin in the place of another, with its own signature.
    let parts: Vec<&str> = lock.split("[[plugin]]").collect();
    let swapped = [parts[0], &parts[1].replace("name = \"moon\"", "name = \"tides\"")].join("[[plugin]]");
    std::fs::write(&path, swapped).unwrap();
    std::fs::copy(desk.path("plugins/moon.wasm"), desk.path("plugins/tides.wasm")).unwrap();
    desk.fails(2, &of_agent(&["plugin", "list"]), &["it was made for the plugin `moon`, not `tides`"]);
}

/// P11: `warn` says what is missing, `off` says nothing, and keys count for their name space.
#[test]
fn p11_the_policy_says_what_is_said() {
    let desk = Desk::new();
    let team = desk.key("team");
    let reference = desk.reference("others/tides");
    std::fs::write(desk.path("tides.wasm"), component("tides", "1.0.0", Asks::default())).unwrap();
    desk.done(&["plugin", "push", &reference, "tides.wasm", "--sign", "team.key"]);
    desk.agent("required", &team);
    desk.fails(1, &of_agent(&["plugin", "add", &reference]), &["no key is trusted for"]);
    desk.agent("warn", &team);
    assert!(desk.done(&of_agent(&["plugin", "add", &reference])).contains("no key is trusted for"));
    desk.agent("off", &team);
    let said = desk.done(&of_agent(&["plugin", "add", &reference]));
    assert!(!said.contains("trusted") && !said.contains('!'), "{said}");
}

/// P11: from a web server, with the signature beside the file, and nothing from where anybody could change it.
#[test]
fn p11_a_web_server_serves_plugins_too() {
    let desk = Desk::new();
    let team = desk.key("team");
    desk.agent("required", &team);
    let bytes = desk.push("tides", "1.0.0", &["--sign", "team.key"]);
    desk.done(&of_agent(&["plugin", "add", &desk.reference("team/tides")]));
    let lock: toml::Table = desk.lock().parse().unwrap();
    let signature = lock["plugin"][0]["signature"].as_str().unwrap().to_owned();
    desk.done(&of_agent(&["plugin", "remove", "tides"]));
    let address = format!("http://{}/team/files/tides.wasm", desk.registry.host());
    desk.fails(1, &of_agent(&["plugin", "add", &address]), &["tides.wasm is not there"]);
    desk.registry.put_page("/team/files/tides.wasm", &bytes);
    desk.fails(1, &of_agent(&["plugin", "add", &address]), &["it is not signed"]);
    desk.registry.put_page("/team/files/tides.wasm.minisig", signature.as_bytes());
    let said = desk.done(&of_agent(&["plugin", "add", &address]));
    assert!(said.contains(&team), "{said}");
    assert!(desk.lock().contains(&format!("reference = \"{address}\"")) && !desk.lock().contains("manifest = "));
    assert!(desk.done(&of_agent(&["plugin", "verify"])).contains("signed by"));
    let newer = component("tides", "1.1.0", Asks::default());
    desk.registry.put_page("/team/files/tides.wasm", &newer);
    desk.fails(1, &of_agent(&["plugin", "update"]), &["does not fit what came"]);
    desk.agent("off", &team);
    desk.done(&of_agent(&["plugin", "update"]));
    assert_eq!(std::fs::read(desk.path("plugins/tides.wasm")).unwrap(), newer);
    let remote = ["plugin", "add", "http://plugins.example/tides.wasm"];
    desk.fails(1, &of_agent(&remote), &["has no TLS", "--plain-http"]);
}

/// P11: keys are made once, and with a password where nobody says otherwise.
#[test]
fn p11_keys_are_made_once() {
    let desk = Desk::new();
    desk.fails(2, &["key", "new", "team.key"], &["AGENT_HOST_KEY_PASSWORD", "--no-password"]);
    assert!(!desk.path("team.key").exists());
    let public = desk.key("team");
    assert!(public.starts_with("RW"));
    desk.fails(2, &["key", "new", "team.key", "--no-password"], &["a key is not replaced"]);
    desk.push("tides", "1.0.0", &[]);
    let reference = desk.reference("team/tides");
    desk.fails(2, &["plugin", "sign", &reference, "--key", "team.pub"], &["team.pub"]);
    desk.fails(2, &["plugin", "sign", &reference, "--key", "absent.key"], &["absent.key cannot be read"]);
    desk.agent("required", "RWnonsense");
    desk.fails(2, &of_agent(&["plugin", "verify"]), &["agent.toml:5", "is no public key"]);
    let added = desk.done(&in_plugins(&["plugin", "add", &reference]));
    assert!(added.contains("it is not signed"), "{added}");
}
