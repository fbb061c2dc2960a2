//! Row 53: A registry cannot roll a plugin back to an older version by moving its tags.

use super::by_policy::with_agent;
use super::{TestCli, component};
use agent_plugins::{Access, Asks};

impl TestCli {
    /// Moves the tag `latest` to this version, as an attacker who controls the registry could.
    fn move_tag(&self, version: &str, asks: Asks, extra_arguments: &[&str]) -> Vec<u8> {
        let bytes = component("tides", version, asks);
        std::fs::write(self.path("moved.wasm"), &bytes).unwrap();
        let reference = self.reference("team/tides:latest");
        self.succeed(&[&["plugin", "push", &reference, "moved.wasm", "--overwrite"], extra_arguments].concat());
        bytes
    }

    fn check_installed(&self, bytes: &[u8]) {
        assert_eq!(std::fs::read(self.path("plugins/tides.wasm")).unwrap(), bytes);
    }
}

fn asking_for_files() -> Asks {
    Asks { files: Some(Access::Read), ..Asks::default() }
}

const SIGNED: [&str; 2] = ["--sign", "team.key"];

/// Row 53: A signed older version is not installed, even if the version numbers are not semantic versions.
#[test]
fn row_53_does_not_follow_a_tag_to_an_older_version() {
    for policy in ["warn", "required"] {
        let cli = TestCli::new();
        let team = cli.key("team");
        cli.agent(policy, &team);
        let reference = cli.reference("team/tides:latest");
        let newest = cli.move_tag("1.10", Asks::default(), &SIGNED);
        cli.succeed(&with_agent(&["plugin", "add", &reference]));
        let lock = cli.lock();

        let old = cli.move_tag("1.9", asking_for_files(), &SIGNED);
        let output_text = ["older than 1.10", "--allow-downgrade"];
        cli.fails(1, &with_agent(&["plugin", "update"]), &output_text);
        cli.fails(2, &with_agent(&["plugin", "add", &reference]), &output_text);
        cli.fails(2, &with_agent(&["plugin", "add", "--replace", &reference]), &output_text);
        cli.check_installed(&newest);
        assert_eq!(cli.lock(), lock, "nothing is changed");
        cli.succeed(&with_agent(&["plugin", "update", "--allow-downgrade"]));
        cli.check_installed(&old);
    }
}

/// Row 53: a signed version is not replaced by any of these versions: the same version with other content and without a
/// signature, a newer version without a signature, and a version that cannot be compared with the installed version.
#[test]
fn row_53_a_signed_version_does_not_become_an_unsigned_one() {
    let cli = TestCli::new();
    let team = cli.key("team");
    cli.agent("warn", &team);
    let reference = cli.reference("team/tides:latest");
    let signed = cli.move_tag("1.0.0", Asks::default(), &SIGNED);
    cli.succeed(&with_agent(&["plugin", "add", &reference]));
    for version in ["1.0.0", "1.0.1", "nightly"] {
        cli.move_tag(version, asking_for_files(), &[]);
        for (code, command) in [(1, vec!["plugin", "update"]), (2, vec!["plugin", "add", &reference])] {
            cli.fails(code, &with_agent(&command), &["no trusted key has signed", &team, "--allow-downgrade"]);
        }
        cli.check_installed(&signed);
    }
    cli.fails(1, &with_agent(&["plugin", "update", "--check"]), &["no trusted key has signed"]);
    cli.succeed(&with_agent(&["plugin", "add", &reference, "--allow-downgrade"]));
}

/// Row 53: Even without signatures, a version whose content has changed is not installed. Newer versions are installed
/// as usual.
#[test]
fn row_53_the_content_of_a_version_cannot_change() {
    let cli = TestCli::new();
    let (team, reference) = (cli.key("team"), cli.reference("team/tides:latest"));
    cli.agent("off", &team);
    let first = cli.move_tag("1.0.0", Asks::default(), &[]);
    cli.succeed(&with_agent(&["plugin", "add", &reference]));
    cli.move_tag("1.0.0", asking_for_files(), &[]);
    cli.fails(
        1,
        &with_agent(&["plugin", "update"]),
        &["the locked version but different content", "--allow-downgrade"],
    );
    cli.move_tag("nightly", asking_for_files(), &[]);
    cli.fails(1, &with_agent(&["plugin", "update"]), &["cannot be compared", "--allow-downgrade"]);
    cli.check_installed(&first);
    let newer = cli.move_tag("1.0.1", asking_for_files(), &[]);
    cli.succeed(&with_agent(&["plugin", "update"]));
    cli.check_installed(&newer);
    // A plugin that was added from a local file may be rebuilt with other content under the same version, unlike a
    // plugin from a registry.
    for asks in [Asks::default(), asking_for_files()] {
        std::fs::write(cli.path("mine.wasm"), component("mine", "0.1.0", asks)).unwrap();
        cli.succeed(&with_agent(&["plugin", "add", "./mine.wasm"]));
    }
}
