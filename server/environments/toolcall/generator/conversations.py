"""Scripts in which the user speaks again after a call: follow-ups, corrections, choices, questions back."""

from rolloutgym.server.environments.toolcall.backends.units import CURRENCIES
from rolloutgym.server.environments.toolcall.generator.draft import Draft
from rolloutgym.server.environments.toolcall.generator.scripts import script
from rolloutgym.server.environments.toolcall.generator.worlds import days_from

THANKS = ("Thanks, that's all.", "Great, nothing else for now.", "Perfect. That was everything.", "Thank you, bye!")
WELCOME = ("You're welcome!", "Glad to help.", "Any time.")


@script("bank", executable=True)
def check_then_transfer(d: Draft) -> None:
    source, target = d.random.sample(sorted(d.state("bank")["accounts"]), 2)
    amount = d.pick((40, 75.5, 150, 220))
    d.user("What's on {id}?", "How much do I have on account {id}?", "First the balance of {id}, please.", id=source)
    balance = d.call("get_balance", account_id=source)["balance"]
    d.narrate("{id} holds {balance:.2f} euros.", id=source, balance=balance)
    d.user(
        "Good. Then move {amount} euros from there to {target}.",
        "Enough. Transfer {amount} euros of it to {target}.",
        "OK, send {amount} euros from it to {target}.",
        amount=amount,
        target=target,
    )
    done = d.call("transfer_money", from_account=source, to_account=target, amount=amount)
    d.narrate("Done. {left:.2f} euros are left on {id}.", left=done["new_balance"], id=source)


@script("bank", executable=True)
def transfer_without_target(d: Draft) -> None:
    source, target = d.random.sample(sorted(d.state("bank")["accounts"]), 2)
    amount = d.pick((35, 60, 125, 310.4))
    d.user(
        "Transfer {amount} euros from {source}, please.",
        "Please take {amount} euros from {source} and move them.",
        amount=amount,
        source=source,
    )
    d.no_call("To which account shall I transfer them?", "Gladly. Which account shall receive the money?")
    d.user("To {target}.", "{target}, please.", "Into {target}.", target=target)
    d.call("transfer_money", from_account=source, to_account=target, amount=amount)
    d.narrate("{amount} euros went from {source} to {target}.", amount=amount, source=source, target=target)
    d.user(*THANKS)
    d.no_call(*WELCOME)


