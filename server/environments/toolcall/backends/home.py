"""A house with rooms and doors."""

from typing import ClassVar

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


class Home(Domain):
    """State: rooms {name: {celsius, brightness}}, doors {name: {locked}}, shutters {room: percent closed}."""

    name: ClassVar[str] = "home"

    @tool("Temperature, lights and shutters of a room.", room=text("The room's name.", 40))
    def get_room(self, room: str) -> JsonValue:
        return {"room": room, **self.get("rooms", room)}

    @tool(
        "Set the heating of a room.",
        room=text("The room's name.", 40),
        celsius=number("Wanted temperature in degrees Celsius.", 5, 30),
    )
    def set_temperature(self, room: str, celsius: float) -> JsonValue:
        return self._set(room, celsius=celsius)

    @tool(
        "Set the lights of a room.",
        room=text("The room's name.", 40),
        brightness=whole("Percent; 0 is off.", 0, 100),
    )
    def set_lights(self, room: str, brightness: int) -> JsonValue:
        return self._set(room, brightness=brightness)

    @tool(
        "Open or close the shutters of a room.",
        room=text("The room's name.", 40),
        closed=flag("Whether they shall be closed."),
    )
    def set_shutters(self, room: str, closed: bool) -> JsonValue:
        return self._set(room, shutters_closed=closed)

    @tool("Whether a door is locked.", door=text("The door's name.", 40))
    def get_door(self, door: str) -> JsonValue:
        return {"door": door, "locked": self.get("doors", door)["locked"]}

    @tool(
        "Lock or unlock a door.",
        door=text("The door's name.", 40),
        locked=flag("Whether it shall be locked."),
    )
    def set_door(self, door: str, locked: bool) -> JsonValue:
        self.get("doors", door)["locked"] = locked
        return {"door": door, "locked": locked}

    def get(self, kind: str, id: str) -> Record:
        try:
            return super().get(kind, id)
        except ToolError as error:
            raise ToolError(f"{error}; there are {', '.join(sorted(self.records(kind)))}") from None

    def _set(self, room: str, **values: JsonValue) -> JsonValue:
        self.get("rooms", room).update(values)
        return {"room": room, **values}
