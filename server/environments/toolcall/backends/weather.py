"""A weather service: a table by city and day."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    DAY,
    Domain,
    Record,
    ToolError,
    checked_day,
    text,
    tool,
)


class Conditions(Record):
    sky: str
    celsius: int
    wind_kmh: int


class WeatherState(Record):
    cities: dict[str, dict[str, Conditions]]
    """By name of the city, then by day or "now"."""


class Weather(Domain[WeatherState]):
    name: ClassVar[str] = "weather"
    state_type: ClassVar[type[Record]] = WeatherState

    @tool("The weather in a city at this moment.", city=text("The city's name.", 60))
    def get_current_weather(self, city: str) -> JsonValue:
        return {"city": city, **self._at(city, "now")}

    @tool("The weather forecast for a city and a day.", city=text("The city's name.", 60), date=DAY)
    def get_forecast(self, city: str, date: str) -> JsonValue:
        return {"city": city, "date": date, **self._at(city, checked_day(date))}

    def _at(self, city: str, when: str) -> dict[str, JsonValue]:
        days = self.state.cities.get(city, {})
        if when not in days:
            raise ToolError(f"nothing is known for '{city}' and that time")
        return days[when].model_dump()
