"""Scripts with one call."""

from rolloutgym.server.environments.toolcall.backends.tickets import PRIORITIES, STATUSES
from rolloutgym.server.environments.toolcall.backends.units import CURRENCIES
from rolloutgym.server.environments.toolcall.generator.draft import Draft
from rolloutgym.server.environments.toolcall.generator.scripts import script
from rolloutgym.server.environments.toolcall.generator.worlds import days_from, some_day


@script("bank", executable=True)
def balance_of_account(d: Draft) -> None:
    id, _ = d.pick_record("bank", "accounts")
    d.user(
        "How much money is on account {id}?",
        "Could you tell me the balance of {id}, please?",
        "I'd like to know what's left on {id} right now.",
        "Balance of account {id}?",
        id=id,
    )
    answer = d.call("get_balance", account_id=id)
    d.must_show(answer)
    d.narrate(
        "There are {balance:.2f} euros on account {id}.",
        "Account {id} holds {balance:.2f} euros.",
        id=id,
        balance=answer["balance"],
    )


@script("bank", executable=True)
def lost_card(d: Draft) -> None:
    id, _ = d.pick_record("bank", "cards", status="active")
    d.user(
        "I think I left {id} on the train. Please freeze it at once.",
        "My card {id} is gone! Can you freeze it?",
        "Freeze card {id}, please. I can't find it anywhere.",
        "Someone may have stolen {id}. Block it by freezing it, please.",
        id=id,
    )
    d.call("set_card_status", card_id=id, status="frozen")
    d.narrate("Done: {id} is frozen. Nobody can pay with it now.", "{id} is frozen.", id=id)


