"""Restaurants and table reservations."""

from typing import ClassVar

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    CLOCK,
    DAY,
    Domain,
    ToolError,
    checked_day,
    choice,
    identifier,
    minutes_of,
    text,
    tool,
    whole,
)

CUISINES = ("indian", "italian", "japanese", "lebanese", "mexican", "vegan")


class Restaurants(Domain):
    """State: restaurants {id: {name, city, cuisine, stars, largest_table}}, reservations {id: {…}}."""

    name: ClassVar[str] = "restaurants"

    @tool(
        "List a city's restaurants of one cuisine, best rated first.",
        city=text("The city's name.", 60),
        cuisine=choice("Kind of food.", *CUISINES),
    )
    def search_restaurants(self, city: str, cuisine: str) -> JsonValue:
        found = [
            (-place["stars"], id, place)
            for id, place in self.records("restaurants").items()
            if (place["city"], place["cuisine"]) == (city, cuisine)
        ]
        return {
            "restaurants": [
                {"restaurant_id": id, "name": place["name"], "stars": place["stars"]}
                for _, id, place in sorted(found, key=lambda f: f[:2])[:10]
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
        place = self.get("restaurants", restaurant_id)
        minutes_of(time)
        if people > place["largest_table"]:
            raise ToolError(f"'{place['name']}' has no table for more than {place['largest_table']}")
        reservation = {"restaurant_id": restaurant_id, "date": checked_day(date), "time": time, "people": people}
        id = self.add("reservations", "res", reservation)
        return {"reservation_id": id, "restaurant": place["name"], "date": date, "time": time, "people": people}

    @tool(
        "Change the number of guests of a reservation.",
        reservation_id=identifier("The reservation."),
        people=whole("How many guests.", 1, 20),
    )
    def change_guests(self, reservation_id: str, people: int) -> JsonValue:
        reservation = self.get("reservations", reservation_id)
        place = self.get("restaurants", reservation["restaurant_id"])
        if people > place["largest_table"]:
            raise ToolError(f"'{place['name']}' has no table for more than {place['largest_table']}")
        reservation["people"] = people
        return {"reservation_id": reservation_id, "people": people}

    @tool("Cancel a reservation.", reservation_id=identifier("The reservation."))
    def cancel_table(self, reservation_id: str) -> JsonValue:
        self.get("reservations", reservation_id)
        del self.records("reservations")[reservation_id]
        return {"reservation_id": reservation_id, "status": "cancelled"}
