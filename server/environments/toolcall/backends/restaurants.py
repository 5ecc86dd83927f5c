"""Restaurants and table reservations."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    CLOCK,
    DAY,
    Domain,
    Record,
    ToolError,
    add,
    checked_day,
    choice,
    find,
    identifier,
    minutes_of,
    text,
    tool,
    whole,
)

CUISINES = ("indian", "italian", "japanese", "lebanese", "mexican", "vegan")


class Restaurant(Record):
    name: str
    city: str
    cuisine: str
    stars: float
    largest_table: int
    """Guests."""


class Reservation(Record):
    restaurant_id: str
    date: str
    time: str
    people: int


class RestaurantsState(Record):
    restaurants: dict[str, Restaurant]
    reservations: dict[str, Reservation]


class Restaurants(Domain[RestaurantsState]):
    name: ClassVar[str] = "restaurants"
    state_type: ClassVar[type[Record]] = RestaurantsState

    @tool(
        "List a city's restaurants of one cuisine, best rated first.",
        city=text("The city's name.", 60),
        cuisine=choice("Kind of food.", *CUISINES),
    )
    def search_restaurants(self, city: str, cuisine: str) -> JsonValue:
        places = self.state.restaurants
        found = [(-place.stars, id) for id, place in places.items() if (place.city, place.cuisine) == (city, cuisine)]
        return {
            "restaurants": [
                {"restaurant_id": id, "name": places[id].name, "stars": places[id].stars}
                for _, id in sorted(found)[:10]
            ]
        }

    @tool(
        "Reserve a table.",
        restaurant_id=identifier("The restaurant."),
        date=DAY,
        time=CLOCK,
        people=whole("How many guests.", 1, 20),
    )
    def book_table(self, restaurant_id: str, date: str, time: str, people: int) -> JsonValue:
        minutes_of(time)
        place = self._place_for(restaurant_id, people)
        reservation = Reservation(restaurant_id=restaurant_id, date=checked_day(date), time=time, people=people)
        id = add(self.state.reservations, "res", reservation)
        return {"reservation_id": id, "restaurant": place.name, "date": date, "time": time, "people": people}

    @tool(
        "Change the number of guests of a reservation.",
        reservation_id=identifier("The reservation."),
        people=whole("How many guests.", 1, 20),
    )
    def change_guests(self, reservation_id: str, people: int) -> JsonValue:
        reservation = find(self.state.reservations, reservation_id, "reservation")
        self._place_for(reservation.restaurant_id, people)
        reservation.people = people
        return {"reservation_id": reservation_id, "people": people}

    @tool("Cancel a reservation.", reservation_id=identifier("The reservation."))
    def cancel_table(self, reservation_id: str) -> JsonValue:
        find(self.state.reservations, reservation_id, "reservation")
        del self.state.reservations[reservation_id]
        return {"reservation_id": reservation_id, "status": "cancelled"}

    def _place_for(self, restaurant_id: str, people: int) -> Restaurant:
        place = find(self.state.restaurants, restaurant_id, "restaurant")
        if people > place.largest_table:
            raise ToolError(f"'{place.name}' has no table for more than {place.largest_table}")
        return place
