"""Scripts in which the right turn has no call: nothing fits, something is missing, or nothing is asked."""

from rolloutgym.server.environments.toolcall.generator.draft import Draft
from rolloutgym.server.environments.toolcall.generator.scripts import script
from rolloutgym.server.environments.toolcall.generator.worlds import CITIES, days_from


@script("calendar", variants=6)
def nothing_fits(d: Draft) -> None:
    d.user(
        "Can you knit me a scarf?",
        "Please paint the garden fence green.",
        "Order a taxi to the station for me.",
        "Tune my piano this afternoon, please.",
        "Sing me to sleep.",
        "Walk the dog, would you?",
    )
    d.no_call("I'm afraid I can't do that.", "That is beyond what I can do here, sorry.")


@script("units", variants=6, apart=("library",))
def from_general_knowledge(d: Draft) -> None:
    d.user(
        "Why is the sky blue?",
        "Who wrote Don Quixote?",
        "What is the opposite of 'scarce'?",
        "How many legs does a spider have?",
        "Which planet is closest to the sun?",
        "Explain in one sentence what yeast does in dough.",
    )
    d.no_call("Let me answer that from what I know.")


@script("shop")
def what_can_you_do(d: Draft) -> None:
    d.user(
        "Before we start: what kinds of things can you do here?",
        "What can I ask you for?",
        "I'm new. In a few words, what do you help with?",
        "Are you able to look after orders, in general?",
        "Which tasks can you take over for me? Just tell me, don't do anything yet.",
    )
    d.no_call("I can look after products and orders, among other things.")


@script("bank")
def amount_is_missing(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("bank")["accounts"]), 2)
    d.user(
        "Move some money from {one} to {two}.",
        "I'd like to transfer something from {one} to {two}, please.",
        "Please make a transfer: {one} to {two}.",
        one=one,
        two=two,
    )
    d.no_call("How much shall I transfer?", "Which amount would you like to move?")


@script("weather")
def city_is_missing(d: Draft) -> None:
    _, days = d.pick_record("weather", "cities")
    d.user(
        "What will the weather be on {day}?",
        "Will it rain on {day}?",
        "Do I need a coat on {day}?",
        day=d.spoken_day(d.pick(sorted(days)[:4])),
    )
    d.no_call("For which city?", "Where will you be?")


@script("travel")
def travel_day_is_missing(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    d.user(
        "Find me a flight from {a} to {b}.",
        "I'd like to fly from {a} to {b}. What is there?",
        "Flights {a} to {b}, please.",
        a=flight["origin"],
        b=flight["destination"],
    )
    d.no_call("On which day would you like to fly?", "Which day?")


@script("calendar")
def start_is_missing(d: Draft) -> None:
    _, event = d.pick_record("calendar", "events")
    d.user(
        "Add '{title}' to my calendar on {day}.",
        "Put '{title}' down for {day}, please.",
        title=d.pick(("Dance class", "Garage visit", "Open house")),
        day=d.spoken_day(days_from(event["date"], 4)),
    )
    d.no_call("At what time does it start?", "When does it begin?")


@script("shop", without=("return_order",))
def cannot_send_back(d: Draft) -> None:
    id, _ = d.pick_record("shop", "orders", status="delivered")
    d.user(
        "Order {id} came damaged yesterday. Send it back for me.",
        "Please return the delivered order {id}; it's the wrong colour.",
        "I want my money back for {id}, it was delivered broken. Start the return.",
        id=id,
    )
    d.no_call("I have no way to return orders, I'm sorry. Please contact the shop.")


@script("tickets", variants=3, without=("create_ticket",))
def cannot_open_ticket(d: Draft) -> None:
    d.user(
        "Open a new ticket titled 'Lamp is broken' with low priority.",
        "File a new high-priority ticket: 'No hot water in the kitchen'.",
        "I need a fresh ticket called 'Chair has lost a wheel'.",
    )
    d.no_call("I can't open new tickets here; I can only look after existing ones.")


@script("bank")
def better_leave_it(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("bank")["accounts"]), 2)
    d.user("Transfer {amount} euros from {one} to {two}.", amount=d.pick((300, 450, 800)), one=one, two=two)
    d.chat("That is a lot of money. Shall I really go ahead?", "Just to be sure: shall I do it now?")
    d.user("No, leave it.", "Wait, no. Don't.", "Let me think about it first. Don't do it.", "No. I changed my mind.")
    d.no_call("All right, I left everything as it is.", "Fine, nothing was transferred.")


@script("home")
def just_saying_thanks(d: Draft) -> None:
    d.user("Is the service running today?", "Are you online?")
    d.chat("Yes, everything works.", "Yes, I'm here.")
    d.user("Good to know, thanks!", "Lovely. Have a nice day!", "Thank you, I only wanted to check that.")
    d.no_call("You're welcome!", "Have a good day.")


@script("shop", variants=3)
def in_principle(d: Draft) -> None:
    id, _ = d.pick_record("shop", "orders", status="processing")
    d.user(
        "What would you need from me to cancel an order? Don't cancel anything yet.",
        "Suppose I wanted {id} cancelled one day: could you do that? Don't touch it now, just say yes or no.",
        "Without doing anything: can orders be cancelled through you?",
        id=id,
    )
    d.no_call("Yes: tell me the number of the order, and I can cancel it if it is still processing.")


@script("contacts", split="validation")
def words_are_missing(d: Draft) -> None:
    id, who = d.pick_record("contacts", "contacts")
    d.user(
        "Send a message to {id}.",
        "I'd like to write to {name} ({id}).",
        "Text {id} for me, please.",
        id=id,
        name=who["name"],
    )
    d.no_call("What shall the message say?", "And the text?")


@script("parcels", split="validation", variants=4, apart=("notes",))
def a_poem_please(d: Draft) -> None:
    d.user(
        "Write two lines of verse about autumn.",
        "Tell me a joke about snails.",
        "Say 'good evening' in Italian.",
        "Give me three words that rhyme with 'light'.",
    )
    d.no_call("With pleasure.")


@script("notes", split="validation", apart=("weather",))
def no_tool_for_weather(d: Draft) -> None:
    city = d.pick(CITIES)
    d.user("How cold is it in {city} right now?", "Will it snow in {city} tonight?", city=city)
    d.no_call("I can't look up the weather here.")


@script("restaurants", split="test")
def guests_are_missing(d: Draft) -> None:
    id, _ = d.pick_record("restaurants", "restaurants")
    day = days_from(d.pick_record("restaurants", "reservations")[1]["date"], 1)
    d.user(
        "Book a table at {id} on {day} at 19:00.",
        "Reserve something at {id} for {day}, 19:00.",
        id=id,
        day=d.spoken_day(day),
    )
    d.no_call("For how many people?", "How many will you be?")


@script("files", split="test", without=("delete_file", "move_file"))
def cannot_delete(d: Draft) -> None:
    path = d.pick(sorted(d.state("files")["files"]))
    d.user("Delete {path}.", "Get rid of the file {path} for good.", "Erase {path}, please.", path=path)
    d.no_call("I'm not able to delete files, sorry.")


@script("library", split="test", variants=4, apart=("travel",))
def not_a_travel_agent(d: Draft) -> None:
    d.user(
        "Book me a hotel in Porto for two nights.",
        "Rent me a bicycle for Sunday.",
        "Get me a window seat on tomorrow's train.",
        "Two tickets for the opera, please.",
    )
    d.no_call("That I cannot do; I look after library books.")
