"""Scripts in which each call needs what the one before it answered, with no user in between."""

from typing import Any

from rolloutgym.server.environments.toolcall.backends.domain import clock_of, minutes_of
from rolloutgym.server.environments.toolcall.backends.units import CURRENCIES
from rolloutgym.server.environments.toolcall.generator.draft import Draft
from rolloutgym.server.environments.toolcall.generator.scripts import script
from rolloutgym.server.environments.toolcall.generator.worlds import days_from

ERRANDS = (
    "The meeting room has changed to 4B.",
    "I'll be ten minutes late.",
    "Your coat is still at my place.",
    "Please bring the blue folder.",
    "Thanks for the soup!",
    "The spare key is with the neighbour.",
)


@script("contacts", executable=True)
def message_by_name(d: Draft) -> None:
    _, who = d.pick_record("contacts", "contacts")
    first, text = who["name"].split()[0], d.pick(ERRANDS)
    d.user(
        'Send {first} this message: "{text}"',
        'Please text {first}: "{text}"',
        'Let {first} know, in exactly these words: "{text}"',
        first=first,
        text=text,
    )
    found = d.call("find_contact", name=first)["contacts"]
    d.call("send_message", contact_id=_only(found)["contact_id"], text=text)
    d.narrate("{name} has your message.", "Sent to {name}.", name=who["name"])


@script("contacts", executable=True)
def number_has_changed(d: Draft) -> None:
    _, who = d.pick_record("contacts", "contacts")
    phone = f"0{d.random.randrange(20, 99)}-{d.random.randrange(100000, 999999)}"
    d.user(
        "{name} has a new telephone number: {phone}. Please change it in my contacts.",
        "Change the number of {name} to {phone}.",
        "The phone of {name} is now {phone}; update the address book, please.",
        name=who["name"],
        phone=phone,
    )
    found = d.call("find_contact", name=who["name"])["contacts"]
    d.call("update_phone", contact_id=_only(found)["contact_id"], phone=phone)
    d.narrate("I changed the number of {name}.", name=who["name"])


