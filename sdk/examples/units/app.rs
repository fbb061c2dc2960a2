//! Several tools in one plugin. Each tool declares the type of its result, so that the host checks the result, and
//! programs can read it.

use agent_host_sdk::prelude::*;

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Metre,
    Kilometre,
    Foot,
    Mile,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Metre, Self::Kilometre, Self::Foot, Self::Mile];

    fn metres(self) -> f64 {
        match self {
            Self::Metre => 1.0,
            Self::Kilometre => 1000.0,
            Self::Foot => 0.3048,
            Self::Mile => 1609.344,
        }
    }
}

/// Result of `units.list`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Units {
    /// The names of the units.
    units: Vec<Unit>,
}

/// Arguments of `units.convert`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Convert {
    /// The length to convert.
    value: f64,
    /// The unit of the length.
    unit: Unit,
    /// The unit of the result.
    to: Unit,
}

/// Result of `units.convert`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Converted {
    /// The length in the new unit.
    value: f64,
    /// The new unit.
    unit: Unit,
}

/// The type that implements the tools.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new("units.list", "Lists the units of length that `units.convert` knows.")
                    .read_only()
                    .output::<Units>()
                    .run(|_: NoArguments, _: &Call| Done::json(&Units { units: Unit::ALL.to_vec() })),
            )
            .tool(
                Tool::new(
                    "units.convert",
                    "Converts a length from one unit to another. Use it instead of calculating yourself.",
                )
                .title("Convert a length")
                .read_only()
                .output::<Converted>()
                .run(|Convert { value, unit, to }, _: &Call| {
                    Done::json(&Converted { value: value * unit.metres() / to.metres(), unit: to })
                }),
            )
    }
}

agent_host_sdk::export_tools!(Plugin);
