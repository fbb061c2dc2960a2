//! L17: a lasting approval applies only to the agent, tool, component and arguments that it names, until it is revoked.

use super::TestStore;
use crate::NamedRule;
use agent_core::approval::{ApprovalScope, LastingGrant};
use agent_core::message::Digest;

fn grant(agent: &str, tool: &str) -> LastingGrant {
    let (agent, tool) = (agent.to_owned(), tool.to_owned());
    LastingGrant { agent, tool, digest: Digest::from_sha256([1; 32]), arguments: None, scope: None }
}

pub(super) async fn grants_are_listed_per_agent_until_revoked(test: TestStore) {
    let store = &test.store;
    assert_eq!(store.allowed("a").await, Ok(Vec::new()));
    for tool in ["first", "second"] {
        store.allow(grant("a", tool)).await.unwrap();
    }
    store.allow(grant("b", "third")).await.unwrap();
    let stored = store.allowed("a").await.unwrap();
    let grants: Vec<_> = stored.iter().map(|stored| stored.grant.clone()).collect();
    assert_eq!(grants, [grant("a", "second"), grant("a", "first")], "newest first");
    assert!(stored[0].given.ends_with('Z') && stored[0].id != stored[1].id, "{stored:?}");
    store.allow(grant("a", "first")).await.unwrap();
    assert_eq!(store.allowed("a").await.unwrap(), stored, "storing the same grant again changes nothing");
    if let Some(second) = &test.second {
        assert_eq!(second.allowed("a").await.unwrap(), stored, "a second instance sees the grants");
    }

    assert_eq!(store.revoke(&stored[0].id).await, Ok(true));
    assert_eq!(store.revoke(&stored[0].id).await, Ok(false));
    assert_eq!(store.revoke("nothing").await, Ok(false));
    assert_eq!(store.allowed("a").await.unwrap(), stored[1..]);
    assert_eq!(store.allowed("b").await.unwrap().len(), 1);
    assert_eq!(store.agents_with_grants().await.unwrap(), ["a", "b"]);
    store.allow(grant("a", "second")).await.unwrap();
    assert_eq!(store.allowed("a").await.unwrap()[0].id, stored[0].id, "the same grant has the same id");
}

pub(super) async fn grants_that_differ_in_one_field_are_stored_separately(test: TestStore) {
    let store = &test.store;
    let base = grant("a", "tool");
    let digest = |byte: u8| Digest::from_sha256([byte; 32]);
    let grants = [
        base.clone(),
        LastingGrant { tool: "tool2".to_owned(), ..base.clone() },
        LastingGrant { digest: digest(2), ..base.clone() },
        LastingGrant { arguments: Some(digest(1)), ..base.clone() },
        LastingGrant { arguments: Some(digest(2)), ..base.clone() },
        LastingGrant { scope: Some(ApprovalScope { identity: digest(1), grants: digest(1) }), ..base.clone() },
        LastingGrant { scope: Some(ApprovalScope { identity: digest(1), grants: digest(2) }), ..base.clone() },
        LastingGrant { scope: Some(ApprovalScope { identity: digest(2), grants: digest(1) }), ..base },
    ];
    for grant in &grants {
        store.allow(grant.clone()).await.unwrap();
    }
    let stored = store.allowed("a").await.unwrap();
    assert_eq!(stored.len(), grants.len());
    assert!(grants.iter().all(|grant| stored.iter().any(|stored| stored.grant == *grant)), "{stored:?}");
}

/// Row 52: an agent's rule for a tool stays bound to the first identity that was stored for the rule.
pub(super) async fn rule_keeps_its_first_identity(test: TestStore) {
    let store = &test.store;
    let digest = |byte: u8| Digest::from_sha256([byte; 32]);
    let rule = |agent: &str, tool: &str| NamedRule { agent: agent.to_owned(), tool: tool.to_owned() };
    assert_eq!(store.bind_rule(rule("a", "tool"), digest(1)).await, Ok(digest(1)));
    assert_eq!(store.bind_rule(rule("a", "tool"), digest(2)).await, Ok(digest(1)));
    assert_eq!(store.bind_rule(rule("b", "tool"), digest(2)).await, Ok(digest(2)));
    assert_eq!(store.bind_rule(rule("a", "other"), digest(3)).await, Ok(digest(3)));
    if let Some(second) = &test.second {
        assert_eq!(second.bind_rule(rule("a", "tool"), digest(4)).await, Ok(digest(1)));
    }
}
