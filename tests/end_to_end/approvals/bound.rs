//! Row 52: A permanent approval applies only as long as the grants, the user, the agent's file and the server's program
//! are those for which the approval was given. A rule with a tool's exact name applies only to the plugin that offered
//! the tool.

use super::{PAY, allow, calls_to_approve, continue_turn, expect_finished, ledger, payment, with_replaced_plugin};
use crate::fixture::mcp_server;
use crate::support::{TestHost, call_reply, run_turn, script, text_reply, with_tree_grant};
use agent_core::approval::{ApprovalPolicy, GrantScope, LastingGrant};
use agent_mcp::{ChildCommand, ServerConfig, Transport};
use agent_plugins::{Access, TreeGrant};
use agent_runtime::{AgentConfig, OpenSession, RuleBinding, Session, TurnResult};
use agent_store::Approvals;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Makes a payment in a session with this configuration, and approves it permanently.
async fn allow_permanently(test_host: &TestHost, config: AgentConfig) {
    let mut session = test_host.session(config, replies()).await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    session.close().await.unwrap();
}

fn replies() -> Value {
    script(&[call_reply(&[(PAY, payment("Ann", 1))]), text_reply("Done.")])
}

async fn pay(test_host: &TestHost, config: AgentConfig) -> TurnResult {
    let mut session = test_host.session(config, replies()).await;
    let result = run_turn(&mut session, "Pay.").await;
    session.close().await.unwrap();
    result
}

/// Row 52: The host asks the user again if the granted folders, the user or the agent's file have changed. Otherwise,
/// the host does not ask again.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_a_permanent_approval_is_bound_to_grants_user_and_file() {
    let test_host = TestHost::new(&["payer"]).await;
    let config = || AgentConfig { user: Some("ada".to_owned()), ..with_tree_grant(&test_host, "payer") };
    allow_permanently(&test_host, config()).await;
    expect_finished(pay(&test_host, config()).await);
    let paid = ledger(&test_host).len();

    let other_folder = test_host.directory.path().join("other");
    std::fs::create_dir(&other_folder).unwrap();
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
        ("another folder", with_trees(vec![tree(&other_folder)])),
        ("one more folder", with_trees(vec![tree(&test_host.tree()), tree(&other_folder)])),
        ("another user", AgentConfig { user: Some("eve".to_owned()), ..config() }),
        ("no user", AgentConfig { user: None, ..config() }),
        ("another file", AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..config() }),
    ];
    for (change, config) in changed {
        assert_eq!(calls_to_approve(&pay(&test_host, config).await), ["call_1_1_1"], "{change}");
    }
    assert_eq!(ledger(&test_host).len(), paid, "nothing was paid without approval");
    expect_finished(pay(&test_host, config()).await);
    // A plugin whose manifest does not request a permission never has it, so granting the permission changes nothing.
    for (change, config) in [("a setting", with_setting), ("requests", with_requests)] {
        assert!(matches!(pay(&test_host, config).await, TurnResult::Finished(_)), "{change}");
    }
}

/// Row 52: An approval is bound to the folder that a granted path resolves to, not to the text of the path.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_bound_to_the_folder_behind_a_link() {
    let test_host = TestHost::new(&["payer"]).await;
    let (link, other_folder) = (test_host.directory.path().join("link"), test_host.directory.path().join("other"));
    std::fs::create_dir(&other_folder).unwrap();
    std::os::unix::fs::symlink(test_host.tree(), &link).unwrap();
    let config = || {
        let mut config = with_tree_grant(&test_host, "payer");
        config.plugins.get_mut("payer").unwrap().grants.trees[0].host.clone_from(&link);
        config
    };
    allow_permanently(&test_host, config()).await;
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other_folder, &link).unwrap();
    assert_eq!(calls_to_approve(&pay(&test_host, config()).await), ["call_1_1_1"]);
    assert_eq!(std::fs::read_dir(&other_folder).unwrap().count(), 0);
}

/// Row 52: An approval that was stored by an earlier version of the host has no scope, so it is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_without_a_scope_does_not_count() {
    let test_host = TestHost::new(&["payer"]).await;
    let digest = test_host.generation().await.plugin("payer").unwrap().digest().clone();
    let (agent, tool) = ("test".to_owned(), PAY.to_owned());
    test_host.store.allow(LastingGrant { agent, tool, digest, arguments: None, scope: None }).await.unwrap();
    assert_eq!(calls_to_approve(&pay(&test_host, with_tree_grant(&test_host, "payer")).await), ["call_1_1_1"]);
}

/// Row 52: An approval of an MCP tool is bound to the server's program, arguments and working directory.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_bound_to_the_servers_program() {
    let test_host = TestHost::new(&[]).await;
    let server = |extra: &[&str], directory: Option<&str>| {
        let log = test_host.directory.path().join("log").display().to_string();
        let mut args = vec!["good".to_owned(), log];
        args.extend(extra.iter().map(|argument| (*argument).to_owned()));
        let directory = directory.map(|_| test_host.tree());
        let command = mcp_server().display().to_string();
        ServerConfig::new("desk", Transport::Stdio(ChildCommand { command, args, directory, ..Default::default() }))
    };
    let config = |server: ServerConfig| {
        let mut config = AgentConfig { mcp: vec![server], ..AgentConfig::new("test") };
        config.approvals.default = ApprovalPolicy::Ask;
        config
    };
    let call = || script(&[call_reply(&[("desk.echo", json!({"text": "x"}))]), text_reply("Done.")]);
    let asks = async |server: ServerConfig| {
        let mut session = test_host.session(config(server), call()).await;
        let result = run_turn(&mut session, "Go.").await;
        let waits = matches!(result, TurnResult::Suspended(_));
        (session, waits)
    };
    let (mut session, waits) = asks(server(&[], None)).await;
    assert!(waits);
    session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
    expect_finished(continue_turn(&mut session).await);
    assert!(!asks(server(&[], None)).await.1, "an unchanged server needs no new approval");
    assert!(asks(server(&["--other"], None)).await.1, "other arguments need a new approval");
    assert!(asks(server(&[], Some("elsewhere"))).await.1, "another working directory needs a new approval");
}

