"""Flights and bookings."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    DAY,
    Domain,
    Record,
    ToolError,
    add,
    checked_day,
    choice,
    find,
    identifier,
    tool,
    whole,
)

AIRPORTS = ("AMS", "ATH", "BCN", "CPH", "DUB", "HEL", "LIS", "OSL", "PRG", "VIE", "WAW", "ZRH")


class Flight(Record):
    origin: str
    destination: str
    date: str
    departs: str
    euros: int
    seats: int
    """Still free."""


class Booking(Record):
    flight_id: str
    passengers: int


class TravelState(Record):
    flights: dict[str, Flight]
    bookings: dict[str, Booking]


class Travel(Domain[TravelState]):
    name: ClassVar[str] = "travel"
    state_type: ClassVar[type[Record]] = TravelState

    @tool(
        "List the flights between two airports on one day, cheapest first.",
        origin=choice("Airport code to fly from.", *AIRPORTS),
        destination=choice("Airport code to fly to.", *AIRPORTS),
        date=DAY,
    )
    def search_flights(self, origin: str, destination: str, date: str) -> JsonValue:
        wanted = (origin, destination, checked_day(date))
        found = [
            (flight.euros, id)
            for id, flight in self.state.flights.items()
            if (flight.origin, flight.destination, flight.date) == wanted
        ]
        return {"flights": [self._shown(id) for _, id in sorted(found)[:20]]}

    @tool(
        "Book seats on a flight. Refused if there are too few.",
        flight_id=identifier("The flight."),
        passengers=whole("How many people.", 1, 9),
    )
    def book_flight(self, flight_id: str, passengers: int = 1) -> JsonValue:
        flight = self._flight(flight_id)
        if flight.seats < passengers:
            raise ToolError(f"flight {flight_id} has only {flight.seats} seats left")
        id = add(self.state.bookings, "bkg", Booking(flight_id=flight_id, passengers=passengers))
        flight.seats -= passengers
        return {"booking_id": id, "flight_id": flight_id, "total": flight.euros * passengers}

    @tool("The flight and the number of people of a booking.", booking_id=identifier("The booking."))
    def get_booking(self, booking_id: str) -> JsonValue:
        booking = find(self.state.bookings, booking_id, "booking")
        flight = self._flight(booking.flight_id)
        return {
            "booking_id": booking_id,
            "passengers": booking.passengers,
            "origin": flight.origin,
            "destination": flight.destination,
            **self._shown(booking.flight_id),
        }

    @tool("Cancel a booking; its seats are free again.", booking_id=identifier("The booking."))
    def cancel_booking(self, booking_id: str) -> JsonValue:
        booking = find(self.state.bookings, booking_id, "booking")
        self._flight(booking.flight_id).seats += booking.passengers
        del self.state.bookings[booking_id]
        return {"booking_id": booking_id, "status": "cancelled"}

    def _flight(self, id: str) -> Flight:
        return find(self.state.flights, id, "flight")

    def _shown(self, id: str) -> dict[str, JsonValue]:
        flight = self._flight(id)
        return {
            "flight_id": id,
            "date": flight.date,
            "departs": flight.departs,
            "price": flight.euros,
            "seats": flight.seats,
        }
