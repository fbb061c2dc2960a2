//! Media of a fleet in an S3-compatible object store, with a real server on this machine (F1).

use super::Fleet;
use crate::approvals::command_line::TestCli;
use crate::s3::{S3, s3};
use crate::serve::client::{Client, encoded};
use crate::support::{agent_host, text_reply};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const PATIENCE: Duration = Duration::from_secs(60);

/// The variables that select a bucket. The secrets are not those of the server, which accepts all.
fn variables(s3: &S3, bucket: &str) -> [(&'static str, String); 4] {
    [
        ("AGENT_HOST_MEDIA_STORE", format!("s3://{bucket}/agents")),
        ("AWS_ENDPOINT_URL", s3.url()),
        ("AWS_ACCESS_KEY_ID", "s3cret-key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "s3cret-access".to_owned()),
    ]
}

/// Returns an image of more than 64 KiB.
fn picture() -> Vec<u8> {
    let mut number = 1_u32;
    let pixels = image::RgbImage::from_fn(200, 200, |_, _| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        image::Rgb([(number >> 24) as u8, (number >> 16) as u8, (number >> 8) as u8])
    });
    let mut picture = std::io::Cursor::new(Vec::new());
    pixels.write_to(&mut picture, image::ImageFormat::Png).expect("encoded");
    picture.into_inner()
}

async fn idle(client: &Client, path: &str) {
    let begun = Instant::now();
    while client.get(path).await.json(200)["state"] != "idle" {
        assert!(begun.elapsed() < PATIENCE, "the turn does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// F1: an image that is sent to one server is an object, and another server, an export and a copy read it there.
#[tokio::test(flavor = "multi_thread")]
async fn f1_image_is_an_object_that_every_process_reads() {
    let Some(fleet) = Fleet::new(&[("brief", "", json!([{"text": "A picture."}]))], 2) else { return };
    let Some(s3) = s3() else { return };
    let bucket = s3.new_bucket();
    let chosen = variables(s3, &bucket);
    let borrowed: Vec<(&str, &str)> = chosen.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (one, two) = (fleet.start_with("serve", 0, &borrowed), fleet.start_with("serve", 1, &borrowed));
    let picture = picture();
    assert!(picture.len() > 64 << 10);
    let attachments = json!([{"mime_type": "image/png", "data": STANDARD.encode(&picture)}]);
    let new = json!({"agent": "brief", "prompt": "Look.", "attachments": attachments});
    let created = one.client().post("/api/sessions", new).await.json(201);
    let session = created["session"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{}", encoded(&session));
    idle(&two.client(), &path).await;
    let messages = two.client().get(&format!("{path}/messages")).await.json(200);
    let digest = messages["messages"][0]["parts"][1]["media"]["digest"].as_str().unwrap().to_owned();
    let (_, bytes) = two.client().get_bytes(&format!("{path}/media/{digest}")).await;
    assert!(bytes == picture, "the other server returns the image");
    let keys = s3.keys(&bucket);
    let hex = digest.rsplit(':').next().unwrap();
    assert!(keys.iter().any(|key| key.starts_with("agents/") && key.contains(hex)), "{keys:?}");
    let (client, connection) = tokio_postgres::connect(&fleet.address(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let in_database = "SELECT coalesce(max(length(bytes)), 0)::bigint FROM blob_parts";
    assert!(client.query_one(in_database, &[]).await.unwrap().get::<_, i64>(0) < 64 << 10);

    // A session that is open in a server cannot be exported. A server that is told to stop closes its sessions.
    for server in [one, two] {
        server.signal(Signal::TERM);
        assert!(server.wait(), "the server ends without an error");
    }
    let cli = TestCli::new("", &[text_reply("unused")]);
    let address = fleet.address();
    let run = |arguments: &[&str]| {
        let output = cli.command(arguments).envs(borrowed.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", text_of(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let export = run(&["session", "export", &session, "--store", &address]);
    assert!(export.contains(&STANDARD.encode(&picture)), "the export contains the image");
    assert!(run(&["store", "check", "--store", &address]).contains("matches its digests"));
    assert!(run(&["doctor", "--store", &address]).contains(&format!("s3://{bucket}/agents can be used")));
    // The copy needs no option for its source, because the database names its object store.
    let copied: Vec<_> = borrowed.iter().copied().filter(|(name, _)| name.starts_with("AWS")).collect();
    let output = cli.command(&["store", "copy", &address, "copy"]).envs(copied).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    let export_of_copy =
        agent_host().args(["session", "export", &session, "--data"]).arg(cli.path("copy")).output().unwrap();
    let problem = String::from_utf8_lossy(&export_of_copy.stderr);
    assert!(String::from_utf8_lossy(&export_of_copy.stdout) == export, "the copy differs: {problem}");

    run(&["session", "delete", &session, "--store", &address]);
    let doomed = "SELECT count(*) FROM unused_objects WHERE doomed";
    assert!(client.query_one(doomed, &[]).await.unwrap().get::<_, i64>(0) >= 1, "the object is deleted later");
}

/// F1: a media store without a database, with a wrong address, or other than that of the database is refused with advice, and no
/// message or log contains the access key.
#[tokio::test(flavor = "multi_thread")]
async fn f1_wrong_media_stores_are_refused_and_secrets_are_not_printed() {
    let (Some(fleet), Some(s3)) = (Fleet::new(&[], 0), s3()) else { return };
    let (cli, address) = (TestCli::new("", &[text_reply("unused")]), fleet.address());
    let bucket = s3.new_bucket();
    let run = |arguments: &[&str], changed: &[(&str, &str)]| {
        let mut command = cli.command(arguments);
        command.envs(variables(s3, &bucket)).envs(changed.iter().copied());
        let output = command.output().unwrap();
        let shown = text_of(&output);
        assert!(!shown.contains("s3cret"), "{shown}");
        (output.status.code(), shown)
    };
    let list = ["session", "list", "--store", &address, "-vv"];
    let (code, shown) = run(&["session", "list"], &[]);
    assert!(code == Some(2) && shown.contains("AGENT_HOST_STORE"), "{shown}");
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_ENDPOINT_URL", "http://s3cret.example:9000"),
        ("AGENT_HOST_MEDIA_STORE", "s3://a/s3cret?"),
    ] {
        let (code, shown) = run(&list, &[(name, value)]);
        assert!(code == Some(2) && shown.contains(name), "{shown}");
    }
    // Nobody listens at this port.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = format!("http://127.0.0.1:{closed}");
    let (code, shown) = run(&list, &[("AWS_ENDPOINT_URL", &closed)]);
    assert!(code == Some(2) && shown.contains(&format!("s3://{bucket}/agents")), "{shown}");
    let missing = [("AGENT_HOST_MEDIA_STORE", "s3://no-such-bucket")];
    let (code, shown) = run(&["doctor", "--json", "--store", &address], &missing);
    assert!(code == Some(1) && shown.contains("check the name of the bucket"), "{shown}");

    let (code, shown) = run(&list, &[]);
    assert_eq!(code, Some(0), "{shown}");
    for other in ["", "s3://other-bucket"] {
        let (code, shown) = run(&list, &[("AGENT_HOST_MEDIA_STORE", other)]);
        assert!(code == Some(2) && shown.contains(&format!("--media-store s3://{bucket}/agents")), "{shown}");
        let (code, shown) = run(&["doctor", "--store", &address], &[("AGENT_HOST_MEDIA_STORE", other)]);
        assert!(code == Some(1) && shown.contains(&format!("s3://{bucket}/agents")), "{shown}");
    }
    let (code, shown) = run(&["doctor", "--json", "--store", &address, "-vv"], &[("AWS_ENDPOINT_URL", &closed)]);
    assert!(code == Some(1) && shown.contains("AWS_ENDPOINT_URL"), "{shown}");
    let copied: Value = serde_json::from_str(
        run(&["store", "copy", &address, "copy", "--json"], &[])
            .1
            .lines()
            .rfind(|line| line.starts_with('{'))
            .unwrap_or_default(),
    )
    .expect("a result");
    assert_eq!(copied["copied"], 0);
}
