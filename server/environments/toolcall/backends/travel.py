"""Flights and bookings."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    DAY,
    Domain,
    Record,
    ToolError,
    checked_day,
    choice,
    identifier,
    tool,
    whole,
)

AIRPORTS = ("AMS", "ATH", "BCN", "CPH", "DUB", "HEL", "LIS", "OSL", "PRG", "VIE", "WAW", "ZRH")


class Travel(Domain):
    """State: flights {id: {origin, destination, date, departs, euros, seats}},
    bookings {id: {flight_id, passengers}}."""

    name: ClassVar[str] = "travel"

    @tool(
        "List the flights between two airports on one day, cheapest first.",
        origin=choice("Airport code to fly from.", *AIRPORTS),
        destination=choice("Airport code to fly to.", *AIRPORTS),
        date=DAY,
    )
    def search_flights(self, origin: str, destination: str, date: str) -> JsonValue:
        wanted = (origin, destination, checked_day(date))
        found = [
            (flight["euros"], id, flight)
            for id, flight in self.records("flights").items()
            if (flight["origin"], flight["destination"], flight["date"]) == wanted
        ]
        return {"flights": [self._shown(id, flight) for _, id, flight in sorted(found, key=lambda f: f[:2])]}

    @tool(
        "Book seats on a flight. Refused if there are too few.",
        flight_id=identifier("The flight."),
        passengers=whole("How many people.", 1, 9),
    )
    def book_flight(self, flight_id: str, passengers: int = 1) -> JsonValue:
        flight = self.get("flights", flight_id)
        if flight["seats"] < passengers:
            raise ToolError(f"flight {flight_id} has only {flight['seats']} seats left")
        id = self.add("bookings", "bkg", {"flight_id": flight_id, "passengers": passengers})
        flight["seats"] -= passengers
        return {"booking_id": id, "flight_id": flight_id, "total": flight["euros"] * passengers}

    @tool("The flight and the number of people of a booking.", booking_id=identifier("The booking."))
    def get_booking(self, booking_id: str) -> JsonValue:
        booking = self.get("bookings", booking_id)
        flight = self.get("flights", booking["flight_id"])
        return {
            "booking_id": booking_id,
            "passengers": booking["passengers"],
            "origin": flight["origin"],
            "destination": flight["destination"],
            **self._shown(booking["flight_id"], flight),
        }

    @tool("Cancel a booking; its seats are free again.", booking_id=identifier("The booking."))
    def cancel_booking(self, booking_id: str) -> JsonValue:
        booking = self.get("bookings", booking_id)
        self.get("flights", booking["flight_id"])["seats"] += booking["passengers"]
        del self.records("bookings")[booking_id]
        return {"booking_id": booking_id, "status": "cancelled"}

    def _shown(self, id: str, flight: Record) -> dict[str, JsonValue]:
        return {
            "flight_id": id,
            "date": flight["date"],
            "departs": flight["departs"],
            "price": flight["euros"],
            "seats": flight["seats"],
        }
