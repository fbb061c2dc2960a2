//! What calls cost, on their events and in their records, and fuel (P8).

use crate::support::{House, calling, events, records, results, saying, script, turn};
use agent_core::event::EventKind;
use agent_core::tool::CallCost;
use agent_plugins::CallLimits;
use agent_runtime::{AgentConfig, PluginAllowance, Session, TurnResult};
use serde_json::json;

async fn costs(house: &House, session: &Session) -> Vec<CallCost> {
    let cost = |kind| match kind {
        EventKind::ToolResult { cost, .. } | EventKind::ToolResultError { cost, .. } => Some(cost),
        _ => None,
    };
    events(house, session).await.into_iter().filter_map(|event| cost(event.kind)).collect()
}

fn fueled(plugin: &str, fuel: u64) -> AgentConfig {
    let mut config = AgentConfig::new("test");
    let limits = CallLimits { fuel: Some(fuel), ..CallLimits::default() };
    config.plugins.insert(plugin.to_owned(), PluginAllowance { limits, ..PluginAllowance::default() });
    config
}

/// P8: the cost of builders, validators and policies stands in their records, that of a tool on its event.
#[tokio::test(flavor = "multi_thread")]
async fn p8_every_call_of_a_guest_has_its_cost() {
    let house = House::new(&["stateful-builder", "two-kinds", "masker", "probe"]).await;
    let mut config = AgentConfig::new("test");
    config.context_builder = Some("stateful-builder".to_owned());
    config.validators = vec!["two-kinds".to_owned()];
    config.media_policies.insert("scripted".to_owned(), "masker".to_owned());
    let replies = [calling(&[("probe.image", json!({"bytes": 1000}))]), saying("Done.")];
    let mut session = house.session(config, script(&replies)).await;
    turn(&mut session, "Go.").await;
    let cost = costs(&house, &session).await.remove(0);
    let bytes_in = json!({"bytes": 1000}).to_string().len() as u64;
    assert!(cost.wall_us > 0 && cost.cpu_us > 0 && cost.memory_bytes > 0, "{cost:?}");
    assert!(cost.bytes_in >= bytes_in && cost.bytes_out > 1_000, "the picture is among it: {cost:?}");
    assert_eq!(cost.fuel, None, "nobody asked for it");
    let stored = records(&house, &session, 1).await;
    for (kind, pointer) in
        [("context", "/builder/cost"), ("step_context", "/cost"), ("verdict", "/cost"), ("media_policy", "/cost")]
    {
        let record = stored.iter().find(|stored| stored.record.kind == kind);
        let body = &record.unwrap_or_else(|| panic!("no {kind}")).record.body;
        let cost: CallCost = serde_json::from_value(body.pointer(pointer).cloned().unwrap_or_default()).expect(kind);
        assert!(cost.memory_bytes > 0 && cost.bytes_in > 0 && cost.bytes_out > 0, "{kind}: {cost:?}");
    }
}

/// P8, "fuel (optional, deterministic)": the same call takes the same, too little is a typed error that names the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn p8_fuel_is_the_same_for_the_same_call() {
    let house = House::new(&["calc"]).await;
    let call = ("calc.evaluate", json!({"expression": "(1/3 + 0.25) * 12"}));
    let replies = [calling(&[call.clone(), call.clone()]), calling(std::slice::from_ref(&call)), saying("Done.")];
    let mut session = house.session(fueled("calc", 500_000_000), script(&replies)).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let fuel: Vec<_> =
        costs(&house, &session).await.into_iter().map(|cost| cost.fuel.expect("it is counted")).collect();
    assert!(fuel[0] > 1_000 && fuel.iter().all(|other| *other == fuel[0]), "{fuel:?}");
    session.close().await.unwrap();
    let replies = [calling(&[call]), saying("Done.")];
    let mut session = house.session(fueled("calc", fuel[0] / 2), script(&replies)).await;
    assert!(matches!(turn(&mut session, "Go.").await, TurnResult::Finished(_)));
    let (_, is_error, text) = results(&house, &session).await.remove(0);
    let limit = format!("{} units of fuel", fuel[0] / 2);
    assert!(is_error && text.contains("calc@") && text.contains(&limit), "{text}");
}
