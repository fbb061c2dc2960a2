//! Row 53: a registry cannot turn back the clock, whatever its tags say.

use super::by_policy::of_agent;
use super::{Desk, component};
use agent_plugins::{Access, Asks};

impl Desk {
    /// Moves `latest` to this version, as who controls a registry could.
    fn move_tag(&self, version: &str, asks: Asks, rest: &[&str]) -> Vec<u8> {
        let bytes = component("tides", version, asks);
        std::fs::write(self.path("moved.wasm"), &bytes).unwrap();
        let reference = self.reference("team/tides:latest");
        self.done(&[&["plugin", "push", &reference, "moved.wasm", "--overwrite"], rest].concat());
        bytes
    }

    fn serves(&self, bytes: &[u8]) {
        assert_eq!(std::fs::read(self.path("plugins/tides.wasm")).unwrap(), bytes);
    }
}

fn asking() -> Asks {
    Asks { files: Some(Access::Read), ..Asks::default() }
}

const SIGNED: [&str; 2] = ["--sign", "team.key"];

/// Row 53: a signed older version, also where versions are not written as semantic versions are.
#[test]
fn row_53_a_tag_that_goes_back_is_not_followed() {
    for policy in ["warn", "required"] {
        let desk = Desk::new();
        let team = desk.key("team");
        desk.agent(policy, &team);
        let reference = desk.reference("team/tides:latest");
        let newest = desk.move_tag("1.10", Asks::default(), &SIGNED);
        desk.done(&of_agent(&["plugin", "add", &reference]));
        let lock = desk.lock();

        let old = desk.move_tag("1.9", asking(), &SIGNED);
        let said = ["older than 1.10", "--allow-downgrade"];
        desk.fails(1, &of_agent(&["plugin", "update"]), &said);
        desk.fails(2, &of_agent(&["plugin", "add", &reference]), &said);
        desk.fails(2, &of_agent(&["plugin", "add", "--replace", &reference]), &said);
        desk.serves(&newest);
        assert_eq!(desk.lock(), lock, "nothing is changed");
        desk.done(&of_agent(&["plugin", "update", "--allow-downgrade"]));
        desk.serves(&old);
    }
}

/// Row 53: the same version with other content and without its signature, a newer version without it, and versions that
/// cannot be compared.
#[test]
fn row_53_a_signed_version_does_not_become_an_unsigned_one() {
    let desk = Desk::new();
    let team = desk.key("team");
    desk.agent("warn", &team);
    let reference = desk.reference("team/tides:latest");
    let signed = desk.move_tag("1.0.0", Asks::default(), &SIGNED);
    desk.done(&of_agent(&["plugin", "add", &reference]));
    for version in ["1.0.0", "1.0.1", "nightly"] {
        desk.move_tag(version, asking(), &[]);
        for (code, command) in [(1, vec!["plugin", "update"]), (2, vec!["plugin", "add", &reference])] {
            desk.fails(code, &of_agent(&command), &["no trusted key has signed", &team, "--allow-downgrade"]);
        }
        desk.serves(&signed);
    }
    desk.fails(1, &of_agent(&["plugin", "update", "--check"]), &["no trusted key has signed"]);
    desk.done(&of_agent(&["plugin", "add", &reference, "--allow-downgrade"]));
}

/// Row 53: where nobody signs, one version still has one content; what is newer comes as ever.
#[test]
fn row_53_one_version_has_one_content() {
    let desk = Desk::new();
    let (team, reference) = (desk.key("team"), desk.reference("team/tides:latest"));
    desk.agent("off", &team);
    let first = desk.move_tag("1.0.0", Asks::default(), &[]);
    desk.done(&of_agent(&["plugin", "add", &reference]));
    desk.move_tag("1.0.0", asking(), &[]);
    desk.fails(1, &of_agent(&["plugin", "update"]), &["the locked version with other content", "--allow-downgrade"]);
    desk.move_tag("nightly", asking(), &[]);
    desk.fails(1, &of_agent(&["plugin", "update"]), &["cannot be compared", "--allow-downgrade"]);
    desk.serves(&first);
    let newer = desk.move_tag("1.0.1", asking(), &[]);
    desk.done(&of_agent(&["plugin", "update"]));
    desk.serves(&newer);
    // A file of this machine is built again and again under one version.
    for asks in [Asks::default(), asking()] {
        std::fs::write(desk.path("mine.wasm"), component("mine", "0.1.0", asks)).unwrap();
        desk.done(&of_agent(&["plugin", "add", "./mine.wasm"]));
    }
}
