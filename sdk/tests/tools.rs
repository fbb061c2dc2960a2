//! Defines tools as a plugin author does, and calls them without a host (S7, P2).

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use agent_host_sdk::tool::Traits;
use agent_host_sdk::{config, log, media};
use std::time::Duration;

struct Plugin;

/// Arguments of `shop.order`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    /// The ordered articles.
    rows: Vec<Row>,
    /// The way in which the articles are delivered.
    #[serde(default)]
    delivery: Delivery,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Row {
    article: String,
    count: u8,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
enum Delivery {
    #[default]
    Post,
    PickUp,
}

#[derive(Serialize, JsonSchema)]
struct Receipt {
    articles: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Tree {
    #[expect(dead_code, reason = "only its schema matters")]
    children: Vec<Tree>,
}

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new("shop.order", "Orders articles.")
                    .title("Order")
                    .destructive()
                    .needs_approval()
                    .priority(-3)
                    .output::<Receipt>()
                    .run(|order: Order, _: &Call| match order.delivery {
                        Delivery::Post => {
                            let articles = order.rows.iter().filter(|row| !row.article.is_empty());
                            Done::json(&Receipt { articles: articles.map(|row| u32::from(row.count)).sum() })
                        }
                        Delivery::PickUp => Err(ToolError::invalid("/delivery", "there is no shop near you")),
                    }),
            )
            .tool(Tool::new("shop.cancel", "Cancels an order.").run(|NoArguments {}, call: &Call| {
                Ok(ServiceRequest::new("com.example.order.cancel.v1", &json!({ "call": call.id }))
                    .domain("shop")
                    .within(Duration::from_secs(60)))
            }))
            .tool(Tool::new("shop.tree", "Takes a tree.").run(|_: Tree, _: &Call| Ok(())))
            .tool(Tool::new("shop.host", "Uses the host.").read_only().run(|_: NoArguments, _: &Call| {
                log::warn("using the host");
                let greeting = config::get("greeting")?.ok_or_else(|| ToolError::denied("config key `greeting`"))?;
                let medium = media::NewMedium::new("text/plain", Some("greeting.txt"));
                medium.write(greeting.as_bytes())?;
                Ok(Done::stored(medium.finish()?.digest))
            }))
    }
}

agent_host_sdk::export_tools!(Plugin);

fn order(arguments: Value) -> Result<Outcome, ToolError> {
    Plugin::tools().call("shop.order", arguments)
}

#[test]
fn p2_definitions_describe_argument_types() {
    let definitions = Plugin::tools().definitions();
    let order = &definitions[0];
    assert_eq!((order.name.as_str(), order.title.as_deref(), order.priority), ("shop.order", Some("Order"), -3));
    assert_eq!(order.traits, Traits::DESTRUCTIVE | Traits::NEEDS_APPROVAL);
    let expected = json!({
        "type": "object",
        "properties": {
            "rows": {
                "description": "The ordered articles.",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "article": { "type": "string" },
                        "count": { "type": "integer", "minimum": 0, "maximum": 255 },
                    },
                    "additionalProperties": false,
                    "required": ["article", "count"],
                },
            },
            "delivery": {
                "description": "The way in which the articles are delivered.",
                "type": "string",
                "enum": ["post", "pick-up"],
            },
        },
        "additionalProperties": false,
        "required": ["rows"],
    });
    assert_eq!(serde_json::from_str::<Value>(&order.input_schema).ok(), Some(expected));
    let output = order.output_schema.as_deref().unwrap_or_default();
    assert!(output.contains("\"articles\""), "{output}");
}

#[test]
fn schema_of_tool_without_arguments_allows_only_an_empty_object() {
    let schema = &Plugin::tools().definitions()[1].input_schema;
    let expected = json!({ "type": "object", "additionalProperties": false, "properties": {} });
    assert_eq!(serde_json::from_str::<Value>(schema).ok(), Some(expected));
}

