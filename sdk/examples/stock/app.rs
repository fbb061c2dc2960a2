//! Errors that help the model: each kind of error tells the model, and the host, what can be done next.

use agent_host_sdk::prelude::*;
use std::time::Duration;

/// Arguments of `stock.check`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Check {
    /// The items to deliver.
    #[schemars(length(min = 1))]
    lines: Vec<Line>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    /// The name of the item.
    item: String,
    /// The number of pieces.
    #[schemars(range(min = 1))]
    count: u32,
}

/// The items, and the number of pieces that are left.
const STOCK: [(&str, u32); 3] = [("lamp", 5), ("chair", 2), ("table", 0)];

/// The type that implements the tool.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new().tool(
            Tool::new(
                "stock.check",
                "Checks whether the shop can deliver these items. Use it before you promise a delivery.",
            )
            .read_only()
            .run(|Check { lines }, _: &Call| check(&lines)),
        )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn check(lines: &[Line]) -> Result<&'static str, ToolError> {
    let mut violations = Vec::new();
    for (index, Line { item, count }) in lines.iter().enumerate() {
        let Some((_, left)) = STOCK.iter().find(|(name, _)| name == item) else {
            // The message lists what exists, so that the model need not guess.
            let items = STOCK.map(|(name, _)| name).join(", ");
            return Err(ToolError::not_found(format!("there is no item `{item}`; the items are: {items}")));
        };
        if *left == 0 {
            let message = format!("`{item}` is sold out until Monday");
            return Err(ToolError::unavailable_for(message, Duration::from_hours(48)));
        }
        if count > left {
            violations
                .push((format!("/lines/{index}/count"), format!("must be at most {left}, because no more are left")));
        }
    }
    // All wrong arguments are reported at once, so that the model can correct them in one step.
    if violations.is_empty() { Ok("All items can be delivered.") } else { Err(ToolError::invalid_all(violations)) }
}
