//! What is denied is told, whoever was denied it and however the call ended: an event, and an entry of the audit log (P6,
//! O3).

use crate::support::{House, calling, events, results, saying, script, sending, short, turn};
use agent_core::approval::ApprovalPolicy;
use agent_core::event::EventKind;
use agent_core::message::TurnInput;
use agent_core::tool::ToolSource;
use agent_runtime::{AgentConfig, TurnResult};
use agent_store::{Audit, Deed};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What was denied in a session whose model makes this call: as events, and as the log has it.
async fn denied(house: &House, config: AgentConfig, call: (&str, Value)) -> Vec<(String, bool, bool)> {
    let mut session = house.session(config, script(&[calling(&[call]), saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let mut told = Vec::new();
    for event in events(house, &session).await {
        if let EventKind::Denied { call, denial } = event.kind {
            told.push((denial, call));
        }
    }
    let audited = house.store.audited(0, 0, 1_000).await.unwrap();
    let mut logged = Vec::new();
    for entry in audited {
        match entry.deed {
            Deed::Denied { session: of, call, source, denial } if of == session.subject() => {
                assert_eq!(source.is_some(), call.is_some(), "a call has a source: {denial:?}");
                assert!(source.is_none_or(|source| !matches!(source, ToolSource::Mcp { .. })));
                logged.push((denial, call));
            }
            _ => {}
        }
    }
    assert_eq!(told, logged, "O3: the log has what the events say");
    told.into_iter().map(|(denial, call)| (denial.thing, call.is_some(), denial.grant.is_empty())).collect()
}

fn look(then: &str) -> (&'static str, Value) {
    ("probe.look", json!({"name": "PROBE", "then": then}))
}

fn of_call(thing: &str) -> (String, bool, bool) {
    (thing.to_owned(), true, false)
}

/// P6, O3: a file or a variable that the manifest asks for is denied to a call that looked for it in vain, whether the call then
/// says so, says something else, crashes, or returns as if nothing had happened.
#[tokio::test(flavor = "multi_thread")]
async fn o3_files_and_variables_are_denied_however_the_call_ends() {
    let house = House::new(&["probe"]).await;
    let config = || AgentConfig::new("test");
    let key = of_call("the configuration value \"PROBE\"");
    let all = vec![key, of_call("reading and writing files"), of_call("the environment variable PROBE")];
    assert_eq!(denied(&house, config(), look("cope")).await, all);
    assert_eq!(
        denied(&house, sending(config()), look("pending")).await,
        all,
        "also where the call goes on elsewhere (P2)"
    );
    assert_eq!(denied(&house, config(), look("fail")).await, all);
    assert_eq!(denied(&house, config(), look("panic")).await, all);
    // It looks for no files.
    let variable = denied(&house, config(), ("probe.env", json!({"name": "PROBE"}))).await;
    assert_eq!(variable, [of_call("the environment variable PROBE")]);
}

/// O3: a call that is cancelled reports nothing; what it was denied before is told all the same, and belongs to the call.
#[tokio::test(flavor = "multi_thread")]
async fn o3_what_a_cancelled_call_was_denied_is_told() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let house = House::new(&["intruder"]).await;
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: house.tree(), guest: "tree".to_owned(), access: Access::ReadWrite };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("intruder".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let operations = "get http://127.0.0.1:9/; write tree/begun x; sleep 600000";
    let call = calling(&[("intruder.deeds", json!({"deeds": operations}))]);
    let mut session = house.session(config, script(&[call])).await;
    let (cancel, begun) = (CancellationToken::new(), house.tree().join("begun"));
    let cancelling = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let input = Some(TurnInput::Text("Go.".to_owned()));
    let (result, ()) = tokio::join!(session.run(input, cancel.clone()), cancelling);
    assert_eq!(result.unwrap(), TurnResult::Cancelled);
    let denied = events(&house, &session).await.into_iter().filter_map(|event| match event.kind {
        EventKind::Denied { call, denial } => Some((call.map(|call| short(&call.0)), denial.thing)),
        _ => None,
    });
    let denied: Vec<_> = denied.collect();
    let things = ["the configuration value \"intruder\"", "the request GET http://127.0.0.1:9/"];
    assert_eq!(denied, things.map(|thing| (Some("call_1_1_1".to_owned()), thing.to_owned())));
    let audited = house.store.audited(0, 0, 1_000).await.unwrap();
    assert!(audited.iter().any(|entry| matches!(&entry.deed, Deed::Denied { call: Some(_), .. })), "{audited:?}");
}

/// P6: a path that leads out of a granted tree, and writing where only reading is granted.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_refused_file_is_a_denial() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let house = House::new(&["probe"]).await;
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: house.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("probe".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let told = denied(&house, config, ("probe.count", json!({"path": "effects.txt"}))).await;
    assert!(told.contains(&of_call("opening \"effects.txt\" for writing")), "{told:?}");
}

/// P6: a link that leads out of its tree is said to, and no grant of the tree is advised.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_link_that_leaves_its_tree_is_said_to() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let house = House::new(&["files"]).await;
    std::os::unix::fs::symlink("/etc/hostname", house.tree().join("out")).unwrap();
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: house.tree(), guest: "tree".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("files".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let call = calling(&[("files.read", json!({"path": "tree/out"}))]);
    let mut session = house.session(config, script(&[call, saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    let (_, is_error, text) = results(&house, &session).await.remove(0);
    assert!(is_error && text.contains("leads out of the granted tree") && text.contains("read = ["), "{text}");
    assert!(!text.contains("write = ["), "{text}");
}

/// S7: a name that is no text keeps nobody from those beside it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn s7_names_that_are_no_text_hide_no_others() {
    use agent_plugins::{Access, Grants, TreeGrant};
    use std::os::unix::ffi::OsStrExt;
    let house = House::new(&["files"]).await;
    std::fs::write(house.tree().join("plain.txt"), "walrus").unwrap();
    std::fs::write(house.tree().join(std::ffi::OsStr::from_bytes(b"n\xff.txt")), "walrus").unwrap();
    let mut config = AgentConfig::new("test");
    let tree = TreeGrant { host: house.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    config.plugins.insert("files".to_owned(), agent_runtime::PluginAllowance { grants, ..Default::default() });
    let calls = [("files.list", json!({"path": "."})), ("files.search", json!({"path": ".", "text": "walrus"}))];
    let mut session = house.session(config, script(&[calling(&calls), saying("Done.")])).await;
    turn(&mut session, "Go.").await;
    for (tool, is_error, text) in results(&house, &session).await {
        assert!(!is_error && text.contains("plain.txt"), "{tool}: {text}");
    }
}

/// P6: whatever else would change a tree that is granted for reading only, and through which handle.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_refused_change_is_a_denial() {
    use agent_plugins::{Access, Grants, TreeGrant};
    let house = House::new(&["intruder"]).await;
    std::fs::write(house.tree().join("own.txt"), "its own words").unwrap();
    std::fs::create_dir(house.tree().join("folder")).unwrap();
    let tree = TreeGrant { host: house.tree(), guest: ".".to_owned(), access: Access::Read };
    let grants = Grants { trees: vec![tree], ..Grants::default() };
    let config = || {
        let mut config = AgentConfig::new("test");
        let allowance = agent_runtime::PluginAllowance { grants: grants.clone(), ..Default::default() };
        config.plugins.insert("intruder".to_owned(), allowance);
        config
    };
    let told = denied(&house, config(), ("intruder.paths", json!({"paths": ["own.txt"]}))).await;
    for deed in [
        "setting the times of \"own.txt\"",
        "making the hard link \"linked0\"",
        "renaming \"own.txt\"",
        "making the link \"made\"",
        "making the folder \"own.txt\"",
        "removing \"own.txt\"",
        "removing the folder \"own.txt\"",
    ] {
        assert!(told.contains(&of_call(deed)), "{deed}: {told:?}");
    }
    let told = denied(&house, config(), ("intruder.handles", json!({"paths": ["own.txt"]}))).await;
    for deed in ["resizing an open file", "setting the times of an open file"] {
        assert!(told.contains(&of_call(deed)), "{deed}: {told:?}");
    }
    // What goes on in the tree itself, or is not there, was denied by nobody.
    let told = denied(&house, config(), ("intruder.read_often", json!({"path": "absent", "times": 1}))).await;
    assert_eq!(told, []);
}

/// P6, L17: what the configuration denies a model is denied as well.
#[tokio::test(flavor = "multi_thread")]
async fn p6_withheld_and_forbidden_tools_are_denials() {
    let house = House::new(&["probe"]).await;
    let told = denied(&house, AgentConfig::new("test"), ("read_file", json!({"path": "a"}))).await;
    assert_eq!(told, [of_call("`read_file`")]);
    let mut config = AgentConfig::new("test");
    config.approvals.tools.insert("probe.echo".to_owned(), ApprovalPolicy::Deny);
    assert_eq!(denied(&house, config, ("probe.echo", json!({"text": "a"}))).await, [of_call("`probe.echo`")]);
}

/// P6: a context builder is no call, and what it is denied is told, too.
#[tokio::test(flavor = "multi_thread")]
async fn p6_a_builder_that_is_denied_something() {
    let house = House::new(&["stateful-builder"]).await;
    let config = AgentConfig { context_builder: Some("stateful-builder".to_owned()), ..AgentConfig::new("test") };
    let mut session = house.session(config, script(&[saying("Done.")])).await;
    assert!(matches!(turn(&mut session, "config region").await, TurnResult::Finished(_)));
    let told: Vec<_> = events(&house, &session).await.into_iter().map(|event| event.kind).collect();
    let denied = told.iter().position(|kind| matches!(kind, EventKind::Denied { call: None, .. }));
    let built = told.iter().position(|kind| matches!(kind, EventKind::ContextBuilt { .. }));
    assert!(denied.is_some() && denied < built, "{told:?}");
    let audited = house.store.audited(0, 0, 100).await.unwrap();
    assert!(audited.iter().any(
        |entry| matches!(&entry.deed, Deed::Denied { call: None, denial, .. } if denial.thing.contains("region"))
    ));
}

/// P6, O3, row 14: a guest that asks for sockets and names and then returns normally was denied them.
#[tokio::test(flavor = "multi_thread")]
async fn o3_sockets_are_denied_and_told() {
    let house = House::new(&["intruder"]).await;
    let told = denied(&house, AgentConfig::new("test"), ("intruder.sockets", json!({"port": 9}))).await;
    for what in ["opening a TCP connection", "opening a UDP socket", "looking up the address of \"localhost\""] {
        assert!(told.iter().any(|(thing, of_call, _)| thing.starts_with(what) && *of_call), "{what}: {told:?}");
    }
}
