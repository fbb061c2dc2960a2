//! Tests of plugin sharing (P11) with third-party programs: Debian's registry, skopeo, minisign and oras.

use super::{TestCli, component};
use crate::peers::{debian, debian_program, python_with};
use agent_plugins::{Asks, digest_of};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Returns a port on loopback on which nothing listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A running registry server from a Debian package. The server is stopped when this value is dropped.
pub(crate) struct DebianRegistry {
    child: Child,
    pub(crate) host: String,
    _folder: tempfile::TempDir,
}

impl Drop for DebianRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DebianRegistry {
    pub(crate) fn start() -> Option<Self> {
        let program = debian("docker-registry")?;
        let folder = tempfile::tempdir().unwrap();
        let host = format!("127.0.0.1:{}", free_port());
        let configuration = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n",
            folder.path().join("registry").display()
        );
        std::fs::write(folder.path().join("config.yml"), configuration).unwrap();
        let mut command = debian_program(&program);
        command.arg("serve").arg(folder.path().join("config.yml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let registry = Self { child, host, _folder: folder };
        let started = Instant::now();
        while std::net::TcpStream::connect(&registry.host).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "the registry does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(registry)
    }
}

fn output_of_success(output: &Output) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    text
}

/// P11: Plugins can be pushed, tagged, added, signed, updated and searched with Debian's registry, and skopeo can copy
/// the plugins byte for byte.
#[test]
fn p11_works_with_debians_registry_and_skopeo() {
    let (Some(registry), Some(skopeo)) = (DebianRegistry::start(), debian("skopeo")) else { return };
    let cli = TestCli::new();
    let public = cli.key("team");
    let reference = format!("{}/team/tides", registry.host);
    let index = format!("{}/team/index", registry.host);
    let bytes = component("tides", "1.0.0", Asks::default());
    std::fs::write(cli.path("tides.wasm"), &bytes).unwrap();
    for tag in ["", ":latest"] {
        cli.succeed(&[
            "plugin",
            "push",
            &format!("{reference}{tag}"),
            "tides.wasm",
            "--sign",
            "team.key",
            "--index",
            &index,
        ]);
    }
    let agent = format!(
        "plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"required\"\n[sharing.trusted_keys]\n\"{}/team\" = \"{public}\"\n",
        registry.host
    );
    std::fs::write(cli.path("agent.toml"), agent).unwrap();
    std::fs::remove_dir_all(cli.path("data")).unwrap();
    let added = cli.succeed(&["plugin", "add", &format!("{reference}:latest"), "--agent", "agent.toml"]);
    assert!(added.contains(&public), "{added}");
    assert_eq!(std::fs::read(cli.path("plugins/tides.wasm")).unwrap(), bytes);
    assert!(cli.succeed(&["plugin", "search", "depths", "--index", &index]).contains("tides"));
    std::fs::write(cli.path("tides.wasm"), component("tides", "1.1.0", Asks::default())).unwrap();
    cli.succeed(&["plugin", "push", &format!("{reference}:latest"), "tides.wasm", "--sign", "team.key"]);
    cli.succeed(&["plugin", "update", "--agent", "agent.toml"]);
    assert!(cli.lock().contains("version = \"1.1.0\""));

    let run = |arguments: &[&str]| {
        let mut command = debian_program(&skopeo);
        command.current_dir(cli.path("")).args(arguments).stdin(Stdio::null());
        output_of_success(&command.output().unwrap())
    };
    let raw = run(&["inspect", "--raw", "--tls-verify=false", &format!("docker://{reference}:1.0.0")]);
    let manifest: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(manifest["layers"][0]["digest"], digest_of(&bytes).as_str());
    run(&[
        "--insecure-policy",
        "copy",
        "--src-tls-verify=false",
        &format!("docker://{reference}:1.0.0"),
        "oci:copied:1",
    ]);
    let blob = cli.path("copied/blobs/sha256").join(digest_of(&bytes).hex());
    assert_eq!(std::fs::read(blob).unwrap(), bytes, "the copied bytes are identical");
}