/// Row 52: An approval of an MCP tool is bound to the content of the server's script, and to the program that the
/// command resolves to.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_approval_is_bound_to_the_content_of_the_program() {
    let test_host = TestHost::new(&[]).await;
    let folder = test_host.directory.path().join("bin");
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
        let replies = script(&[call_reply(&[("desk.count", json!({"text": "x"}))]), text_reply("Done.")]);
        let mut session = test_host.session(config, replies).await;
        let waits = matches!(run_turn(&mut session, "Go.").await, TurnResult::Suspended(_));
        (session, waits)
    };
    let allow_permanently = async || {
        let (mut session, waits) = asks().await;
        assert!(waits);
        session.approve(vec![allow("call_1_1_1", GrantScope::Always)]).await.unwrap();
        expect_finished(continue_turn(&mut session).await);
        assert!(!asks().await.1, "an unchanged server needs no new approval");
    };
    allow_permanently().await;
    std::fs::write(&file, format!("{}\n# changed", crate::name_clashes::SERVER)).unwrap();
    allow_permanently().await;
    std::os::unix::fs::symlink("/bin/bash", folder.join("sh")).unwrap();
    assert!(asks().await.1, "another program comes first on the PATH");
}

/// Row 52: If the agent's file has changed between the approval request and its answer, the answer has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_an_answer_for_another_agent_file_has_no_effect() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut session = test_host.session(with_tree_grant(&test_host, "payer"), replies()).await;
    run_turn(&mut session, "Pay.").await;
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let moved = AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..with_tree_grant(&test_host, "payer") };
    // The host continues a stored turn with a component only if the agent has started a turn with that component
    // before, so the moved agent starts a turn here.
    let _ = pay(&test_host, moved.clone()).await;
    let agent = test_host.agent(moved, replies()).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    session.approve(vec![allow("call_1_1_1", GrantScope::Once)]).await.unwrap();
    assert_eq!(
        calls_to_approve(&continue_turn(&mut session).await),
        ["call_1_1_1"],
        "the request names the component that would run now"
    );
    assert!(ledger(&test_host).is_empty());
}

/// Row 52: A rule with a tool's exact name applies only to the component that first offered the tool to the agent. If
/// another component offers a tool with the same name, the host asks the user.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_a_rule_by_name_is_bound_to_the_plugin() {
    let test_host = TestHost::new(&["payer"]).await;
    let with_rule = |binding: RuleBinding| {
        let mut config = AgentConfig { rule_binding: binding, ..with_tree_grant(&test_host, "payer") };
        config.approvals.tools = [(PAY.to_owned(), ApprovalPolicy::Allow)].into();
        config
    };
    expect_finished(pay(&test_host, with_rule(RuleBinding::Identity)).await);
    expect_finished(pay(&test_host, with_rule(RuleBinding::Identity)).await);
    assert_eq!(ledger(&test_host).len(), 2);
    drop(with_replaced_plugin(&test_host, with_rule(RuleBinding::Identity), replies()).await);
    assert_eq!(calls_to_approve(&pay(&test_host, with_rule(RuleBinding::Identity)).await), ["call_1_1_1"]);
    assert_eq!(ledger(&test_host).len(), 2, "the other component did not run");
    // A permanent approval allows the new component without a change to the rule.
    allow_permanently(&test_host, with_rule(RuleBinding::Identity)).await;
    expect_finished(pay(&test_host, with_rule(RuleBinding::Identity)).await);
    // A rule that is bound to the name also applies to the next build of the plugin.
    let mut named = with_rule(RuleBinding::Name);
    named.name = "author".to_owned();
    expect_finished(pay(&test_host, named.clone()).await);
    drop(with_replaced_plugin(&test_host, named.clone(), replies()).await);
    expect_finished(pay(&test_host, named).await);
}

/// Row 52: An approval that was given but not used yet has no effect if the call would run with another agent file.
#[tokio::test(flavor = "multi_thread")]
async fn row_52_checks_an_approval_again_before_the_call_runs() {
    let test_host = TestHost::new(&["payer"]).await;
    let mut session = test_host.session(with_tree_grant(&test_host, "payer"), replies()).await;
    run_turn(&mut session, "Pay.").await;
    session.approve(vec![allow("call_1_1_1", GrantScope::Once)]).await.unwrap();
    let subject = session.subject().to_owned();
    session.close().await.unwrap();
    let moved = AgentConfig { file: Some("/elsewhere/agent.toml".into()), ..with_tree_grant(&test_host, "payer") };
    // The host continues a stored turn with a component only if the agent has started a turn with that component
    // before, so the moved agent starts a turn here.
    let _ = pay(&test_host, moved.clone()).await;
    let agent = test_host.agent(moved, replies()).await;
    let mut session = Session::open(&test_host.host(), agent, OpenSession::Existing(subject)).await.unwrap();
    assert_eq!(calls_to_approve(&continue_turn(&mut session).await), ["call_1_1_1"]);
    assert!(ledger(&test_host).is_empty(), "nothing was paid");
}