#[test]
fn schema_of_recursive_type_refers_only_to_itself() {
    let schema = &Plugin::tools().definitions()[2].input_schema;
    let references = schema.matches("$ref").count();
    assert!(references > 0 && schema.matches("\"$ref\":\"#").count() == references, "{schema}");
}

#[test]
fn json_result_of_tool_with_output_type_is_structured() {
    let outcome = order(json!({ "rows": [{ "article": "pen", "count": 2 }, { "article": "ink", "count": 1 }] }));
    let done = outcome.ok().and_then(Outcome::done);
    assert_eq!(done.as_ref().map(Done::texts).as_deref(), Some(r#"{"articles":3}"#));
    assert_eq!(done.and_then(|done| done.structured).as_deref(), Some(r#"{"articles":3}"#));
}

#[test]
fn p2_argument_errors_have_json_pointers() {
    let pointers = [
        (json!({ "rows": [{ "article": "pen", "count": 2 }, { "article": "ink", "count": 300 }] }), "/rows/1/count"),
        (json!({ "rows": "pen" }), "/rows"),
        (json!({ "rows": [], "other/key": 1 }), "/other~1key"),
        (json!({}), ""),
        (json!({ "rows": [], "delivery": "pick-up" }), "/delivery"),
        (json!({ "rows": [], "delivery": "drone" }), "/delivery"),
    ];
    for (arguments, pointer) in pointers {
        match order(arguments.clone()) {
            Err(ToolError::InvalidArguments(violations)) => {
                assert_eq!(violations[0].pointer, pointer, "{arguments}: {violations:?}");
                assert!(!violations[0].message.contains("column"), "{violations:?}");
            }
            other => panic!("{arguments} returned {other:?}"),
        }
    }
}

#[test]
fn unknown_tool_is_not_found() {
    assert!(matches!(Plugin::tools().call("shop.steal", json!({})), Err(ToolError::NotFound(_))));
}

#[test]
fn service_request_contains_type_data_domain_and_time_limit() {
    match Plugin::tools().call("shop.cancel", json!({})) {
        Ok(Outcome::Pending(request)) => {
            assert_eq!(request.event_type, "com.example.order.cancel.v1");
            assert_eq!(request.data, r#"{"call":"1.1.1"}"#);
            assert_eq!((request.domain.as_deref(), request.answer_within), (Some("shop"), Some(60_000)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn s7_test_host_has_media_a_configuration_and_a_log() {
    let call = || Plugin::tools().call("shop.host", json!({}));
    assert_eq!(call(), Err(ToolError::denied("config key `greeting`")));
    let mut host = Host::new().config("greeting", "hello");
    assert!(host.run(call).is_ok());
    let media = host.media();
    assert_eq!(media.len(), 1);
    assert_eq!(media[0].digest, "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(host.bytes(&media[0].digest), Some(b"hello".as_slice()));
    assert_eq!(host.log().len(), 1);
}

#[test]
fn reads_media_in_ranges() {
    let mut host = Host::new();
    let bytes = (0..3 * media::CHUNK + 7).map(|number| number as u8).collect::<Vec<_>>();
    let digest = host.medium(bytes.clone(), "application/octet-stream", None);
    host.run(|| {
        let medium = media::open(&digest)?;
        assert_eq!(medium.read(3, 4)?, [3, 4, 5, 6]);
        assert!(medium.read(bytes.len() as u64, 4)?.is_empty());
        assert_eq!(medium.read(bytes.len() as u64 + 1, 4), Err(media::Error::OutOfRange));
        assert!(matches!(medium.read_all(10), Err(media::Error::TooLarge(_))));
        assert_eq!(medium.read_all(u64::MAX)?, bytes);
        assert!(matches!(media::open("sha256:0"), Err(media::Error::NotFound)));
        Ok::<(), media::Error>(())
    })
    .expect("the media item is readable");
}
