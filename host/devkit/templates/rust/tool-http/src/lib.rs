//! A plugin with one tool, `my-plugin.order`, which calls an API over HTTP.

use agent_host_sdk::http;
use agent_host_sdk::prelude::*;

/// Address of the API. The manifest requests access to this address.
const API: &str = "https://api.example.com/v1";

/// Arguments of `my-plugin.order`. The JSON Schema for the model is generated from this type. The comments of the
/// fields become the descriptions in the schema.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OrderArguments {
    /// The number of the order, as on the invoice.
    number: u32,
}

/// Result of `my-plugin.order`. Fields of the API's answer that are not in this type are left out.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Order {
    /// For example `packed` or `shipped`.
    state: String,
    /// Number of items in the order.
    items: u32,
}

/// The type that implements the tool.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new().tool(
            Tool::new("my-plugin.order", "Returns the state of an order. Use it when a user asks about an order.")
                .read_only()
                .open_world()
                .output::<Order>()
                .run(|arguments: OrderArguments, _: &Call| Done::json(&order(arguments.number)?)),
        )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn order(number: u32) -> Result<Order, ToolError> {
    let request = http::Request::get(format!("{API}/orders/{number}")).header("accept", "application/json");
    let response = request.send()?;
    if response.status == 404 {
        return Err(ToolError::not_found(format!("there is no order {number}")));
    }
    // Other error statuses become errors of the tool. The host may repeat the call if the API is not available, because the
    // tool is read-only.
    Ok(response.expect_ok()?.json()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_host_sdk::testing::Host;

    /// Calls the tool for the order 7 with a test host, which answers the request to the API.
    fn call(status: u16, body: &str) -> Result<Value, ToolError> {
        let mut host = Host::new().response("https://api.example.com/v1/orders/7", http::Response::new(status, body));
        let outcome = host.run(|| Plugin::tools().call("my-plugin.order", json!({ "number": 7 })))?;
        Ok(outcome.value().expect("a structured result"))
    }

    #[test]
    fn returns_the_fields_of_the_order() {
        let order = call(200, r#"{ "state": "packed", "items": 3, "warehouse": "north" }"#);
        assert_eq!(order, Ok(json!({ "state": "packed", "items": 3 })));
    }

    #[test]
    fn explains_errors_of_the_api() {
        assert_eq!(call(404, ""), Err(ToolError::not_found("there is no order 7")));
        assert!(matches!(call(503, ""), Err(ToolError::Unavailable(_))));
        assert!(matches!(call(200, "no JSON"), Err(ToolError::Failed(_))));
    }
}