@script("travel", executable=True)
def look_book_and_cancel(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    a, b, people = flight["origin"], flight["destination"], d.pick((2, 3))
    d.user(
        "Flights from {a} to {b} on {day}?",
        "What goes from {a} to {b} on {day}?",
        a=a,
        b=b,
        day=d.spoken_day(flight["date"]),
    )
    found = d.call("search_flights", origin=a, destination=b, date=flight["date"])["flights"]
    d.narrate("{list}.", list="; ".join(f"{f['flight_id']} for {f['price']} euros" for f in found))
    chosen = d.pick(found)["flight_id"]
    d.user("Book {id} for {people} people.", "We take {id}, {people} seats.", id=chosen, people=people)
    booked = d.call("book_flight", flight_id=chosen, passengers=people)
    d.narrate("Booked as {id}, {total} euros.", id=booked["booking_id"], total=booked["total"])
    if d.random.random() < 0.5:
        d.user("Oh no, wrong week. Cancel that booking again.", "My friend can't come. Please cancel the booking.")
        d.call("cancel_booking", booking_id=booked["booking_id"])
        d.narrate("{id} is cancelled.", id=booked["booking_id"])
    else:
        d.user(*THANKS)
        d.no_call(*WELCOME)


@script("shop", executable=True)
def browse_and_choose(d: Draft) -> None:
    _, product = d.pick_record("shop", "products")
    quantity = d.pick((2, 3, 5))
    d.user(
        "What do you have in the {category} category?",
        "Show me the {category} products.",
        category=product["category"],
    )
    found = d.call("search_products", category=product["category"])["products"]
    d.narrate("{list}.", list="; ".join(f"{p['name']} for {p['price']:.2f} euros" for p in found))
    chosen = d.pick(found)
    d.user(
        "I'll have the {name}, {quantity} of them.",
        "Order {quantity} pieces of the {name}, please.",
        name=chosen["name"],
        quantity=quantity,
    )
    order = d.call("place_order", product_id=chosen["product_id"], quantity=quantity)
    d.narrate("Order {id}, {total:.2f} euros.", id=order["order_id"], total=order["total"])
    d.user("How far is that order?", "And what's the state of that order now?")
    status = d.call("get_order", order_id=order["order_id"])["status"]
    d.narrate("It is {status}.", status=status)


@script("shop", executable=True)
def too_many_for_the_stock(d: Draft) -> None:
    id, product = d.pick_record("shop", "products")
    stock = product["stock"]
    wanted = stock + d.pick((3, 5, 12))
    d.user(
        "I need {many} pieces of {id}. Order them, please.",
        "Please order {many} of product {id} for our fair.",
        many=wanted,
        id=id,
    )
    d.call("place_order", product_id=id, quantity=wanted)
    d.narrate("There are only {stock} left, so the order was refused.", stock=stock)
    d.user("Then order {few} instead.", "All right, {few} will have to do.", "Make it {few}.", few=stock - 2)
    order = d.call("place_order", product_id=id, quantity=stock - 2)
    d.narrate("{few} are ordered: {order}.", few=stock - 2, order=order["order_id"])


@script("shop", executable=True)
def changed_my_mind(d: Draft) -> None:
    id, _ = d.pick_record("shop", "orders", status="processing")
    d.user("Has {id} been shipped yet?", "Is order {id} already on its way?", id=id)
    d.call("get_order", order_id=id)
    d.narrate("No, {id} is still processing.", id=id)
    d.user("Then cancel it, please.", "Good, then I'd like it cancelled.", "In that case: cancel.")
    d.call("cancel_order", order_id=id)
    d.narrate("{id} is cancelled.", id=id)


@script("calendar", executable=True)
def tidy_my_day(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    d.user("What's planned on {day}?", "Go through {day} with me: what is there?", day=d.spoken_day(event["date"]))
    found = d.call("list_events", date=event["date"])["events"]
    d.narrate("{list}.", list=", ".join(f"{e['title']} at {e['start']}" for e in found))
    gone = d.pick(found)
    d.user("Cancel '{title}'.", "'{title}' can go.", "Drop '{title}', please.", title=gone["title"])
    d.call("cancel_event", event_id=gone["event_id"])
    d.narrate("'{title}' is cancelled.", title=gone["title"])
    new = d.pick(("Long walk", "Tax papers", "Visit Lena"))
    d.user(
        "Put '{new}' in its place: same day and start, {minutes} minutes.",
        "Use the gap for '{new}', starting at the same time, {minutes} minutes long.",
        new=new,
        minutes=max(20, gone["duration_minutes"] - 10),
    )
    d.call(
        "create_event",
        title=new,
        date=gone["date"],
        start=gone["start"],
        duration_minutes=max(20, gone["duration_minutes"] - 10),
    )
    d.narrate("'{new}' starts at {start}.", new=new, start=gone["start"])


@script("calendar", executable=True)
def double_booking(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    title, later = d.pick(("Haircut", "Physio", "Bank visit", "Tea with Nuno")), days_from(event["date"], 7)
    d.user(
        "Enter '{title}' on {day} at {start}, {minutes} minutes.",
        "Please add '{title}' on {day} from {start} for {minutes} minutes.",
        title=title,
        day=d.spoken_day(event["date"]),
        start=event["start"],
        minutes=25,
    )
    d.call("create_event", title=title, date=event["date"], start=event["start"], duration_minutes=25)
    d.narrate("That overlaps '{other}', so it was refused.", other=event["title"])
    d.user("Then the same time on {day}.", "Put it on {day} instead, same time and length.", day=d.spoken_day(later))
    d.call("create_event", title=title, date=later, start=event["start"], duration_minutes=25)
    d.narrate("'{title}' is on {day}.", title=title, day=later)


@script("home", executable=True)
def evening_round(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("home")["rooms"]), 2)
    door, _ = d.pick_record("home", "doors")
    percent = d.pick((10, 25, 40))
    d.user("Dim the {room} to {percent} percent.", "{room} lights to {percent} percent.", room=one, percent=percent)
    d.call("set_lights", room=one, brightness=percent)
    d.narrate("Done.")
    d.user("Now lock the {door}.", "And the {door}: lock it, please.", door=door)
    d.call("set_door", door=door, locked=True)
    d.narrate("The {door} is locked.", door=door)
    d.user("How warm is it in the {room}?", "What's the temperature in the {room}?", room=two)
    found = d.call("get_room", room=two)
    d.must_show(found)
    d.narrate("{celsius} degrees.", celsius=found["celsius"])


@script("tickets", executable=True)
def triage(d: Draft) -> None:
    id, ticket = d.pick_record("tickets", "tickets", status="open")
    agent = d.pick(d.state("tickets")["agents"])
    d.user("Which tickets are open?", "Show me every open ticket.", "Let's go through the open tickets.")
    found = d.call("search_tickets", status="open")["tickets"]
    d.narrate("{list}.", list="; ".join(f"{t['ticket_id']}: {t['title']}" for t in found))
    d.user("Give '{title}' to {agent}.", "{agent} should take '{title}'.", title=ticket["title"], agent=agent)
    d.call("assign_ticket", ticket_id=id, agent=agent)
    d.narrate("{agent} has it.", agent=agent)
    d.user("And set it to waiting.", "Mark that one as waiting, too.")
    d.call("set_ticket_status", ticket_id=id, status="waiting")
    d.narrate("{id} is waiting.", id=id)


@script("weather")
def and_over_there(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("weather")["cities"]), 2)
    day = sorted(d.state("weather")["cities"][two])[1]
    d.user("What's the weather in {city} now?", "Look outside for me in {city}, please: weather now?", city=one)
    now = d.call("get_current_weather", city=one)
    d.narrate("{sky}, {celsius} degrees.", sky=now["sky"], celsius=now["celsius"])
    d.user("And in {city}?", "The same for {city}, please.", city=two)
    now = d.call("get_current_weather", city=two)
    d.narrate("{sky}, {celsius} degrees there.", sky=now["sky"], celsius=now["celsius"])
    d.user("How will it be there on {day}?", "What about {day}, same place?", day=d.spoken_day(day))
    then = d.call("get_forecast", city=two, date=day)
    d.narrate("{sky}, {celsius} degrees.", sky=then["sky"], celsius=then["celsius"])


@script("notes", executable=True)
def note_in_two_parts(d: Draft) -> None:
    title = d.pick(("Packing", "Shopping", "Questions for the doctor", "Ideas"))
    first, second = d.pick(
        (("Passport and charger.", "Rain jacket."), ("Rice, lemons.", "Dark chocolate."), ("How often?", "With food?"))
    )
    d.user(
        'New note "{title}" with the text "{text}"',
        'Please write a note. Title "{title}", text "{text}"',
        title=title,
        text=first,
    )
    id = d.call("create_note", title=title, text=first)["note_id"]
    d.narrate('"{title}" is saved.', title=title)
    d.user('Add one more line to it: "{line}"', 'Append "{line}"', line=second)
    d.call("append_to_note", note_id=id, line=second)
    d.narrate("Added.")
    d.user("Read the whole note back to me.", "What does the note say now? Read it, please.")
    text = d.call("read_note", note_id=id)["text"]
    d.narrate("{text}", text=text)


@script("restaurants", executable=True)
def more_guests_than_thought(d: Draft) -> None:
    id, _ = d.pick_record("restaurants", "restaurants")
    day = days_from(d.pick_record("restaurants", "reservations")[1]["date"], 2)
    time, people = d.pick(("18:15", "19:45", "21:00")), d.pick((2, 3, 4))
    d.user(
        "A table at {id} on {day}, {time}, for {people}.",
        "Reserve at restaurant {id}: {day}, {time}, {people} people.",
        id=id,
        day=d.spoken_day(day),
        time=d.spoken_clock(time),
        people=people,
    )
    made = d.call("book_table", restaurant_id=id, date=day, time=time, people=people)
    d.narrate("{name}, {people} people: {id}.", name=made["restaurant"], people=people, id=made["reservation_id"])
    d.user("We'll be {more} after all.", "Make that {more} guests, please.", more=people + 2)
    d.call("change_guests", reservation_id=made["reservation_id"], people=people + 2)
    d.narrate("Changed to {more}.", more=people + 2)


@script("units")
def one_more_currency(d: Draft) -> None:
    start, one, two = d.random.sample(CURRENCIES, 3)
    amount = d.pick((65, 130.5, 700))
    d.user("{amount} {start} in {one}?", "How many {one} are {amount} {start}?", amount=amount, start=start, one=one)
    answer = d.call("convert_currency", amount=amount, from_currency=start, to_currency=one)
    d.narrate("{value} {one}.", value=answer["amount"], one=one)
    d.user(
        "And the same amount of {start} in {two}?",
        "What would those {amount} {start} be in {two}?",
        amount=amount,
        start=start,
        two=two,
    )
    answer = d.call("convert_currency", amount=amount, from_currency=start, to_currency=two)
    d.narrate("{value} {two}.", value=answer["amount"], two=two)


@script("contacts", executable=True)
def whose_number(d: Draft) -> None:
    _, who = d.pick_record("contacts", "contacts")
    first = who["name"].split()[0]
    d.user("Hi, are you there?", "Good morning!", "Hello, I need a hand with my contacts.")
    d.chat("Yes. What can I do for you?", "Hello! How can I help?")
    d.user("What's {first}'s phone number?", "Look up the number of {first}, please.", first=first)
    found = d.call("find_contact", name=first)["contacts"][0]
    d.narrate("{name}: {phone}.", name=found["name"], phone=found["phone"])
    text = d.pick(("Are you free tonight?", "Shall I pick you up?", "Did the parcel arrive?"))
    d.user('Text them "{text}"', 'Send a message there: "{text}"', text=text)
    d.call("send_message", contact_id=found["contact_id"], text=text)
    d.narrate("Sent.")


@script("files", split="validation", executable=True)
def clean_the_folder(d: Draft) -> None:
    path = d.pick(sorted(d.state("files")["files"]))
    folder = path.rpartition("/")[0]
    d.user("What is in {folder}?", "List {folder} for me.", folder=folder)
    d.call("list_folder", path=folder)
    d.narrate("There is {path}, among others.", path=path)
    d.user("Delete {path}.", "{path} can be deleted.", path=path)
    d.call("delete_file", path=path)
    d.narrate("{path} is gone.", path=path)


@script("parcels", split="validation", executable=True)
def another_delivery_day(d: Draft) -> None:
    id, parcel = d.pick_record("parcels", "parcels", status="in transit")
    day = days_from(parcel["due"], d.pick((2, 3)))
    place = d.pick(("behind the bins", "with the neighbour at number 9", "in the shed"))
    d.user("Please deliver {id} on another day.", "I won't be in. Can {id} come some other day?", id=id)
    d.no_call("On which day shall it come?", "Of course. Which day suits you?")
    d.user("On {day}.", "{day} would be good.", day=d.spoken_day(day))
    d.call("change_delivery_day", parcel_id=id, date=day)
    d.narrate("It comes on {day}.", day=day)
    d.user('If I am out, leave it "{place}"', 'And the safe place is "{place}"', place=place)
    d.call("set_safe_place", parcel_id=id, place=place)
    d.narrate("The driver will know.")


@script("library", split="test", executable=True)
def back_to_the_library(d: Draft) -> None:
    d.user("What have I borrowed?", "Which books do I have at home from you?", "Show my loans.")
    found = d.call("list_loans")["loans"]
    d.narrate("{list}.", list="; ".join(f"{loan['title']}, due {loan['due']}" for loan in found))
    loan = d.pick(found)
    d.user("I'm returning '{title}'.", "Here is '{title}' back.", title=loan["title"])
    d.call("return_book", loan_id=loan["loan_id"])
    d.narrate("Thank you, '{title}' is back.", title=loan["title"])
    d.user("That's it for today.", "No more questions, goodbye.")
    d.no_call("See you soon.", "Enjoy your reading.")


@script("travel", split="test", executable=True)
def fewer_of_us_fly(d: Draft) -> None:
    id, booking = d.pick_record("travel", "bookings")
    people = booking["passengers"] + d.pick((1, 2))
    d.user("What have I booked under {id}?", "Show me booking {id}.", id=id)
    found = d.call("get_booking", booking_id=id)
    d.narrate("{a} to {b} for {n}.", a=found["origin"], b=found["destination"], n=found["passengers"])
    d.user("Cancel it.", "We need that one cancelled, please.")
    d.call("cancel_booking", booking_id=id)
    d.narrate("{id} is cancelled.", id=id)
    d.user(
        "Now book the same flight for {people} people.",
        "Take the same flight again, but {people} seats.",
        people=people,
    )
    booked = d.call("book_flight", flight_id=found["flight_id"], passengers=people)
    d.narrate("New booking: {id}.", id=booked["booking_id"])


@script("home", split="test", executable=True)
def which_room_please(d: Draft) -> None:
    room, _ = d.pick_record("home", "rooms")
    celsius = d.pick((17, 18.5, 21, 23))
    d.user("Set the heating to {celsius} degrees.", "I want it at {celsius} degrees.", celsius=celsius)
    d.no_call("In which room?", "Which room do you mean?")
    d.user("The {room}.", "In the {room}, please.", room=room)
    d.call("set_temperature", room=room, celsius=celsius)
    d.narrate("The {room} is set to {celsius} degrees.", room=room, celsius=celsius)
    d.user("Close the shutters there, too.", "And shut its shutters.")
    d.call("set_shutters", room=room, closed=True)
    d.narrate("They are closed.")
