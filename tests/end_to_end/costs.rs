//! The cost of plugin calls in events and records, and the limit on fuel (P8).

use crate::support::{TestHost, call_reply, events, records, results, run_turn, script, text_reply};
use agent_core::event::EventKind;
use agent_core::tool::CallCost;
use agent_plugins::CallLimits;
use agent_runtime::{AgentConfig, PluginAllowance, Session, TurnResult};
use serde_json::json;

async fn costs(test_host: &TestHost, session: &Session) -> Vec<CallCost> {
    let cost = |kind| match kind {
        EventKind::ToolResult { cost, .. } | EventKind::ToolResultError { cost, .. } => Some(cost),
        _ => None,
    };
    events(test_host, session).await.into_iter().filter_map(|event| cost(event.kind)).collect()
}

fn with_fuel(plugin: &str, fuel: u64) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    let limits = CallLimits { fuel: Some(fuel), ..CallLimits::default() };
    config.plugins.insert(plugin.to_owned(), PluginAllowance { limits, ..PluginAllowance::default() });
    config
}

/// P8: The cost of builders, validators and policies is in their records, and the cost of a tool is in its event.
#[tokio::test(flavor = "multi_thread")]
async fn p8_every_plugin_call_reports_its_cost() {
    let test_host = TestHost::new(&["stateful-builder", "two-kinds", "masker", "probe"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    config.validators = vec!["two-kinds".to_owned()];
    config.media_policies.insert("scripted".to_owned(), "masker".to_owned());
    let replies = [call_reply(&[("probe.image", json!({"bytes": 1000}))]), text_reply("Done.")];
    let mut session = test_host.session(config, script(&replies)).await;
    run_turn(&mut session, "Go.").await;
    let cost = costs(&test_host, &session).await.remove(0);
    let bytes_in = json!({"bytes": 1000}).to_string().len() as u64;
    assert!(cost.wall_us > 0 && cost.cpu_us > 0 && cost.memory_bytes > 0, "{cost:?}");
    assert!(cost.bytes_in >= bytes_in && cost.bytes_out > 1_000, "the image is counted: {cost:?}");
    assert_eq!(cost.fuel, None, "fuel was not requested");
    let stored = records(&test_host, &session, 1).await;
    for (kind, pointer) in
        [("context", "/builder/cost"), ("step_context", "/cost"), ("verdict", "/cost"), ("media_policy", "/cost")]
    {
        let record = stored.iter().find(|stored| stored.record.kind == kind);
        let body = &record.unwrap_or_else(|| panic!("no {kind}")).record.body;
        let cost: CallCost = serde_json::from_value(body.pointer(pointer).cloned().unwrap_or_default()).expect(kind);
        assert!(cost.memory_bytes > 0 && cost.bytes_in > 0 && cost.bytes_out > 0, "{kind}: {cost:?}");
    }
}

/// P8: If a call is repeated, it uses the same amount of fuel. A call with too little fuel returns a typed error that
/// names the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn p8_the_same_call_uses_the_same_fuel() {
    let test_host = TestHost::new(&["calc"]).await;
    let call = ("calc.evaluate", json!({"expression": "(1/3 + 0.25) * 12"}));
    let replies =
        [call_reply(&[call.clone(), call.clone()]), call_reply(std::slice::from_ref(&call)), text_reply("Done.")];
    let mut session = test_host.session(with_fuel("calc", 500_000_000), script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let fuel: Vec<_> =
        costs(&test_host, &session).await.into_iter().map(|cost| cost.fuel.expect("fuel is counted")).collect();
    assert!(fuel[0] > 1_000 && fuel.iter().all(|other| *other == fuel[0]), "{fuel:?}");
    session.close().await.unwrap();
    let replies = [call_reply(&[call]), text_reply("Done.")];
    let mut session = test_host.session(with_fuel("calc", fuel[0] / 2), script(&replies)).await;
    assert!(matches!(run_turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let (_, is_error, text) = results(&test_host, &session).await.remove(0);
    let limit = format!("{} units of fuel", fuel[0] / 2);
    assert!(is_error && text.contains("calc@") && text.contains(&limit), "{text}");
}