@script("calendar")
def events_of_day(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    d.user(
        "What do I have on {day}?",
        "Show me my appointments for {day}.",
        "Is anything in my calendar on {day}?",
        "Read me the plan for {day}, please.",
        day=d.spoken_day(event["date"]),
    )
    answer = d.call("list_events", date=event["date"])
    d.narrate(
        "You have: {list}.",
        "That day holds: {list}.",
        list=", ".join(f"{e['title']} at {e['start']}" for e in answer["events"]),
    )


@script("calendar", executable=True)
def new_event(d: Draft) -> None:
    day = days_from(d.pick_record("calendar", "events")[1]["date"], d.pick((5, 6, 8, 12)))
    title = d.pick(("Vet visit", "Choir rehearsal", "Flat viewing", "Tax adviser", "Guitar lesson", "Blood test"))
    start, minutes = d.pick(("08:30", "11:00", "13:15", "16:45")), d.pick((20, 45, 75, 90))
    d.user(
        "Put '{title}' into my calendar on {day} at {start}, {minutes} minutes long.",
        "I need an event called '{title}' on {day}. It starts at {start} and takes {minutes} minutes.",
        "New entry for {day}: '{title}', from {start}, for {minutes} minutes.",
        "Please block {minutes} minutes on {day} from {start} for '{title}'.",
        title=title,
        day=d.spoken_day(day),
        start=d.spoken_clock(start),
        minutes=minutes,
    )
    d.call("create_event", title=title, date=day, start=start, duration_minutes=minutes)
    d.narrate("'{title}' is in your calendar.", "Done, '{title}' is planned.", title=title)


@script("shop")
def order_status(d: Draft) -> None:
    id, _ = d.pick_record("shop", "orders")
    d.user(
        "Where does order {id} stand?",
        "Any news about my order {id}?",
        "I ordered something a while ago, number {id}. What's its status?",
        "Please check {id} for me.",
        id=id,
    )
    answer = d.call("get_order", order_id=id)
    d.narrate(
        "Order {id} ({product}) is {status}.",
        "{status}: {product}, order {id}.",
        id=id,
        product=answer["product"],
        status=answer["status"],
    )


@script("shop", executable=True)
def send_it_back(d: Draft) -> None:
    id, _ = d.pick_record("shop", "orders", status="delivered")
    reason, why = d.pick(
        (
            ("damaged", "It arrived broken."),
            ("damaged", "The box was crushed and the thing inside is damaged."),
            ("wrong_item", "You sent me something that I did not order."),
            ("wrong_item", "It's the wrong item."),
            ("not_needed", "I simply don't need it any more."),
        )
    )
    d.user(
        "I want to return order {id}. {why}",
        "Please arrange a return for {id}. {why}",
        "{why} Send order {id} back, please.",
        id=id,
        why=why,
    )
    answer = d.call("return_order", order_id=id, reason=reason)
    d.narrate("The return is arranged; {refund:.2f} euros come back to you.", refund=answer["refund"])


@script("home", executable=True)
def light_level(d: Draft) -> None:
    room, _ = d.pick_record("home", "rooms")
    percent = d.pick((15, 25, 35, 45, 70, 85))
    d.user(
        "Set the lights in the {room} to {percent} percent.",
        "Can you dim the {room} to {percent}%?",
        "{room} lights at {percent} percent, please.",
        "I'd like the {room} at {percent}% brightness.",
        room=room,
        percent=percent,
    )
    d.call("set_lights", room=room, brightness=percent)
    d.narrate("The {room} is at {percent} percent.", "Done.", room=room, percent=percent)


@script("weather")
def forecast_for_city(d: Draft) -> None:
    city, days = d.pick_record("weather", "cities")
    day = d.pick(sorted(days)[:4])
    d.user(
        "What will the weather be like in {city} on {day}?",
        "I'm in {city} on {day}. What should I expect outside?",
        "Forecast for {city}, {day}, please.",
        "How cold or warm will {city} be on {day}?",
        city=city,
        day=d.spoken_day(day),
    )
    answer = d.call("get_forecast", city=city, date=day)
    d.narrate(
        "{sky}, {celsius} degrees, wind {wind} km/h.",
        sky=answer["sky"],
        celsius=answer["celsius"],
        wind=answer["wind_kmh"],
    )


@script("units")
def length_or_mass(d: Draft) -> None:
    start, end = d.pick(
        (("mile", "km"), ("foot", "m"), ("inch", "cm"), ("pound", "kg"), ("ounce", "g"), ("gallon", "l"))
    )
    value = d.pick((3, 7.5, 12, 26, 41.5, 88))
    plural = {
        "mile": "miles",
        "foot": "feet",
        "inch": "inches",
        "pound": "pounds",
        "ounce": "ounces",
        "gallon": "gallons",
    }
    d.user(
        "How much is {value} {unit} in {end}?",
        "Convert {value} {unit} to {end}, please.",
        "The instructions say {value} {unit}. What is that in {end}?",
        value=value,
        unit=plural[start],
        end=end,
    )
    answer = d.call("convert_units", value=value, from_unit=start, to_unit=end)
    d.narrate("That is {value} {end}.", "{value} {end}.", value=answer["value"], end=end)


@script("units")
def money_abroad(d: Draft) -> None:
    start, end = d.random.sample(CURRENCIES, 2)
    amount = d.pick((45, 120, 250.5, 999, 1500, 72.25))
    d.user(
        "What are {amount} {start} worth in {end}?",
        "Please convert {amount} {start} into {end}.",
        "A friend owes me {amount} {start}. How much is that in {end}?",
        amount=amount,
        start=start,
        end=end,
    )
    answer = d.call("convert_currency", amount=amount, from_currency=start, to_currency=end)
    d.narrate("That makes {amount} {end}.", "About {amount} {end} at today's rate.", amount=answer["amount"], end=end)


@script("tickets", executable=True)
def report_a_fault(d: Draft) -> None:
    title = d.pick(
        ("Coffee machine leaks", "Projector has no picture", "Badge reader is dead", "Mail bounces", "Fan is loud")
    )
    priority = d.pick(("low", "high", "urgent"))
    d.user(
        "Open a ticket titled '{title}' with {priority} priority.",
        "Please file '{title}' at the help desk. Priority: {priority}.",
        "I need a new {priority}-priority ticket, title '{title}'.",
        title=title,
        priority=priority,
    )
    answer = d.call("create_ticket", title=title, priority=priority)
    d.narrate("Ticket {id} is open.", "I opened {id} for it.", id=answer["ticket_id"])


@script("tickets")
def tickets_by_priority(d: Draft) -> None:
    status, priority = d.pick(STATUSES), d.pick(PRIORITIES)
    d.user(
        "Which {status} tickets have {priority} priority?",
        "List all {priority}-priority tickets that are {status}.",
        "Show me tickets with status {status} and priority {priority}.",
        status=status,
        priority=priority,
    )
    answer = d.call("search_tickets", status=status, priority=priority)
    found = ", ".join(ticket["ticket_id"] for ticket in answer["tickets"])
    d.narrate("Found: {found}.", found=found or "none")


@script("notes", executable=True)
def write_it_down(d: Draft) -> None:
    title, text = d.pick(
        (
            ("Locker", "The locker code is 4471."),
            ("Tyres", "Winter tyres are stored at Keller's garage."),
            ("Jam", "Two parts plums, one part sugar."),
            ("Allergies", "Wanda cannot eat walnuts."),
            ("Meter", "Reading in June was 20417."),
        )
    )
    d.user(
        'Make a note titled "{title}" that says "{text}"',
        'Write down under the title "{title}": "{text}"',
        'Please save this note. Title: "{title}". Text: "{text}"',
        title=title,
        text=text,
    )
    d.call("create_note", title=title, text=text)
    d.narrate('Noted as "{title}".', 'Saved under "{title}".', title=title)


@script("notes", executable=True, apart=("calendar",))
def remind_me(d: Draft) -> None:
    day, time = some_day(d.random), d.pick(("07:45", "12:30", "18:00", "21:15"))
    text = d.pick(("Water the plants", "Pay the rent", "Call Aunt Rosa", "Take out the glass", "Renew the passport"))
    d.user(
        "Remind me on {day} at {time}: '{text}'",
        "Set a reminder '{text}' for {day}, {time}.",
        "On {day} at {time} I want to be reminded of '{text}'",
        day=d.spoken_day(day),
        time=d.spoken_clock(time),
        text=text,
    )
    d.call("set_reminder", text=text, date=day, time=time)
    d.narrate("I'll remind you.", "The reminder is set.")


@script("files", executable=True)
def new_folder(d: Draft) -> None:
    parent = d.pick(d.state("files")["folders"])
    name = d.pick(("2026", "old", "shared", "to-sort", "autumn", "drafts"))
    d.user(
        "Create a folder called '{name}' inside {parent}.",
        "Make a new folder '{name}' in {parent}, please.",
        "I need a sub-folder of {parent} named '{name}'.",
        name=name,
        parent=parent,
    )
    d.call("create_folder", path=f"{parent}/{name}")
    d.narrate("The folder is there.", "Done: {path}.", path=f"{parent}/{name}")


@script("travel")
def flights_on_day(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    d.user(
        "Which flights go from {origin} to {destination} on {day}?",
        "I want to fly {origin} to {destination} on {day}. What is there?",
        "Show me the connections {origin}-{destination} for {day}.",
        origin=flight["origin"],
        destination=flight["destination"],
        day=d.spoken_day(flight["date"]),
    )
    answer = d.call("search_flights", origin=flight["origin"], destination=flight["destination"], date=flight["date"])
    d.narrate(
        "There are: {list}.",
        list="; ".join(f"{f['flight_id']} at {f['departs']} for {f['price']} euros" for f in answer["flights"]),
    )


@script("restaurants")
def where_to_eat(d: Draft) -> None:
    _, place = d.pick_record("restaurants", "restaurants")
    d.user(
        "Where can I eat {cuisine} food in {city}?",
        "Find {cuisine} restaurants in {city} for me.",
        "I fancy {cuisine} tonight and I'm in {city}. Any places?",
        cuisine="vegan" if place["cuisine"] == "vegan" else place["cuisine"].capitalize(),
        city=place["city"],
    )
    answer = d.call("search_restaurants", city=place["city"], cuisine=place["cuisine"])
    d.narrate("I found: {list}.", list=", ".join(f"{r['name']} ({r['stars']} stars)" for r in answer["restaurants"]))


@script("units")
def split_dinner(d: Draft) -> None:
    bill, tip, people = d.pick((84.5, 120, 61.2, 240)), d.pick((5, 8, 10, 12)), d.pick((2, 3, 4, 5))
    d.user(
        "We are {people} and the bill is {bill} euros. With {tip} percent tip, what does each of us pay?",
        "Split {bill} euros between {people} people, {tip}% tip on top.",
        "Dinner was {bill}. Add a tip of {tip} percent and divide it by {people}, please.",
        bill=bill,
        tip=tip,
        people=people,
    )
    answer = d.call("split_bill", bill=bill, tip_percent=tip, people=people)
    d.narrate(
        "Each pays {each:.2f} euros.",
        "{each:.2f} euros each, {total:.2f} in all.",
        each=answer["each"],
        total=answer["total"],
    )


@script("contacts", executable=True)
def new_acquaintance(d: Draft) -> None:
    name = d.pick(("Theo Marchetti", "Signe Halvorsen", "Pavel Horák", "Leila Nassar", "Oona Virtanen"))
    phone = f"0{d.random.randrange(20, 99)}-{d.random.randrange(100000, 999999)}"
    email = f"{name.split()[0].lower()}@example.com"
    d.user(
        "Add {name} to my contacts: phone {phone}, e-mail {email}.",
        "New contact, please. {name}, {phone}, {email}.",
        "Save {name}'s number {phone} and address {email}.",
        name=name,
        phone=phone,
        email=email,
    )
    d.call("add_contact", name=name, phone=phone, email=email)
    d.narrate("{name} is in your address book.", name=name)


@script("files", split="validation")
def what_does_it_say(d: Draft) -> None:
    path = d.pick(sorted(d.state("files")["files"]))
    d.user("What does {path} say?", "Open {path} for me.", "Read out the file {path}, please.", path=path)
    answer = d.call("read_file", path=path)
    d.narrate("It says: {text}", text=answer["text"])


@script("parcels", split="validation")
def where_is_my_parcel(d: Draft) -> None:
    id, _ = d.pick_record("parcels", "parcels")
    d.user("Where is parcel {id} now?", "Track {id} for me.", "When will {id} arrive?", id=id)
    answer = d.call("track_parcel", parcel_id=id)
    d.narrate(
        "{id}: {status}, {city}, due {due}.", id=id, status=answer["status"], city=answer["city"], due=answer["due"]
    )


@script("home", split="validation", executable=True)
def lock_up(d: Draft) -> None:
    door, _ = d.pick_record("home", "doors", locked=False) if not _all_locked(d) else d.pick_record("home", "doors")
    d.user(
        "Lock the {door}.",
        "Please make sure the {door} is locked.",
        "Can you lock the {door} for the night?",
        door=door,
    )
    d.call("set_door", door=door, locked=True)
    d.narrate("The {door} is locked.", door=door)


def _all_locked(d: Draft) -> bool:
    return all(door["locked"] for door in d.state("home")["doors"].values())


@script("library", split="test")
def books_by_author(d: Draft) -> None:
    _, book = d.pick_record("library", "books")
    d.user(
        "Which books by {author} do you have?",
        "Anything by {author} in the library?",
        "I'm looking for {author}.",
        author=book["author"],
    )
    answer = d.call("search_books", author=book["author"])
    d.narrate("We have: {list}.", list=", ".join(found["title"] for found in answer["books"]))


@script("restaurants", split="test", executable=True)
def call_off_dinner(d: Draft) -> None:
    id, _ = d.pick_record("restaurants", "reservations")
    d.user(
        "We can't make it. Cancel reservation {id}.",
        "Please drop our table, number {id}.",
        "{id} is off, cancel it.",
        id=id,
    )
    d.call("cancel_table", reservation_id=id)
    d.narrate("Reservation {id} is cancelled.", id=id)


@script("files", split="test", executable=True)
def rename_file(d: Draft) -> None:
    path = d.pick(sorted(d.state("files")["files"]))
    new = f"{path.rpartition('/')[0]}/{d.pick(('final', 'archive', 'copy-a', 'winter'))}.txt"
    d.user(
        "Rename {path} to {new}.",
        "{path} shall be called {new} from now on.",
        "Move {path} to {new}.",
        path=path,
        new=new,
    )
    d.call("move_file", source=path, destination=new)
    d.narrate("It is now {new}.", new=new)
