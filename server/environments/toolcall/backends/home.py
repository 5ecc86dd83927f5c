"""A house with rooms and doors."""

from collections.abc import Mapping
from typing import ClassVar, TypeVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    flag,
    number,
    text,
    tool,
    whole,
)


class Room(Record):
    celsius: int | float
    brightness: int
    shutters_closed: bool


class Door(Record):
    locked: bool


class HomeState(Record):
    rooms: dict[str, Room]
    doors: dict[str, Door]


_Part = TypeVar("_Part", Room, Door)


class Home(Domain[HomeState]):
    name: ClassVar[str] = "home"
    state_type: ClassVar[type[Record]] = HomeState

    @tool("Temperature, lights and shutters of a room.", room=text("The room's name.", 40))
    def get_room(self, room: str) -> JsonValue:
        return {"room": room, **self._room(room).model_dump()}

    @tool(
        "Set the heating of a room.",
        room=text("The room's name.", 40),
        celsius=number("Wanted temperature in degrees Celsius.", 5, 30),
    )
    def set_temperature(self, room: str, celsius: float) -> JsonValue:
        self._room(room).celsius = celsius
        return {"room": room, "celsius": celsius}

    @tool(
        "Set the lights of a room.",
        room=text("The room's name.", 40),
        brightness=whole("Percent; 0 is off.", 0, 100),
    )
    def set_lights(self, room: str, brightness: int) -> JsonValue:
        self._room(room).brightness = brightness
        return {"room": room, "brightness": brightness}

    @tool(
        "Open or close the shutters of a room.",
        room=text("The room's name.", 40),
        closed=flag("Whether they shall be closed."),
    )
    def set_shutters(self, room: str, closed: bool) -> JsonValue:
        self._room(room).shutters_closed = closed
        return {"room": room, "shutters_closed": closed}

    @tool("Whether a door is locked.", door=text("The door's name.", 40))
    def get_door(self, door: str) -> JsonValue:
        return {"door": door, "locked": self._door(door).locked}

    @tool(
        "Lock or unlock a door.",
        door=text("The door's name.", 40),
        locked=flag("Whether it shall be locked."),
    )
    def set_door(self, door: str, locked: bool) -> JsonValue:
        self._door(door).locked = locked
        return {"door": door, "locked": locked}

    def _room(self, name: str) -> Room:
        return _part(self.state.rooms, name, "room")

    def _door(self, name: str) -> Door:
        return _part(self.state.doors, name, "door")


def _part(parts: Mapping[str, _Part], name: str, what: str) -> _Part:
    if name not in parts:
        raise ToolError(f"there is no {what} '{name}'; there are {', '.join(sorted(parts)) or 'none'}")
    return parts[name]
