//! Row 52: a lasting approval and a rule with a tool's exact name hold for what they were about, and for nothing else.

use super::{PAY, allow, asked, finished, go_on, ledger, payment, replaced};
use crate::fixture::mcp_server;
use crate::support::{House, calling, granting, saying, script, turn};
use agent_core::approval::{ApprovalPolicy, GrantScope, LastingGrant};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{AgentConfig, OpenSession, RuleBinding, Session, TurnResult};
use agent_store::Approvals;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Allows a payment for good, in a session of this configuration.
async fn allowed_for_good(house: &House, config: AgentConfig) {
    let mut session = house.session(config, replies()).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    finished(go_on(&mut session).await);
    session.close().await.unwrap();
}

fn replies() -> Value {
    script(&[calling(&[(PAY, payment("Ann", 1))]), saying("Done.")])
}

async fn pays(house: &House, config: AgentConfig) -> TurnResult {
    let mut session = house.session(config, replies()).await;
    let result = turn(&mut session, "Pay.").await;
    session.close().await.unwrap();
    result
}

/// Row 52: another folder, access, user or file, and somebody is asked again; as it was, nobody is.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_a_lasting_approval_is_bound_to_grants_user_and_file() {
    let house = House::new(&["payer"]).await;
    let config = || AgentConfig { user: Some("ada".to_owned()), ..granting(&house, "payer") };
    allowed_for_good(&house, config()).await;
    finished(pays(&house, config()).await);
    let paid = ledger(&house).len();

    let other = house.directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let with_trees = |trees: Vec<TreeGrant>| {
        let mut config = config();
        config.plugins.get_mut("payer").unwrap().grants.trees = trees;
        config
    };
    let tree =
        |host: &std::path::Path| TreeGrant { host: host.to_owned(), guest: ".".into(), access: Access::ReadWrite };
    let mut with_setting = config();
    with_setting.plugins.get_mut("payer").unwrap().grants.config.insert("account".into(), "another".into());
    let mut with_requests = config();
    with_requests.plugins.get_mut("payer").unwrap().grants.http.push("https://a.example".parse().unwrap());
    let changed = [
        ("another folder", with_trees(vec![tree(&other)])),
        ("one more folder", with_trees(vec![tree(&house.tree()), tree(&other)])),
        ("another user", AgentConfig { user: Some("eve".to_owned()), ..config() }),
        ("no user", AgentConfig { user: None, ..config() }),
        ("another file", AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..config() }),
    ];
    for (what, config) in changed {
        assert_eq!(asked(&pays(&house, config).await), ["call_1_1_1"], "{what}");
    }
    assert_eq!(ledger(&house).len(), paid, "nothing was paid unasked");
    finished(pays(&house, config()).await);
    // What the plugin's manifest does not ask for is not in force: granting it changes nothing.
    for (what, config) in [("a setting", with_setting), ("requests", with_requests)] {
        assert!(matches!(pays(&house, config).await, TurnResult::Finished(_)), "{what}");
    }
}

/// Row 52: the folder that a granted path leads to counts, not how it is written.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_52_a_link_that_leads_elsewhere_is_another_grant() {
    let house = House::new(&["payer"]).await;
    let (link, other) = (house.directory.path().join("link"), house.directory.path().join("other"));
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(house.tree(), &link).unwrap();
    let config = || {
        let mut config = granting(&house, "payer");
        config.plugins.get_mut("payer").unwrap().grants.trees[0].host.clone_from(&link);
        config
    };
    allowed_for_good(&house, config()).await;
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    assert_eq!(asked(&pays(&house, config()).await), ["call_1_1_1"]);
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
}

/// Row 52: an approval that an earlier host stored does not say what it was about, so it does not count.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_without_a_scope_does_not_count() {
    let house = House::new(&["payer"]).await;
    let digest = house.generation().await.plugin("payer").unwrap().digest().clone();
    let (agent, tool) = ("test".to_owned(), PAY.to_owned());
    house.store.allow(LastingGrant { agent, tool, digest, arguments: None, scope: None }).await.unwrap();
    assert_eq!(asked(&pays(&house, granting(&house, "payer")).await), ["call_1_1_1"]);
}

/// Row 52: an approval of an MCP tool holds for the program, its arguments and its address.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_bound_to_the_servers_program() {
    let house = House::new(&[]).await;
    let server = |extra: &[&str], directory: Option<&str>| {
        let diary = house.directory.path().join("diary").display().to_string();
        let mut args = vec!["good".to_owned(), diary];
        args.extend(extra.iter().map(|one| (*one).to_owned()));
        let directory = directory.map(|_| house.tree());
        let command = mcp_server().display().to_string();
        ServerConfig::new("desk", Transport::Stdio(ChildCommand { command, args, directory, ..Default::default() }))
    };
    let config = |server: ServerConfig| {
        let mut config = AgentConfig { mcp: vec![server], ..AgentConfig::new("test") };
        config.approvals.default = ApprovalPolicy::Ask;
        config
    };
    let call = || script(&[calling(&[("desk.echo", json!({"text": "x"}))]), saying("Done.")]);
    let asks = async |server: ServerConfig| {
        let mut session = house.session(config(server), call()).await;
        let result = turn(&mut session, "Go.").await;
        let waits = matches!(result, TurnResult::Suspended(_));
        (session, waits)
    };
    let (mut session, waits) = asks(server(&[], None)).await;
    assert!(waits);
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    finished(go_on(&mut session).await);
    assert!(!asks(server(&[], None)).await.1, "the same server is remembered");
    assert!(asks(server(&["--other"], None)).await.1, "other arguments");
    assert!(asks(server(&[], Some("elsewhere"))).await.1, "another folder");
}