@script("calendar", executable=True)
def move_by_title(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    day = days_from(event["date"], d.pick((9, 10, 14)))
    start = d.pick(("08:15", "11:30", "13:00", "16:20"))
    d.user(
        "My '{title}' is on {old}. Move it to {new} at {start}, please.",
        "Shift '{title}' from {old} to {new}, {start}.",
        "I can't do '{title}' on {old}. Put it on {new} at {start} instead.",
        title=event["title"],
        old=d.spoken_day(event["date"]),
        new=d.spoken_day(day),
        start=d.spoken_clock(start),
    )
    listed = d.call("list_events", date=event["date"])["events"]
    id = _only([found for found in listed if found["title"] == event["title"]])["event_id"]
    d.call("reschedule_event", event_id=id, date=day, start=start)
    d.narrate("'{title}' has moved.", "Done, '{title}' is on its new day.", title=event["title"])


@script("calendar", executable=True)
def first_free_slot(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    minutes = d.pick((30, 40, 50))
    title = d.pick(("Call with Tomas", "Read the contract", "Expense report", "Plan the garden", "Fix the bike"))
    d.user(
        "Find the first free {minutes} minutes on {day} and book them as '{title}'.",
        "When am I first free for {minutes} minutes on {day}? Enter '{title}' there, for those {minutes} minutes.",
        "On {day}, put '{title}' into the earliest gap of {minutes} minutes.",
        minutes=minutes,
        day=d.spoken_day(event["date"]),
        title=title,
    )
    start = d.call("find_free_time", date=event["date"], duration_minutes=minutes)["start"]
    d.call("create_event", title=title, date=event["date"], start=start, duration_minutes=minutes)
    d.narrate("'{title}' starts at {start}.", title=title, start=start)


@script("travel", executable=True)
def cheapest_flight(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    people = d.pick((2, 3, 4))
    d.user(
        "Book the cheapest flight from {a} to {b} on {day} for {people} people.",
        "{people} of us want to go from {a} to {b} on {day}. Take whatever flight is cheapest and book it.",
        "Find the lowest price {a}-{b} on {day} and book {people} seats.",
        a=flight["origin"],
        b=flight["destination"],
        day=d.spoken_day(flight["date"]),
        people=people,
    )
    found = d.call("search_flights", origin=flight["origin"], destination=flight["destination"], date=flight["date"])
    booked = d.call("book_flight", flight_id=found["flights"][0]["flight_id"], passengers=people)
    d.narrate("Booked for {total} euros: {id}.", total=booked["total"], id=booked["booking_id"])


@script("shop", executable=True)
def cheapest_of_a_kind(d: Draft) -> None:
    _, product = d.pick_record("shop", "products")
    quantity = d.pick((2, 3, 4, 6))
    d.user(
        "Order {quantity} pieces of the cheapest thing you have in {category}.",
        "What's the least expensive product in the {category} department? Order {quantity} of it.",
        "I need {quantity} cheap presents from the {category} category: take the cheapest product.",
        quantity=quantity,
        category=product["category"],
    )
    found = d.call("search_products", category=product["category"])["products"]
    order = d.call("place_order", product_id=found[0]["product_id"], quantity=quantity)
    d.narrate("{n} times {name}, {total:.2f} euros in all.", n=quantity, name=found[0]["name"], total=order["total"])


@script("restaurants", executable=True)
def best_table_in_town(d: Draft) -> None:
    _, place = d.pick_record("restaurants", "restaurants")
    day = days_from(d.pick_record("restaurants", "reservations")[1]["date"], d.pick((1, 3, 8)))
    time, people = d.pick(("18:00", "19:30", "20:45")), d.pick((2, 3, 5, 6))
    d.user(
        "Reserve a table for {people} at the best rated {cuisine} restaurant in {city}, {day} at {time}.",
        "Which {cuisine} place in {city} has the best rating? Get us a table there on {day}, {time}, {people} people.",
        "{people} of us want {cuisine} food in {city} on {day} at {time}. Book the top-rated place.",
        people=people,
        cuisine=place["cuisine"] if place["cuisine"] == "vegan" else place["cuisine"].capitalize(),
        city=place["city"],
        day=d.spoken_day(day),
        time=d.spoken_clock(time),
    )
    found = d.call("search_restaurants", city=place["city"], cuisine=place["cuisine"])["restaurants"]
    d.call("book_table", restaurant_id=found[0]["restaurant_id"], date=day, time=time, people=people)
    d.narrate("{name} expects you at {time}.", name=found[0]["name"], time=time)


@script("bank", executable=True)
def empty_holiday_account(d: Draft) -> None:
    source, target = d.random.sample(("checking", "savings", "holiday"), 2)
    d.user(
        "Move everything from my {source} account to my {target} account.",
        "Transfer the whole balance of the {source} account to the {target} account, please.",
        "I want my {source} account emptied into the {target} account.",
        source=source,
        target=target,
    )
    accounts = {found["kind"]: found["account_id"] for found in d.call("list_accounts")["accounts"]}
    balance = d.call("get_balance", account_id=accounts[source])["balance"]
    d.call("transfer_money", from_account=accounts[source], to_account=accounts[target], amount=balance)
    d.narrate("{balance:.2f} euros have moved.", balance=balance)


@script("home", executable=True)
def a_little_warmer(d: Draft) -> None:
    room, _ = d.pick_record("home", "rooms")
    step = d.pick((1.5, 2, 3))
    d.user(
        "Make the {room} {step} degrees warmer than it is now.",
        "Check the temperature in the {room} and raise it by {step} degrees.",
        "The {room} is too cold for me. Add {step} degrees to what it has now.",
        room=room,
        step=step,
    )
    celsius = d.call("get_room", room=room)["celsius"]
    d.call("set_temperature", room=room, celsius=celsius + step)
    d.narrate("The {room} will have {new} degrees.", room=room, new=celsius + step)


@script("tickets", executable=True)
def hand_over_ticket(d: Draft) -> None:
    id, ticket = d.pick_record("tickets", "tickets")
    agent = d.pick(d.state("tickets")["agents"])
    d.user(
        "There is a ticket with status {status} and priority {priority} called '{title}'. Give it to {agent}.",
        "Assign '{title}' to {agent}. It is a {priority}-priority ticket with status {status}.",
        "{agent} takes over '{title}' (status {status}, priority {priority}). I don't have its number.",
        status=ticket["status"],
        priority=ticket["priority"],
        title=ticket["title"],
        agent=agent,
    )
    d.call("search_tickets", status=ticket["status"], priority=ticket["priority"])
    d.call("assign_ticket", ticket_id=id, agent=agent)
    d.narrate("{agent} has ticket {id} now.", agent=agent, id=id)


@script("notes", executable=True)
def add_to_note(d: Draft) -> None:
    _, note = d.pick_record("notes", "notes")
    word, line = (
        note["title"].split()[0],
        d.pick(("Ask Mira about it.", "Done on Monday.", "Costs 30 euros.", "See page 12.")),
    )
    d.user(
        'Look for my note with the word "{word}" and add this line to it: "{line}"',
        'Find the note about "{word}" and append "{line}"',
        'I have a note with "{word}" in it. Put "{line}" at its end.',
        word=word,
        line=line,
    )
    found = d.call("search_notes", keyword=word)["notes"]
    d.call("append_to_note", note_id=_only(found)["note_id"], line=line)
    d.narrate('I added it to "{title}".', title=note["title"])


@script("shop", "units")
def price_in_my_currency(d: Draft) -> None:
    id, product = d.pick_record("shop", "products")
    currency = d.pick([code for code in CURRENCIES if code != "EUR"])
    d.user(
        "What does product {id} cost in {currency}?",
        "Look up the price of {id}, which is in euros (EUR), and convert it to {currency}.",
        "I pay in {currency}. How much is {id}?",
        id=id,
        currency=currency,
    )
    price = d.call("get_product", product_id=id)["price"]
    answer = d.call("convert_currency", amount=price, from_currency="EUR", to_currency=currency)
    d.narrate("{name} costs {amount} {currency}.", name=product["name"], amount=answer["amount"], currency=currency)


@script("weather", "notes", executable=True, apart=("calendar",), variants=6)
def umbrella_rule(d: Draft) -> None:
    city, days = d.pick_record("weather", "cities")
    day = d.pick(sorted(days)[:4])
    d.user(
        "If the forecast for {city} on {day} says light rain or heavy rain, set a reminder 'Take an umbrella' for that "
        "day at 07:30. Otherwise do nothing.",
        "Check {city} on {day}: only for light or heavy rain, remind me at 07:30 that day with the words "
        "'Take an umbrella'.",
        city=city,
        day=d.spoken_day(day),
    )
    forecast = d.call("get_forecast", city=city, date=day)
    sky = forecast["sky"]
    if "rain" in sky:
        d.call("set_reminder", text="Take an umbrella", date=day, time="07:30")
        d.narrate("It will be {sky}, so I set the reminder.", sky=sky)
    else:
        d.must_show(forecast)
        d.no_call("The forecast says {sky}; no reminder needed.", sky=sky)


@script("files", executable=True)
def keep_a_copy_of_text(d: Draft) -> None:
    path = d.pick(sorted(d.state("files")["files"]))
    title = d.pick(("backup", "second-copy", "for-later"))
    new = f"{path.rpartition('/')[0]}/{title}.txt"
    d.user(
        "Read {path} and write the same text into a new file {new}.",
        "Make a copy of {path} as {new}: read it and write it word for word.",
        path=path,
        new=new,
    )
    text = d.call("read_file", path=path)["text"]
    d.call("write_file", path=new, text=text)
    d.narrate("{new} now has the same text.", new=new)


@script("calendar", "contacts", executable=True)
def tell_them_when(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    id, who = d.pick_record("contacts", "contacts")
    d.user(
        "Look up when '{title}' ends on {day} and send {name} ({id}) a message that is just that time as HH:MM.",
        "At what time is '{title}' over on {day}? Text {name} ({id}) only the time, as HH:MM.",
        title=event["title"],
        day=d.spoken_day(event["date"]),
        name=who["name"],
        id=id,
    )
    d.call("list_events", date=event["date"])
    end = clock_of(minutes_of(event["start"]) + event["minutes"])
    d.call("send_message", contact_id=id, text=end)
    d.narrate("I told {name}: {end}.", name=who["name"], end=end)


@script("tickets", split="validation", executable=True)
def close_by_title(d: Draft) -> None:
    id, ticket = d.pick_record("tickets", "tickets", status="open")
    d.user(
        "The open ticket '{title}' is solved. Close it.",
        "Find '{title}' among the open tickets and close it, please.",
        title=ticket["title"],
    )
    d.call("search_tickets", status="open")
    d.call("set_ticket_status", ticket_id=id, status="closed")
    d.narrate("{id} is closed.", id=id)


@script("parcels", "notes", split="validation", executable=True, apart=("calendar",))
def be_home_for_parcel(d: Draft) -> None:
    id, _ = d.pick_record("parcels", "parcels", status="in transit")
    time = d.pick(("07:00", "08:30"))
    d.user(
        "Find out on which day parcel {id} is due and remind me that day at {time}: 'Stay at home'",
        "When {id} is due I must be in. Set a reminder 'Stay at home' for its day at {time}.",
        id=id,
        time=time,
    )
    due = d.call("track_parcel", parcel_id=id)["due"]
    d.call("set_reminder", text="Stay at home", date=due, time=time)
    d.narrate("It is due on {due}; I'll remind you.", due=due)


@script("bank", split="validation", executable=True)
def thaw_frozen_card(d: Draft) -> None:
    id, _ = d.pick_record("bank", "cards", status="frozen")
    d.user(
        "One of my cards is frozen. Find out which and make it work again.",
        "I found my card! Look which one is frozen and set it active.",
    )
    d.call("list_cards")
    d.call("set_card_status", card_id=id, status="active")
    d.narrate("{id} works again.", id=id)


@script("library", split="test", executable=True)
def borrow_by_author(d: Draft) -> None:
    id, book = d.pick_record("library", "books")
    d.user(
        "Borrow '{title}' by {author} for me.",
        "I'd like to read {author}'s '{title}'. Please borrow it.",
        title=book["title"],
        author=book["author"],
    )
    d.call("search_books", author=book["author"])
    loan = d.call("borrow_book", book_id=id)
    d.narrate("'{title}' is yours until {due}.", title=book["title"], due=loan["due"])


@script("library", split="test", executable=True)
def renew_the_soonest(d: Draft) -> None:
    d.user(
        "Renew whichever of my books is due first.",
        "One of my loans is due soon. Find the one that is due soonest and renew it.",
        "Which loan runs out first? Extend that one.",
    )
    loan = d.call("list_loans")["loans"][0]
    answer = d.call("renew_loan", loan_id=loan["loan_id"])
    d.narrate("'{title}' is now due on {due}.", title=loan["title"], due=answer["due"])


@script("travel", "units", split="test")
def fare_in_my_currency(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    currency = d.pick([code for code in CURRENCIES if code != "EUR"])
    d.user(
        "What is the lowest fare {a} to {b} on {day} in {currency}? Fares are in euros (EUR).",
        "Find the cheapest flight from {a} to {b} on {day} and convert its price from EUR to {currency}.",
        a=flight["origin"],
        b=flight["destination"],
        day=d.spoken_day(flight["date"]),
        currency=currency,
    )
    found = d.call("search_flights", origin=flight["origin"], destination=flight["destination"], date=flight["date"])
    price = found["flights"][0]["price"]
    answer = d.call("convert_currency", amount=price, from_currency="EUR", to_currency=currency)
    d.narrate("{amount} {currency}.", amount=answer["amount"], currency=currency)


def _only(found: list[Any]) -> Any:
    if len(found) != 1:
        raise ValueError(f"{len(found)} are found where the script needs one")
    return found[0]
