"""A GET request to an API that returns JSON. The API needs a key: the manifest requests it as a secret, and the host adds it
to each request, so the plugin never sees it."""

from dataclasses import dataclass
from typing import Annotated

from agent_host_sdk import ToolError, http, tool

# Address of the API. The manifest requests access to this address.
API = "https://api.example.com/v1"


@dataclass
class Weather:
    temperature: Annotated[float, "The temperature in degrees Celsius."]
    sky: Annotated[str, "The state of the sky, for example `cloudy`."]


@tool("weather.now", read_only=True, open_world=True)
def now(city: Annotated[str, "The name of the city.", {"minLength": 1}]) -> Weather:
    """Returns the weather in a city at this moment."""
    # With `check=False`, an error status is not an exception.
    response = http.get(f"{API}/weather", query={"city": city}, check=False)
    if response.status == 404:
        raise ToolError.not_found(f"there is no weather for `{city}`")
    found = response.expect_ok().json()
    return Weather(temperature=found["temperature"], sky=found["sky"])