/// Row 52: it holds for what stands in the server's script, and for the program that the command leads to.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_bound_to_what_the_program_is() {
    let house = House::new(&[]).await;
    let folder = house.directory.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("server.sh");
    std::fs::write(&file, crate::name_clashes::SERVER).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let asks = async || {
        let (args, env) = (vec![file.display().to_string()], BTreeMap::from([("PATH".to_owned(), path.clone())]));
        let command = ChildCommand { command: "sh".to_owned(), args, env, ..ChildCommand::default() };
        let server = ServerConfig::new("desk", Transport::Stdio(command));
        let mut config = AgentConfig { mcp: vec![server], ..AgentConfig::new("test") };
        config.approvals.default = ApprovalPolicy::Ask;
        let replies = script(&[calling(&[("desk.count", json!({"text": "x"}))]), saying("Done.")]);
        let mut session = house.session(config, replies).await;
        let waits = matches!(turn(&mut session, "Go.").await, TurnResult::Suspended(_));
        (session, waits)
    };
    let allowed_for_good = async || {
        let (mut session, waits) = asks().await;
        assert!(waits);
        session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
        finished(go_on(&mut session).await);
        assert!(!asks().await.1, "the same server is remembered");
    };
    allowed_for_good().await;
    std::fs::write(&file, format!("{}\n# changed", crate::name_clashes::SERVER)).unwrap();
    allowed_for_good().await;
    std::os::unix::fs::symlink("/bin/bash", folder.join("sh")).unwrap();
    assert!(asks().await.1, "another program comes first on the PATH");
}

/// Row 52: between the question and the answer the server has become another program, so the answer is void.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_answer_about_another_user_is_void() {
    let house = House::new(&["payer"]).await;
    let mut session = house.session(granting(&house, "payer"), replies()).await;
    turn(&mut session, "Pay.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let moved = AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..granting(&house, "payer") };
    // This agent's turns have begun with the component, too.
    let _ = pays(&house, moved.clone()).await;
    let agent = house.agent(moved, replies()).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    session.approve(vec![allow("call_1_1_1", GrantScope::Once)]).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_1_1"], "asked about what would run now");
    assert!(ledger(&house).is_empty());
}

/// Row 52: a rule with a tool's exact name is about the plugin that offered it; another one is asked about.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_a_rule_by_name_is_bound_to_the_plugin() {
    let house = House::new(&["payer"]).await;
    let with_rule = |binding: RuleBinding| {
        let mut config = AgentConfig { rule_binding: binding, ..granting(&house, "payer") };
        config.approvals.tools = [(PAY.to_owned(), ApprovalPolicy::Allow)].into();
        config
    };
    finished(pays(&house, with_rule(RuleBinding::Identity)).await);
    finished(pays(&house, with_rule(RuleBinding::Identity)).await);
    assert_eq!(ledger(&house).len(), 2);
    drop(replaced(&house, with_rule(RuleBinding::Identity), replies()).await);
    assert_eq!(asked(&pays(&house, with_rule(RuleBinding::Identity)).await), ["call_1_1_1"]);
    assert_eq!(ledger(&house).len(), 2, "the other component did not run");
    // A person's yes for good is about the component of now, and the rule needs no change.
    allowed_for_good(&house, with_rule(RuleBinding::Identity)).await;
    finished(pays(&house, with_rule(RuleBinding::Identity)).await);
    // For the author of a plugin each build is another component under the same name.
    let mut named = with_rule(RuleBinding::Name);
    named.name = "author".to_owned();
    finished(pays(&house, named.clone()).await);
    drop(replaced(&house, named.clone(), replies()).await);
    finished(pays(&house, named).await);
}

/// Row 52: an approval that was given and not used yet is void where the call would run under another agent's file.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_compared_again_before_the_call_runs() {
    let house = House::new(&["payer"]).await;
    let mut session = house.session(granting(&house, "payer"), replies()).await;
    turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Once)]).await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let moved = AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..granting(&house, "payer") };
    // This agent's turns have begun with the component, too.
    let _ = pays(&house, moved.clone()).await;
    let agent = house.agent(moved, replies()).await;
    let mut session = Session::open(&house.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert_eq!(asked(&go_on(&mut session).await), ["call_1_1_1"]);
    assert!(ledger(&house).is_empty(), "nothing was paid");
}
