"""The first state of each domain, drawn from a seed: what the tools of a shipped dialogue find when it begins."""

from collections.abc import Callable
from datetime import date, timedelta
from random import Random
from typing import Any

from rolloutgym.server.environments.toolcall.backends.restaurants import CUISINES
from rolloutgym.server.environments.toolcall.backends.shop import CATEGORIES
from rolloutgym.server.environments.toolcall.backends.tickets import PRIORITIES, STATUSES
from rolloutgym.server.environments.toolcall.backends.travel import AIRPORTS

State = dict[str, Any]

FIRST_NAMES = (
    "Adela", "Bruno", "Chiara", "Dmitri", "Esra", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Katya", "Lorenzo", "Mira",
    "Nuno", "Olga", "Priya", "Quentin", "Rosa", "Stefan", "Tove", "Ulrike", "Viktor", "Wanda", "Yusuf", "Zofia",
)  # fmt: skip
LAST_NAMES = (
    "Almeida", "Bergström", "Castellan", "Dvořák", "Eriksen", "Fournier", "Gruber", "Hoxha", "Ivanova", "Jankowski",
    "Kaya", "Lindqvist", "Moreau", "Nowak", "Oliveira", "Petrov", "Quinn", "Rossi", "Sørensen", "Tanaka", "Vogel",
)  # fmt: skip
CITIES = (
    "Lisbon",
    "Oslo",
    "Prague",
    "Vienna",
    "Dublin",
    "Athens",
    "Zurich",
    "Helsinki",
    "Warsaw",
    "Porto",
    "Ghent",
    "Graz",
)
EVENTS = (
    "Dentist", "Budget review", "Team lunch", "Yoga class", "Piano lesson", "Car inspection", "Design workshop",
    "Call with the landlord", "Parents' evening", "Sprint planning", "Eye test", "Book club", "Job interview",
)  # fmt: skip
GOODS = {
    "audio": ("travel headphones", "kitchen radio", "record player", "desk speaker"),
    "books": ("atlas of rivers", "bread baking guide", "chess primer", "field guide to moths"),
    "garden": ("watering can", "folding spade", "herb planter", "bird table"),
    "kitchen": ("cast iron pan", "bread knife", "espresso pot", "salad bowl"),
    "sports": ("yoga mat", "skipping rope", "swim goggles", "climbing chalk"),
    "toys": ("wooden train", "marble run", "kite", "stacking cups"),
}
TICKET_TITLES = (
    "Printer on floor 2 jams", "VPN drops every hour", "New laptop for Farid", "Login page shows a blank screen",
    "Shared drive is full", "Headset has no sound", "Door badge does not open the lab", "Invoice export fails",
    "Calendar invites arrive twice", "Monitor flickers",
)  # fmt: skip
ROOMS = ("kitchen", "bedroom", "study", "living room", "hallway", "nursery", "bathroom")
DOORS = ("front door", "garage door", "terrace door", "cellar door")
SKIES = ("sunny", "cloudy", "light rain", "heavy rain", "fog", "snow", "clear")
RESTAURANT_NAMES = (
    "Blue Lantern", "Casa Amaro", "The Copper Pot", "Green Table", "Harbour Kitchen", "Little Cedar", "Nonna Pia",
    "Saffron Yard", "Seven Spoons", "Stone Bridge", "Velvet Fig", "Willow Room",
)  # fmt: skip
NOTES = (
    ("Paint colours", "Hallway: warm white. Study: sage green."),
    ("Gift ideas", "Tea for Olga. A puzzle for the twins."),
    ("Wi-Fi at the cabin", "Network pinecone, ask the neighbour for the code."),
    ("Bread recipe", "500 g flour, 350 g water, 10 g salt, 2 g yeast."),
    ("Bike service", "Brake pads worn, order new ones before spring."),
    ("Reading list", "The rivers atlas, then the one about moths."),
    ("Plumber", "Comes on Tuesdays only. Ring twice."),
    ("Balcony plants", "Basil wants sun, mint wants shade."),
)
BOOKS = (
    ("Salt Roads", "Imke Brandt"), ("The Ninth Ferry", "Imke Brandt"), ("A Field of Bells", "Tomas Okafor"),
    ("Winter Arithmetic", "Lena Solberg"), ("The Clockmaker's Ledger", "Lena Solberg"), ("Low Tide", "Rui Carvalho"),
    ("Orchard Street", "Mabel Finch"), ("Glass Harbour", "Mabel Finch"), ("Letters to a Lighthouse", "Amir Daoud"),
)  # fmt: skip
FOLDERS = ("/invoices", "/photos", "/reports", "/recipes", "/school", "/travel", "/taxes", "/music")
FILE_NAMES = ("summary.txt", "list.txt", "draft.txt", "notes.txt", "plan.txt", "todo.txt", "index.txt", "costs.txt")


