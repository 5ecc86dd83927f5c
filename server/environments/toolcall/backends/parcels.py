"""A parcel service."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    DAY,
    Domain,
    Record,
    ToolError,
    checked_day,
    choice,
    find,
    identifier,
    number,
    text,
    tool,
)

SPEEDS = {"economy": 390, "standard": 590, "express": 1190}
"""Cents for the first kilogram; each further one costs a fifth of that."""


class Parcel(Record):
    status: str
    city: str
    due: str
    safe_place: str | None


class ParcelsState(Record):
    parcels: dict[str, Parcel]


class Parcels(Domain[ParcelsState]):
    name: ClassVar[str] = "parcels"
    state_type: ClassVar[type[Record]] = ParcelsState

    @tool("Where a parcel is and when it will arrive.", parcel_id=identifier("The parcel."))
    def track_parcel(self, parcel_id: str) -> JsonValue:
        parcel = find(self.state.parcels, parcel_id, "parcel")
        return {"parcel_id": parcel_id, "status": parcel.status, "city": parcel.city, "due": parcel.due}

    @tool("Have a parcel that is on its way delivered on another day.", parcel_id=identifier("The parcel."), date=DAY)
    def change_delivery_day(self, parcel_id: str, date: str) -> JsonValue:
        parcel = self._moving(parcel_id)
        parcel.due = checked_day(date)
        return {"parcel_id": parcel_id, "due": date}

    @tool(
        "Say where a parcel shall be left if nobody is at home.",
        parcel_id=identifier("The parcel."),
        place=text("The place, word for word.", 100),
    )
    def set_safe_place(self, parcel_id: str, place: str) -> JsonValue:
        self._moving(parcel_id).safe_place = place
        return {"parcel_id": parcel_id, "safe_place": place}

    @tool(
        "What sending a parcel costs, in euros.",
        weight_kg=number("Weight in kilograms.", 0.1, 30),
        speed=choice("How fast.", *SPEEDS),
    )
    def quote_postage(self, weight_kg: float, speed: str) -> JsonValue:
        first = SPEEDS[speed]
        further = max(0.0, weight_kg - 1) * first / 5
        return {"speed": speed, "price": round((first + further) / 100, 2)}

    def _moving(self, parcel_id: str) -> Parcel:
        parcel = find(self.state.parcels, parcel_id, "parcel")
        if parcel.status == "delivered":
            raise ToolError(f"parcel {parcel_id} has been delivered")
        return parcel
