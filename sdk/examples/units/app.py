"""Several tools in one plugin. Each tool declares the type of its result, so that the host checks the result, and programs
can read it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from agent_host_sdk import tool

Unit = Literal["metre", "kilometre", "foot", "mile"]
METRES: dict[Unit, float] = {"metre": 1.0, "kilometre": 1000.0, "foot": 0.3048, "mile": 1609.344}


@dataclass
class Units:
    units: Annotated[list[Unit], "The names of the units."]


@dataclass
class Converted:
    value: Annotated[float, "The length in the new unit."]
    unit: Annotated[Unit, "The new unit."]


@tool("units.list", read_only=True)
def list_units() -> Units:
    """Lists the units of length that `units.convert` knows."""
    return Units(list(METRES))


@tool("units.convert", title="Convert a length", read_only=True)
def convert(
    value: Annotated[float, "The length to convert."],
    unit: Annotated[Unit, "The unit of the length."],
    to: Annotated[Unit, "The unit of the result."],
) -> Converted:
    """Converts a length from one unit to another. Use it instead of calculating yourself."""
    return Converted(value * METRES[unit] / METRES[to], to)