def initial_state(domain: str, random: Random) -> State:
    return _STATES[domain](random)


def some_day(random: Random) -> str:
    return (date(2026, 2, 1) + timedelta(days=random.randrange(600))).isoformat()


def days_from(day: str, count: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=count)).isoformat()


def numbered(random: Random, prefix: str, count: int, low: int, high: int) -> list[str]:
    return [f"{prefix}{number}" for number in random.sample(range(low, high), count)]


def _calendar(random: Random) -> State:
    day = some_day(random)
    events: State = {}
    titles = random.sample(EVENTS, 6)
    starts = ("09:00", "10:30", "12:00", "14:00", "15:30", "17:00")
    for id, title in zip(numbered(random, "evt-", 6, 100, 999), titles, strict=True):
        taken = {(event["date"], event["start"]) for event in events.values()}
        free = [(d, s) for d in (day, days_from(day, 1), days_from(day, 3)) for s in starts if (d, s) not in taken]
        on, start = random.choice(free)
        events[id] = {"title": title, "date": on, "start": start, "minutes": random.choice((30, 45, 60, 90))}
    return {"events": events}


def _contacts(random: Random) -> State:
    contacts: State = {}
    for id, first in zip(numbered(random, "con-", 7, 10, 99), random.sample(FIRST_NAMES, 7), strict=True):
        last = random.choice(LAST_NAMES)
        phone = f"0{random.randrange(20, 99)}-{random.randrange(100000, 999999)}"
        contacts[id] = {"name": f"{first} {last}", "phone": phone, "email": f"{first.lower()}@example.org"}
    said = random.sample(("Are we still on for Friday?", "I left the keys at the desk.", "Call me when you can.",
                          "The parcel is here.", "Happy birthday!"), 4)  # fmt: skip
    messages = {
        id: {"contact_id": random.choice(sorted(contacts)), "text": text, "from_me": random.random() < 0.4}
        for id, text in zip(numbered(random, "msg-", 4, 1000, 9999), said, strict=True)
    }
    return {"contacts": contacts, "messages": messages}


def _bank(random: Random) -> State:
    ids = numbered(random, "ACC-", 3, 1000, 9999)
    accounts = {
        id: {"kind": kind, "cents": random.randrange(50_000, 900_000)}
        for id, kind in zip(ids, ("checking", "savings", "holiday"), strict=True)
    }
    cards = {
        id: {"account_id": ids[0], "status": status}
        for id, status in zip(numbered(random, "CARD-", 2, 10, 99), ("active", "frozen"), strict=True)
    }
    transactions = {
        id: {"account_id": random.choice(ids), "cents": -random.randrange(500, 20_000), "other": shop}
        for id, shop in zip(
            numbered(random, "trx-", 5, 1000, 9999),
            random.sample(("grocer", "railway", "pharmacy", "cinema", "bakery", "florist"), 5),
            strict=True,
        )
    }
    return {"accounts": accounts, "cards": cards, "transactions": transactions}


def _shop(random: Random) -> State:
    names = [(category, name) for category in CATEGORIES for name in random.sample(GOODS[category], 2)]
    ids = numbered(random, "P-", len(names), 100, 999)
    products = {
        id: {
            "name": name,
            "category": category,
            "cents": random.randrange(12, 160) * 50,
            "stock": random.randrange(8, 40),
        }
        for id, (category, name) in zip(ids, names, strict=True)
    }
    orders = {
        id: {"product_id": random.choice(ids), "quantity": random.randrange(1, 4), "status": status}
        for id, status in zip(
            numbered(random, "ORD-", 4, 1000, 9999), ("processing", "shipped", "delivered", "delivered"), strict=True
        )
    }
    return {"products": products, "orders": orders}


def _travel(random: Random) -> State:
    day = some_day(random)
    pairs = [tuple(random.sample(AIRPORTS, 2)) for _ in range(3)]
    flights: State = {}
    for origin, destination in pairs:
        prices = random.sample(range(60, 400, 10), 3)
        for id, price in zip(numbered(random, f"{origin[0]}{destination[0]}-", 3, 100, 999), prices, strict=True):
            flights[id] = {
                "origin": origin,
                "destination": destination,
                "date": day,
                "departs": f"{random.randrange(6, 22):02d}:{random.choice(('05', '20', '40', '55'))}",
                "euros": price,
                "seats": random.randrange(5, 60),
            }
    bookings = {
        id: {"flight_id": random.choice(sorted(flights)), "passengers": random.randrange(1, 4)}
        for id in numbered(random, "bkg-", 2, 1000, 9999)
    }
    return {"flights": flights, "bookings": bookings}


def _home(random: Random) -> State:
    rooms = {
        room: {
            "celsius": random.randrange(16, 23),
            "brightness": random.choice((0, 20, 60, 100)),
            "shutters_closed": random.random() < 0.3,
        }
        for room in random.sample(ROOMS, 5)
    }
    return {"rooms": rooms, "doors": {door: {"locked": random.random() < 0.5} for door in random.sample(DOORS, 3)}}


