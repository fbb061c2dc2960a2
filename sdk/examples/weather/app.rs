//! A GET request to an API that returns JSON. The API needs a key: the manifest requests it as a secret, and the host
//! adds it to each request, so the plugin never sees it.

use agent_host_sdk::http::Request;
use agent_host_sdk::prelude::*;

/// Address of the API. The manifest requests access to this address.
const API: &str = "https://api.example.com/v1";

/// Arguments of `weather.now`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Now {
    /// The name of the city.
    #[schemars(length(min = 1))]
    city: String,
}

/// Result of `weather.now`, which is also a part of the answer of the API. Other fields of the answer are ignored.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Weather {
    /// The temperature in degrees Celsius.
    temperature: f64,
    /// The state of the sky, for example `cloudy`.
    sky: String,
}

/// The type that implements the tool.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new().tool(
            Tool::new("weather.now", "Returns the weather in a city at this moment.")
                .read_only()
                .open_world()
                .output::<Weather>()
                .run(|Now { city }, _: &Call| Done::json(&weather(&city)?)),
        )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn weather(city: &str) -> Result<Weather, ToolError> {
    let response = Request::get(format!("{API}/weather")).query("city", city).send()?;
    if response.status == 404 {
        return Err(ToolError::not_found(format!("there is no weather for `{city}`")));
    }
    Ok(response.expect_ok()?.json()?)
}
