"""Scripts with several independent calls at once, in any order."""

from rolloutgym.server.environments.toolcall.backends.restaurants import CUISINES
from rolloutgym.server.environments.toolcall.backends.units import CURRENCIES
from rolloutgym.server.environments.toolcall.generator.draft import Draft
from rolloutgym.server.environments.toolcall.generator.scripts import script
from rolloutgym.server.environments.toolcall.generator.worlds import days_from, some_day


@script("weather")
def two_cities_now(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("weather")["cities"]), 2)
    d.user(
        "Is it warmer in {one} or in {two} at the moment?",
        "Compare the weather in {one} and {two} right now.",
        "What's it like outside in {one}, and in {two}?",
        one=one,
        two=two,
    )
    answers = d.calls(("get_current_weather", {"city": one}), ("get_current_weather", {"city": two}))
    d.narrate(
        "{one}: {a} degrees. {two}: {b} degrees.", one=one, two=two, a=answers[0]["celsius"], b=answers[1]["celsius"]
    )


@script("bank", executable=True)
def all_my_balances(d: Draft) -> None:
    ids = d.random.sample(sorted(d.state("bank")["accounts"]), d.pick((2, 3)))
    d.user(
        "What are the balances of {ids}?",
        "Tell me how much is on each of these accounts: {ids}.",
        "I need the current balances of {ids}, all of them.",
        ids=_listed(ids),
    )
    answers = d.calls(*(("get_balance", {"account_id": id}) for id in ids))
    d.must_show(*answers)
    d.narrate("{list}.", list="; ".join(f"{a['account_id']}: {a['balance']:.2f} euros" for a in answers))


@script("home", executable=True)
def two_rooms_of_light(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("home")["rooms"]), 2)
    low, high = d.pick((5, 10, 30)), d.pick((55, 75, 90))
    d.user(
        "Set the {one} lights to {low} percent and those of the {two} to {high} percent.",
        "{one}: {low}% light. {two}: {high}%. Please do both.",
        "I want {low} percent brightness in the {one} and {high} in the {two}.",
        one=one,
        two=two,
        low=low,
        high=high,
    )
    d.calls(("set_lights", {"room": one, "brightness": low}), ("set_lights", {"room": two, "brightness": high}))
    d.narrate("Both are set.", "Done in both rooms.")


@script("shop")
def two_orders(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("shop")["orders"]), 2)
    d.user(
        "How far are my orders {one} and {two}?",
        "Please look up both {one} and {two}.",
        "Status of {one} and of {two}, please.",
        one=one,
        two=two,
    )
    answers = d.calls(("get_order", {"order_id": one}), ("get_order", {"order_id": two}))
    d.narrate("{one} is {a}, {two} is {b}.", one=one, two=two, a=answers[0]["status"], b=answers[1]["status"])


@script("units")
def one_amount_two_currencies(d: Draft) -> None:
    start, one, two = d.random.sample(CURRENCIES, 3)
    amount = d.pick((80, 150, 410.5, 1000))
    d.user(
        "What are {amount} {start} in {one} and in {two}?",
        "Convert {amount} {start} twice: once into {one}, once into {two}.",
        "Give me {amount} {start} both as {one} and as {two}.",
        amount=amount,
        start=start,
        one=one,
        two=two,
    )
    answers = d.calls(
        *(("convert_currency", {"amount": amount, "from_currency": start, "to_currency": end}) for end in (one, two))
    )
    d.narrate("{a} {one} or {b} {two}.", one=one, two=two, a=answers[0]["amount"], b=answers[1]["amount"])


@script("home", executable=True)
def cosy_room(d: Draft) -> None:
    room, _ = d.pick_record("home", "rooms")
    celsius, closed = d.pick((19, 20.5, 22, 24)), d.pick((True, False))
    d.user(
        "Heat the {room} to {celsius} degrees and {do} the shutters there.",
        "{room}: {celsius} degrees, and {do} its shutters, please.",
        "Please {do} the shutters in the {room} and set its heating to {celsius} degrees.",
        room=room,
        celsius=celsius,
        do="close" if closed else "open",
    )
    d.calls(("set_temperature", {"room": room, "celsius": celsius}), ("set_shutters", {"room": room, "closed": closed}))
    d.narrate("The {room} is ready.", room=room)


@script("notes", executable=True, apart=("calendar",))
def two_reminders(d: Draft) -> None:
    day = some_day(d.random)
    one, two = d.random.sample(("Feed the cat", "Close the windows", "Print the tickets", "Charge the bike"), 2)
    d.user(
        "Two reminders for {day}, please: '{one}' at 08:00 and '{two}' at 19:30.",
        "Remind me of '{one}' at 08:00 and of '{two}' at 19:30, both on {day}.",
        day=d.spoken_day(day),
        one=one,
        two=two,
    )
    d.calls(
        ("set_reminder", {"text": one, "date": day, "time": "08:00"}),
        ("set_reminder", {"text": two, "date": day, "time": "19:30"}),
    )
    d.narrate("Both reminders are set.")


@script("travel")
def there_and_back(d: Draft) -> None:
    _, flight = d.pick_record("travel", "flights")
    back = days_from(flight["date"], d.pick((2, 4, 7)))
    d.user(
        "I fly from {a} to {b} on {out} and back on {back}. Look up both ways.",
        "Search flights {a} to {b} for {out}, and {b} to {a} for {back}.",
        a=flight["origin"],
        b=flight["destination"],
        out=d.spoken_day(flight["date"]),
        back=d.spoken_day(back),
    )
    out, home = flight["origin"], flight["destination"]
    answers = d.calls(
        ("search_flights", {"origin": out, "destination": home, "date": flight["date"]}),
        ("search_flights", {"origin": home, "destination": out, "date": back}),
    )
    d.narrate("{there} flights there, {back} back.", there=len(answers[0]["flights"]), back=len(answers[1]["flights"]))


@script("parcels", split="validation")
def two_parcels(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("parcels")["parcels"]), 2)
    d.user("Where are {one} and {two}?", "Track both {one} and {two}.", one=one, two=two)
    answers = d.calls(("track_parcel", {"parcel_id": one}), ("track_parcel", {"parcel_id": two}))
    d.narrate("{one}: {a}. {two}: {b}.", one=one, two=two, a=answers[0]["status"], b=answers[1]["status"])


@script("library", split="test", executable=True)
def renew_both(d: Draft) -> None:
    one, two = d.random.sample(sorted(d.state("library")["loans"]), 2)
    d.user("Renew my loans {one} and {two}.", "Can I keep {one} and {two} longer? Renew both.", one=one, two=two)
    answers = d.calls(("renew_loan", {"loan_id": one}), ("renew_loan", {"loan_id": two}))
    d.narrate("{one} is due {a}, {two} is due {b}.", one=one, two=two, a=answers[0]["due"], b=answers[1]["due"])


@script("restaurants", split="test")
def two_kitchens(d: Draft) -> None:
    city = d.pick_record("restaurants", "restaurants")[1]["city"]
    one, two = d.random.sample(CUISINES, 2)
    d.user(
        "In {city}, which places serve {one} food and which serve {two} food?",
        "Compare the {one} and the {two} restaurants of {city}.",
        city=city,
        one=one if one == "vegan" else one.capitalize(),
        two=two if two == "vegan" else two.capitalize(),
    )
    answers = d.calls(*(("search_restaurants", {"city": city, "cuisine": cuisine}) for cuisine in (one, two)))
    d.narrate(
        "{a} of the first kind, {b} of the second.", a=len(answers[0]["restaurants"]), b=len(answers[1]["restaurants"])
    )


def _listed(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1]