def _files(random: Random) -> State:
    folders = sorted(random.sample(FOLDERS, 4))
    files: State = {}
    for folder in folders:
        for name in random.sample(FILE_NAMES, random.randrange(1, 4)):
            title, text = random.choice(NOTES)
            files[f"{folder}/{name}"] = f"{title}\n{text}"
    return {"files": files, "folders": folders}


def _tickets(random: Random) -> State:
    titles = random.sample(TICKET_TITLES, 7)
    agents = sorted(random.sample(FIRST_NAMES, 4))
    tickets: State = {}
    for number, (id, title) in enumerate(zip(numbered(random, "T-", 7, 100, 999), titles, strict=True)):
        # One ticket of every status and priority is sure to be there; the rest falls as it may.
        status = STATUSES[number] if number < len(STATUSES) else random.choice(STATUSES)
        priority = PRIORITIES[number % len(PRIORITIES)]
        assignee = random.choice((None, *agents))
        tickets[id] = {"title": title, "priority": priority, "status": status, "assignee": assignee}
    return {"tickets": tickets, "agents": agents}


def _weather(random: Random) -> State:
    day = some_day(random)
    when = ["now", *(days_from(day, count) for count in range(4))]

    def forecast() -> State:
        return {"sky": random.choice(SKIES), "celsius": random.randrange(-8, 33), "wind_kmh": random.randrange(0, 70)}

    return {"cities": {city: {moment: forecast() for moment in when} for city in random.sample(CITIES, 5)}}


def _units(random: Random) -> State:
    middle = {"EUR": 1.0, "USD": 1.1, "GBP": 0.85, "JPY": 160.0, "CHF": 0.95, "SEK": 11.2, "PLN": 4.3}
    rates = {currency: round(rate * random.uniform(0.95, 1.05), 4) for currency, rate in middle.items()}
    return {"rates": {**rates, "EUR": 1.0}}


def _restaurants(random: Random) -> State:
    names = random.sample(RESTAURANT_NAMES, 8)
    cities, cuisines = random.sample(CITIES, 3), random.sample(CUISINES, 2)
    stars = random.sample(range(25, 50), 8)
    restaurants = {
        id: {
            "name": name,
            "city": cities[number % 3],
            "cuisine": cuisines[number % 2],
            "stars": stars[number] / 10,
            "largest_table": random.choice((6, 8, 10, 12)),
        }
        for number, (id, name) in enumerate(zip(numbered(random, "R-", 8, 10, 99), names, strict=True))
    }
    day = some_day(random)
    reservations = {
        id: {
            "restaurant_id": random.choice(sorted(restaurants)),
            "date": day,
            "time": random.choice(("18:30", "19:00", "20:15")),
            "people": random.randrange(2, 5),
        }
        for id in numbered(random, "res-", 2, 1000, 9999)
    }
    return {"restaurants": restaurants, "reservations": reservations}


def _notes(random: Random) -> State:
    notes = {
        id: {"title": title, "text": text}
        for id, (title, text) in zip(numbered(random, "note-", 5, 10, 99), random.sample(NOTES, 5), strict=True)
    }
    return {"notes": notes, "reminders": {}}


def _library(random: Random) -> State:
    ids = numbered(random, "B-", len(BOOKS), 100, 999)
    books = {
        id: {"title": title, "author": author, "copies": random.randrange(1, 4)}
        for id, (title, author) in zip(ids, BOOKS, strict=True)
    }
    day = some_day(random)
    loans = {
        id: {"book_id": book, "due": days_from(day, gap), "renewals": 0}
        for id, book, gap in zip(numbered(random, "loa-", 3, 100, 999), random.sample(ids, 3), (3, 9, 14), strict=True)
    }
    return {"books": books, "loans": loans, "loan_due": days_from(day, 21)}


def _parcels(random: Random) -> State:
    day = some_day(random)
    return {
        "parcels": {
            id: {
                "status": status,
                "city": random.choice(CITIES),
                "due": days_from(day, random.randrange(1, 6)),
                "safe_place": None,
            }
            for id, status in zip(
                numbered(random, "PCL-", 4, 10000, 99999),
                ("in transit", "at the depot", "in transit", "delivered"),
                strict=True,
            )
        }
    }


_STATES: dict[str, Callable[[Random], State]] = {
    "bank": _bank,
    "calendar": _calendar,
    "contacts": _contacts,
    "files": _files,
    "home": _home,
    "library": _library,
    "notes": _notes,
    "parcels": _parcels,
    "restaurants": _restaurants,
    "shop": _shop,
    "tickets": _tickets,
    "travel": _travel,
    "units": _units,
    "weather": _weather,
}