/// P11: If two processes sign the same artifact at the same moment, both signatures are attached to the artifact, even
/// if the registry supports neither the referrers list nor conditional writes.
#[test]
fn p11_keeps_two_concurrent_signatures() {
    const ROUNDS: usize = 12;
    let Some(registry) = DebianRegistry::start() else { return };
    let cli = TestCli::new();
    let keys = ["one", "other"].map(|name| (name, cli.key(name)));
    std::fs::write(cli.path("tides.wasm"), component("tides", "1.0.0", Asks::default())).unwrap();
    for round in 0..ROUNDS {
        let reference = format!("{}/team/tides-{round}:1.0.0", registry.host);
        cli.succeed(&["plugin", "push", &reference, "tides.wasm"]);
        let sign = |name: &str| {
            let key = format!("{name}.key");
            let mut command = cli.command(&["plugin", "sign", &reference, "--key", &key]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let signing = keys.each_ref().map(|(name, _)| sign(name));
        signing.into_iter().for_each(|child| drop(output_of_success(&child.wait_with_output().unwrap())));
        for (_, key) in &keys {
            let trusted = format!("[sharing.trusted_keys]\n\"{}/team\" = \"{key}\"\n", registry.host);
            let agent = format!("plugin_directory = \"plugins\"\n[sharing]\nsignatures = \"required\"\n{trusted}");
            std::fs::write(cli.path("agent.toml"), agent).unwrap();
            let added = cli.succeed(&["plugin", "add", &reference, "--agent", "agent.toml", "--replace"]);
            assert!(added.contains(key), "round {round}: {added}");
        }
    }
}

/// P11: Oras can pull a pushed plugin. An artifact that oras pushes with the media types of a component can be added.
/// `plugin add` refuses an artifact with any other media type, and the error names that media type.
#[test]
fn p11_oras_reads_and_writes_the_same_artifacts() {
    let (Some(registry), Some(python)) = (DebianRegistry::start(), python_with("oras")) else {
        return;
    };
    let cli = TestCli::new();
    let bytes = component("tides", "1.0.0", Asks::default());
    std::fs::write(cli.path("tides.wasm"), &bytes).unwrap();
    let host = &registry.host;
    cli.succeed(&["plugin", "push", &format!("{host}/team/tides:1"), "tides.wasm"]);
    let script = format!(
        "import oras.client, json\n\
         client = oras.client.OrasClient(insecure=True, tls_verify=False)\n\
         client.pull(target='{host}/team/tides:1', outdir='pulled')\n\
         open('config.json', 'w').write(json.dumps({{'architecture': 'wasm', 'os': 'wasip2'}}))\n\
         client.push(target='{host}/oras/tides:1', files=['tides.wasm:application/wasm'], \
         manifest_config='config.json:application/vnd.wasm.config.v0+json')\n\
         client.push(target='{host}/oras/unknown:1', files=['tides.wasm:application/wasm'])\n\
         client.push(target='{host}/oras/text:1', files=['config.json:text/plain'])\n"
    );
    std::fs::write(cli.path("peer.py"), script).unwrap();
    let mut command = Command::new(python);
    output_of_success(&command.current_dir(cli.path("")).arg("peer.py").stdin(Stdio::null()).output().unwrap());
    assert_eq!(std::fs::read(cli.path("pulled/tides.wasm")).unwrap(), bytes, "oras pulls the file under its name");
    let plugins = ["--plugins", "plugins"];
    let add = |reference: String| {
        [vec!["plugin".to_owned(), "add".to_owned(), reference], plugins.map(str::to_owned).to_vec()].concat()
    };
    let run =
        |arguments: &[String]| cli.run_with_merged_output(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, output_text) = run(&add(format!("{host}/oras/tides:1")));
    assert_eq!(code, 0, "{output_text}");
    let (code, output_text) = run(&add(format!("{host}/oras/unknown:1")));
    assert!(code == 1 && output_text.contains("its config has the media type"), "{output_text}");
    let (code, output_text) = run(&add(format!("{host}/oras/text:1")));
    assert!(code == 1 && output_text.contains("it contains text/plain"), "{output_text}");
}

/// P11: Debian's minisign verifies a signature that the host made, and the host verifies a signature that
/// minisign made.
#[test]
fn p11_works_with_debians_minisign_in_both_directions() {
    let Some(minisign) = debian("minisign") else { return };
    let cli = TestCli::new();
    let run = |arguments: &[&str]| {
        let mut command = debian_program(&minisign);
        command.current_dir(cli.path("")).args(arguments).stdin(Stdio::null());
        output_of_success(&command.output().unwrap())
    };
    // The program minisign accepts the signature in the lock file for the component in the plugin folder.
    let public = cli.key("team");
    std::fs::write(cli.path("tides.wasm"), component("tides", "1.0.0", Asks::default())).unwrap();
    let reference = cli.reference("team/tides");
    cli.succeed(&["plugin", "push", &reference, "tides.wasm", "--sign", "team.key"]);
    cli.agent("required", &public);
    cli.succeed(&["plugin", "add", &reference, "--agent", "agent.toml"]);
    let lock: toml::Table = cli.lock().parse().unwrap();
    let signature = lock["plugin"][0]["signature"].as_str().unwrap().to_owned();
    std::fs::write(cli.path("tides.minisig"), signature).unwrap();
    let output_text = run(&["-V", "-m", "plugins/tides.wasm", "-x", "tides.minisig", "-p", "team.pub"]);
    assert!(output_text.contains("name:tides\tversion:1.0.0"), "{output_text}");
    // `plugin sign` can sign with a key that minisign created. The host accepts a signature that minisign made for a
    // plugin from a web address.
    run(&["-G", "-W", "-p", "debian.pub", "-s", "debian.key"]);
    let key = std::fs::read_to_string(cli.path("debian.pub")).unwrap().lines().nth(1).unwrap().to_owned();
    cli.agent("required", &key);
    cli.succeed(&["plugin", "sign", &reference, "--key", "debian.key"]);
    cli.succeed(&["plugin", "add", &reference, "--agent", "agent.toml"]);
    assert!(cli.lock().contains(&key));
    run(&["-S", "-s", "debian.key", "-m", "tides.wasm", "-t", "name:tides\tversion:1.0.0"]);
    for name in ["tides.wasm", "tides.wasm.minisig"] {
        cli.registry.put_page(&format!("/team/{name}"), &std::fs::read(cli.path(name)).unwrap());
    }
    cli.succeed(&["plugin", "remove", "tides", "--agent", "agent.toml"]);
    let address = format!("http://{}/team/tides.wasm", cli.registry.host());
    let added = cli.succeed(&["plugin", "add", &address, "--agent", "agent.toml"]);
    assert!(added.contains(&key), "{added}");
    let wrong = "name:moon\tversion:1.0.0";
    run(&["-S", "-s", "debian.key", "-m", "tides.wasm", "-t", wrong]);
    cli.registry.put_page("/team/tides.wasm.minisig", &std::fs::read(cli.path("tides.wasm.minisig")).unwrap());
    cli.fails(1, &["plugin", "add", &address, "--agent", "agent.toml"], &["it was made for the plugin `moon`"]);
    assert!(Path::new(&cli.path("plugins/tides.wasm")).exists());
}
