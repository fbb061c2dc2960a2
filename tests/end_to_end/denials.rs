//! Every denial is reported as an event and as an entry in the audit log, for every outcome of the call (P6, O3).

use crate::support::{
    TestHost, base_call_id, call_reply, events, results, run_turn, script, text_reply, with_events_and_media,
};
use agent_core::approval::ApprovalPolicy;
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::tool::ToolSource;
use agent_runtime::{AgentConfig, TurnResult};
use agent_store::{Audit, AuditAction};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Runs a session whose model makes this call, and checks that its events and the audit log contain the same denials.
/// For each denial, returns three values: the denied resource, whether the denial belongs to a call, and whether the
/// denial suggests no grant.
async fn denials_of(test_host: &TestHost, config: AgentConfig, call: (&str, Value)) -> Vec<(String, bool, bool)> {
    let mut session = test_host.session(config, script(&[call_reply(&[call]), text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let mut denied_events = Vec::new();
    for event in events(test_host, &session).await {
        if let EventKind::Denied { call, denial } = event.kind {
            denied_events.push((denial, call));
        }
    }
    let audited = test_host.store.audit_entries(0, 0, 1_000).await.unwrap();
    let mut audit_denials = Vec::new();
    for entry in audited {
        match entry.action {
            AuditAction::Denied { session: subject, call, source, denial } if subject == session.subject() => {
                assert_eq!(source.is_some(), call.is_some(), "a call has a source: {denial:?}");
                assert!(source.is_none_or(|source| !matches!(source, ToolSource::Mcp { .. })));
                audit_denials.push((denial, call));
            }
            _ => {}
        }
    }
    assert_eq!(denied_events, audit_denials, "O3: the audit log agrees with the events");
    denied_events.into_iter().map(|(denial, call)| (denial.thing, call.is_some(), denial.grant.is_empty())).collect()
}

fn look_call(then: &str) -> (&'static str, Value) {
    ("probe.look", json!({"name": "PROBE", "then": then}))
}

fn denial_of_call(thing: &str) -> (String, bool, bool) {
    (thing.to_owned(), true, false)
}

/// P6, O3: If a call tries to use a file or variable that is not granted, the denial is reported, whether the call then
/// succeeds, fails or crashes.
#[tokio::test(flavor = "multi_thread")]
async fn o3_reports_denied_files_and_variables_however_the_call_ends() {
    let test_host = TestHost::new(&["probe"]).await;
    let config = || AgentConfig::new("test");
    let key = denial_of_call("the configuration value \"PROBE\"");
    let expected =
        vec![key, denial_of_call("reading and writing files"), denial_of_call("the environment variable PROBE")];
    assert_eq!(denials_of(&test_host, config(), look_call("cope")).await, expected);
    assert_eq!(
        denials_of(&test_host, with_events_and_media(config()), look_call("pending")).await,
        expected,
        "the denial is also reported if a service completes the call (P2)"
    );
    assert_eq!(denials_of(&test_host, config(), look_call("fail")).await, expected);
    assert_eq!(denials_of(&test_host, config(), look_call("panic")).await, expected);
    // The tool `probe.env` does not access files, so the only denial is that of the environment variable.
    let variable = denials_of(&test_host, config(), ("probe.env", json!({"name": "PROBE"}))).await;
    assert_eq!(variable, [denial_of_call("the environment variable PROBE")]);
}

/// O3: A cancelled call does not return a result. Denials that occurred before the cancellation are still reported as
/// denials of the call.
#[tokio::test(flavor = "multi_thread")]
async fn o3_reports_the_denials_of_a_cancelled_call() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let test_host = TestHost::new(&["intruder"]).await;
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: test_host.tree(), guest: "tree".to_owned(), access: Access::ReadWrite };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("intruder".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let operations = "get http://127.0.0.1:9/; write tree/begun x; sleep 600000";
    let call = call_reply(&[("intruder.deeds", json!({"deeds": operations}))]);
    let mut session = test_host.session(config, script(&[call])).await;
    let (cancel, started_marker) = (CancellationToken::new(), test_host.tree().join("begun"));
    let cancelling = async {
        while !started_marker.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let input = Some(TurnInput::Text("Go.".to_owned()));
    let (result, ()) = tokio::join!(session.run(input, cancel.clone()), cancelling);
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    let denied = events(&test_host, &session).await.into_iter().filter_map(|event| match event.kind {
        EventKind::Denied { call, denial } => Some((call.map(|call| base_call_id(&call.0)), denial.thing)),
        _ => None,
    });
    let denied: Vec<_> = denied.collect();
    let things = ["the configuration value \"intruder\"", "the request GET http://127.0.0.1:9/"];
    assert_eq!(denied, things.map(|thing| (Some("call_1_1_1".to_owned()), thing.to_owned())));
    let audited = test_host.store.audit_entries(0, 0, 1_000).await.unwrap();
    assert!(
        audited.iter().any(|entry| matches!(&entry.action, AuditAction::Denied { call: Some(_), .. })),
        "{audited:?}"
    );
}

/// P6: The host denies access to a path that leads out of a granted tree, and also denies writing to a tree that is
/// granted only for reading.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_refused_file_access_is_a_denial() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let test_host = TestHost::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("probe".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let denials = denials_of(&test_host, config, ("probe.count", json!({"path": "effects.txt"}))).await;
    assert!(denials.contains(&denial_of_call("opening \"effects.txt\" for writing")), "{denials:?}");
}

/// P6: If a link is denied, the denial reports that the link leads out of its granted tree, and does not suggest write
/// access to the tree.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn p6_the_denial_of_a_link_reports_that_it_leaves_its_tree() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let test_host = TestHost::new(&["files"]).await;
    std::os::unix::fs::symlink("/etc/hostname", test_host.tree().join("out")).unwrap();
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: test_host.tree(), guest: "tree".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("files".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let call = call_reply(&[("files.read", json!({"path": "tree/out"}))]);
    let mut session = test_host.session(config, script(&[call, text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(&test_host, &session).await.remove(0);
    assert!(is_error && text.contains("leads out of the granted tree") && text.contains("read = ["), "{text}");
    assert!(!text.contains("write = ["), "{text}");
}

/// S7: A file name that is not valid UTF-8 does not hide the other files.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn s7_invalid_file_names_do_not_hide_other_files() {
    use agent_plugins::{Access, Grants, TreeGrant};
    use std::os::unix::ffi::OsStrExt;
    let test_host = TestHost::new(&["files"]).await;
    std::fs::write(test_host.tree().join("plain.txt"), "walrus").unwrap();
    std::fs::write(test_host.tree().join(std::ffi::OsStr::from_bytes(b"n\xff.txt")), "walrus").unwrap();
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("files".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let calls = [("files.list", json!({"path": "."})), ("files.search", json!({"path": ".", "text": "walrus"}))];
    let mut session = test_host.session(config, script(&[call_reply(&calls), text_reply("Done.")])).await;
    run_turn(&mut session, "Go.").await;
    for (tool, is_error, text) in results(&test_host, &session).await {
        assert!(!is_error && text.contains("plain.txt"), "{tool}: {text}");
    }
}

/// P6: Not only writes but all operations that would change a read-only tree are denied, whatever kind of file handle
/// the plugin uses.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_refused_change_is_a_denial() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let test_host = TestHost::new(&["intruder"]).await;
    std::fs::write(test_host.tree().join("own.txt"), "its own words").unwrap();
    std::fs::create_dir(test_host.tree().join("folder")).unwrap();
    let tree = TreeGrant { host: test_host.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    let config = || {
        let mut config = AgentConfig::new("test");
        let allowance = agent_runtime::PluginAllowance { grants: grants.clone(), ..Default::default() };
        config.plugins.insert("intruder".to_owned(), allowance);
        config
    };
    let denials = denials_of(&test_host, config(), ("intruder.paths", json!({"paths": ["own.txt"]}))).await;
    for operation in [
        "setting the times of \"own.txt\"",
        "creating the hard link \"linked0\"",
        "renaming \"own.txt\"",
        "creating the link \"made\"",
        "creating the folder \"own.txt\"",
        "removing \"own.txt\"",
        "removing the folder \"own.txt\"",
    ] {
        assert!(denials.contains(&denial_of_call(operation)), "{operation}: {denials:?}");
    }
    let denials = denials_of(&test_host, config(), ("intruder.handles", json!({"paths": ["own.txt"]}))).await;
    for operation in ["resizing an open file", "setting the times of an open file"] {
        assert!(denials.contains(&denial_of_call(operation)), "{operation}: {denials:?}");
    }
    // An attempt to open a missing file inside the tree is not reported as a denial.
    let denials =
        denials_of(&test_host, config(), ("intruder.read_often", json!({"path": "absent", "times": 1}))).await;
    assert_eq!(denials, []);
}

/// P6, L17: If the model calls a tool that the configuration forbids or does not offer, the call is reported as
/// a denial.
#[tokio::test(flavor = "multi_thread")]
async fn p6_calls_to_withheld_and_forbidden_tools_are_reported_as_denials() {
    let test_host = TestHost::new(&["probe"]).await;
    let denials = denials_of(&test_host, AgentConfig::new("test"), ("read_file", json!({"path": "a"}))).await;
    assert_eq!(denials, [denial_of_call("`read_file`")]);
    let mut config = AgentConfig::new("test");
    config.approvals.tools.insert("probe.echo".to_owned(), ApprovalPolicy::Deny);
    assert_eq!(
        denials_of(&test_host, config, ("probe.echo", json!({"text": "a"}))).await,
        [denial_of_call("`probe.echo`")]
    );
}

/// P6: A context builder is not a call, but its denials are reported like the denials of calls.
#[tokio::test(flavor = "multi_thread")]
async fn p6_reports_the_denials_of_a_context_builder() {
    let test_host = TestHost::new(&["stateful-builder"]).await;
    let config = AgentConfig { context_builder: Some("stateful-builder".to_owned()), ..AgentConfig::new("test") };
    let mut session = test_host.session(config, script(&[text_reply("Done.")])).await;
    assert!(matches!(run_turn(&mut session, "config region").await, TurnResult::Finished(_)));
    let kinds: Vec<_> = events(&test_host, &session).await.into_iter().map(|event| event.kind).collect();
    let denied = kinds.iter().position(|kind| matches!(kind, EventKind::Denied { call: None, .. }));
    let built = kinds.iter().position(|kind| matches!(kind, EventKind::ContextBuilt { .. }));
    assert!(denied.is_some() && denied < built, "{kinds:?}");
    let audited = test_host.store.audit_entries(0, 0, 100).await.unwrap();
    assert!(audited.iter().any(
        |entry| matches!(&entry.action, AuditAction::Denied { call: None, denial, .. } if denial.thing.contains("region"))
    ));
}

/// P6, O3, row 14: Denied sockets and name lookups are reported, even if the plugin then returns normally.
#[tokio::test(flavor = "multi_thread")]
async fn o3_reports_denied_sockets() {
    let test_host = TestHost::new(&["intruder"]).await;
    let denials = denials_of(&test_host, AgentConfig::new("test"), ("intruder.sockets", json!({"port": 9}))).await;
    for resource in ["opening a TCP connection", "opening a UDP socket", "looking up the address of \"localhost\""] {
        assert!(
            denials.iter().any(|(thing, of_call, _)| thing.starts_with(resource) && *of_call),
            "{resource}: {denials:?}"
        );
    }
}
