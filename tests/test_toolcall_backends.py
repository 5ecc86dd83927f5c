"""The executable tools: what they answer, and that nothing a model writes raises, escapes or grows."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.toolcall import backends
from rolloutgym.server.environments.toolcall.backends import DOMAINS, World, answer_text, make, tool_specs
from rolloutgym.server.environments.toolcall.backends.domain import MAX_RECORDS
from rolloutgym.server.environments.toolcall.backends.schema import InvalidArguments, checked
from rolloutgym.server.environments.toolcall.generator.worlds import initial_state
from rolloutgym.server.environments.toolcall.items import BackendState

SPECS = {spec.function.name: spec.function.parameters for spec in tool_specs(DOMAINS)}
WHOLE_WORLD: dict[str, JsonValue] = {domain: initial_state(domain, seeded_random(7, domain)) for domain in DOMAINS}

EVENT = {"title": "Dentist", "date": "2026-03-02", "start": "10:00", "minutes": 60}
ACCOUNTS = {"A": {"kind": "checking", "cents": 10_050}, "B": {"kind": "savings", "cents": 0}}
ROOM: dict[str, JsonValue] = {"celsius": 20, "brightness": 0, "shutters_closed": False}
PRODUCT = {"name": "kite", "category": "toys", "cents": 1250, "stock": 3}
FLIGHT = {"origin": "OSL", "destination": "LIS", "date": "2026-03-02", "departs": "10:05", "euros": 90, "seats": 4}


def world(**initial: Any) -> World:
    return World(initial)


def play(state: Mapping[str, Any], *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers of calls made one after the other."""
    backend = World(state)
    return [backend.call(name, arguments) for name, arguments in calls]


# ---- the set --------------------------------------------------------------------------------------------------------


def test_enough_tools_in_enough_domains_each_with_a_valid_schema() -> None:
    assert len(DOMAINS) >= 6
    assert len(SPECS) == sum(len(domain.specs) for domain in DOMAINS.values()) >= 24
    for spec in tool_specs(DOMAINS):
        jsonschema.Draft202012Validator.check_schema(spec.function.parameters)
        assert spec.function.description
        properties: Any = spec.function.parameters["properties"]
        assert all(parameter["description"] for parameter in properties.values())


# ---- what tools do --------------------------------------------------------------------------------------------------


def test_calendar() -> None:
    state = {"calendar": {"events": {"e": EVENT}}}
    listed, before, busy, made, moved, free, gone, again = play(
        state,
        ("list_events", {"date": "2026-03-02"}),
        ("create_event", {"title": "Tea", "date": "2026-03-02", "start": "09:40", "duration_minutes": 20}),
        ("create_event", {"title": "Lunch", "date": "2026-03-02", "start": "10:59"}),
        ("create_event", {"title": "Lunch", "date": "2026-03-02", "start": "11:00", "duration_minutes": 30}),
        ("reschedule_event", {"event_id": "e", "date": "2026-03-02", "start": "08:40"}),
        ("find_free_time", {"date": "2026-03-02", "duration_minutes": 30}),
        ("cancel_event", {"event_id": "e"}),
        ("cancel_event", {"event_id": "e"}),
    )
    assert listed["events"][0]["event_id"] == "e"
    assert before["status"] == "created"  # it ends when the next one begins
    assert busy == {"error": "overlaps 'Dentist' at 10:00"}
    assert made["status"] == "created"
    assert (moved["start"], moved["duration_minutes"]) == ("08:40", 60)
    assert free["start"] == "10:00"
    assert gone["status"] == "cancelled"
    assert again == {"error": "there is no event 'e'"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"date": "2026-02-30"}, "no day 2026-02-30"),
        ({"start": "24:00"}, "no time of day 24:00"),
        ({"start": "23:30"}, "ends on the day"),
        ({"date": "tomorrow"}, "'date' must look like"),
        ({"duration_minutes": 0}, "'duration_minutes' must be from 5 to 720"),
        ({"duration_minutes": 30.5}, "whole number"),
        ({"duration_minutes": True}, "whole number"),
        ({"duration_minutes": "30"}, "whole number"),
        ({"title": ""}, "1 to 200 characters"),
        ({"title": None}, "must be a string"),
        ({"colour": "red"}, "unexpected argument 'colour'"),
    ],
)
def test_bad_arguments_are_answers(arguments: dict[str, Any], error: str) -> None:
    backend = world(calendar={"events": {}})
    before = backend.state_hash()
    good: dict[str, Any] = {"title": "Walk", "date": "2026-03-02", "start": "10:00", "duration_minutes": 60}
    answer: Any = backend.call("create_event", {**good, **arguments})
    assert error in answer["error"]
    assert backend.state_hash() == before
    assert "error" not in backend.call("create_event", good)  # type: ignore[operator]


def test_missing_argument() -> None:
    assert world(calendar={"events": {}}).call("list_events", {}) == {"error": "missing argument 'date'"}


def test_bank_keeps_cents() -> None:
    transfer = {"from_account": "A", "to_account": "B"}
    answers = play(
        {"bank": {"accounts": ACCOUNTS, "cards": {}, "transactions": {}}},
        ("transfer_money", {**transfer, "amount": 0.1}),
        ("transfer_money", {**transfer, "amount": 0.2}),
        ("transfer_money", {**transfer, "amount": 100.2}),
        ("transfer_money", {**transfer, "amount": 0.01}),
        ("transfer_money", {**transfer, "amount": 0.001}),
        ("transfer_money", {**transfer, "amount": 1.005}),
        ("transfer_money", {"from_account": "A", "to_account": "A", "amount": 1}),
        ("get_balance", {"account_id": "B"}),
    )
    assert [answer.get("new_balance") for answer in answers[:3]] == [100.4, 100.2, 0.0]
    assert answers[3] == {"error": "account A holds only 0.00"}
    assert "from 0.01" in answers[4]["error"]
    assert answers[5] == {"error": "an amount has at most two decimals"}
    assert answers[6] == {"error": "the two accounts are the same"}
    assert answers[7]["balance"] == 100.5


def test_shop_stock_and_order_states() -> None:
    state = {
        "shop": {"products": {"P": PRODUCT}, "orders": {"O": {"product_id": "P", "quantity": 2, "status": "delivered"}}}
    }
    too_many, order, stock, cancelled, returned, twice = play(
        state,
        ("place_order", {"product_id": "P", "quantity": 4}),
        ("place_order", {"product_id": "P", "quantity": 3.0}),
        ("get_product", {"product_id": "P"}),
        ("cancel_order", {"order_id": "O"}),
        ("return_order", {"order_id": "O", "reason": "damaged"}),
        ("return_order", {"order_id": "O", "reason": "damaged"}),
    )
    assert too_many == {"error": "only 3 left of 'kite'"}
    assert order["total"] == 37.5
    assert stock["stock"] == 0
    assert "can no longer be cancelled" in cancelled["error"]
    assert returned["refund"] == 25.0
    assert "only a delivered one" in twice["error"]


def test_travel_seats_come_back() -> None:
    backend = world(travel={"flights": {"F": FLIGHT}, "bookings": {}})
    before = backend.state_hash()
    booked: Any = backend.call("book_flight", {"flight_id": "F", "passengers": 4})
    full: Any = backend.call("book_flight", {"flight_id": "F"})
    assert full == {"error": "flight F has only 0 seats left"}
    backend.call("cancel_booking", {"booking_id": booked["booking_id"]})
    assert backend.state_hash() == before


@pytest.mark.parametrize(
    "path", ["relative", "/", "/a//b", "/a/", "/../etc/passwd", "/a/./b", "/..", "/a/.", "/missing/file", "/a", "/a/x"]
)
def test_file_paths_stay_in_the_tree(path: str) -> None:
    backend = world(files={"files": {"/a/x": "text"}, "folders": ["/a"]})
    answer: Any = backend.call("write_file", {"path": path, "text": "y"})
    assert set(answer) == {"error"}


def test_files() -> None:
    state = {"files": {"files": {"/a/x": "text"}, "folders": ["/a"]}}
    root, folder, _, moved, inside, missing = play(
        state,
        ("list_folder", {"path": "/"}),
        ("create_folder", {"path": "/a/b"}),
        ("list_folder", {"path": "/a/"}),
        ("move_file", {"source": "/a/x", "destination": "/a/b/y"}),
        ("list_folder", {"path": "/a/b"}),
        ("read_file", {"path": "/a/x"}),
    )
    assert root == {"path": "/", "folders": ["/a"], "files": []}
    assert folder["status"] == "created"
    assert moved["status"] == "moved"
    assert inside["files"] == ["/a/b/y"]
    assert missing == {"error": "there is no file '/a/x'"}


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("convert_units", (2, "mile", "km"), {"value": 3.2187, "unit": "km"}),
        ("convert_units", (2, "mile", "kg"), {"error": "mile cannot be converted to kg"}),
        ("convert_currency", (10, "USD", "EUR"), {"amount": 5.0, "currency": "EUR"}),
        ("split_bill", (90, 10, 3), {"total": 99.0, "each": 33.0}),
        ("quote_postage", (3, "standard"), {"speed": "standard", "price": 8.26}),
    ],
)
def test_arithmetic(tool: str, arguments: tuple[Any, ...], answer: dict[str, Any]) -> None:
    properties: Any = SPECS[tool]["properties"]
    backend = world(units={"rates": {"EUR": 1.0, "USD": 2.0}}, parcels={"parcels": {}})
    assert backend.call(tool, dict(zip(properties, arguments, strict=True))) == answer


# ---- hostile callers ------------------------------------------------------------------------------------------------


METHODS_AND_ATTRIBUTES = (
    "call",
    "state",
    "state_hash",
    "records",
    "get",
    "add",
    "_on",
    "__init__",
    "__class__",
    "specs",
)


@pytest.mark.parametrize("name", ["", *METHODS_AND_ATTRIBUTES, "x" * 10_000, "\ud800"])
def test_only_tools_can_be_called(name: str) -> None:
    answer: Any = World(WHOLE_WORLD).call(name, {})
    assert answer["error"].startswith("there is no tool")
    assert len(answer_text(answer).encode()) < 200  # cut short, and valid Unicode


HOSTILE: tuple[JsonValue, ...] = (
    None, True, -1, 0, 10**400, -(10**400), 1e308, float("inf"), float("nan"), "", "\0", "\ud800", "x" * 1_000_000,
    "../../etc/passwd", "{0.__class__}", "%s%n", [], [[]], ["x"] * 100_000, {}, {"a": {"b": {}}}, "__class__", "٣",
)  # fmt: skip


@pytest.mark.parametrize("tool", SPECS)
def test_no_argument_harms(tool: str) -> None:
    backend = World(WHOLE_WORLD)
    before = backend.state_hash()
    properties: Any = SPECS[tool]["properties"]
    for value in HOSTILE:
        for name in (*properties, "self", "__class__"):
            arguments = dict.fromkeys(properties, "x") | {name: value}
            answer: Any = backend.call(tool, arguments)
            assert len(answer_text(answer).encode()) < 5000
            if "error" in answer:
                assert backend.state_hash() == before
            before = backend.state_hash()


familiar = st.sampled_from(["2026-03-02", "10:00", "EUR", "open"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | familiar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def any_call(draw: st.DrawFn) -> tuple[str, dict[str, JsonValue]]:
    tool = draw(st.sampled_from(sorted(SPECS)))
    properties: Any = SPECS[tool]["properties"]
    arguments: dict[str, JsonValue] = {}
    for name, schema in properties.items():
        fitting = st.sampled_from(schema["enum"]) if "enum" in schema else json_values
        if schema["type"] in ("integer", "number"):
            fitting = fitting | st.integers(1, 20)
        if draw(st.booleans()) or name in SPECS[tool]["required"]:  # type: ignore[operator]
            arguments[name] = draw(fitting)
    return tool, arguments


@patient
@given(st.lists(any_call(), max_size=6))
def test_calls_never_raise_and_refusals_change_nothing(calls: list[tuple[str, dict[str, JsonValue]]]) -> None:
    one, two = World(WHOLE_WORLD), World(WHOLE_WORLD)
    for tool, arguments in calls:
        before = one.state_hash()
        answer: Any = one.call(tool, arguments)
        assert two.call(tool, arguments) == answer
        json.loads(answer_text(answer), parse_constant=pytest.fail)
        answer_text(answer).encode()
        if "error" in answer:
            assert one.state_hash() == before
    assert one.state_hash() == two.state_hash()


@patient
@given(any_call())
def test_what_is_accepted_fits_the_schema_that_the_model_is_shown(call: tuple[str, dict[str, JsonValue]]) -> None:
    tool, arguments = call
    try:
        given_arguments = checked(arguments, SPECS[tool])
    except InvalidArguments:
        return
    jsonschema.validate(given_arguments, SPECS[tool])


def test_state_stays_small() -> None:
    backend = world(
        notes={"notes": {"n": {"title": "t", "text": ""}}, "reminders": {}}, files={"files": {}, "folders": []}
    )
    for number in range(MAX_RECORDS + 50):
        backend.call("create_note", {"title": f"t{number}", "text": "x" * 2000})
        backend.call("append_to_note", {"note_id": "n", "line": "x" * 500})
        backend.call("write_file", {"path": f"/{number}", "text": "x" * 2000})
        backend.call("create_folder", {"path": f"/folder{number}"})
    full = {"error": f"there can be no more than {MAX_RECORDS} of these"}
    assert backend.call("create_note", {"title": "one", "text": "more"}) == full
    assert backend.call("append_to_note", {"note_id": "n", "line": "x" * 500}) == {"error": "the note is full"}
    assert len(json.dumps(backend.state())) < 1_000_000


# ---- states ---------------------------------------------------------------------------------------------------------


def test_independent_calls_commute() -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("create_event", {"title": "One", "date": "2030-01-01", "start": "09:00"}),
        ("create_event", {"title": "Two", "date": "2030-01-02", "start": "09:00"}),
        ("set_reminder", {"text": "x", "date": "2030-01-01", "time": "10:00"}),
        ("set_reminder", {"text": "y", "date": "2030-01-01", "time": "10:00"}),
        ("create_folder", {"path": "/zz"}),
        ("create_folder", {"path": "/aa"}),
    ]
    one, two = World(WHOLE_WORLD), World(WHOLE_WORLD)
    for name, arguments in calls:
        assert "error" not in one.call(name, arguments)  # type: ignore[operator]
    for name, arguments in reversed(calls):
        two.call(name, arguments)
    assert one.state_hash() == two.state_hash() != World(WHOLE_WORLD).state_hash()


@pytest.mark.parametrize(("tool", "argument"), [("set_temperature", "celsius"), ("set_lights", "brightness")])
def test_one_number_in_two_spellings_leaves_one_state(tool: str, argument: str) -> None:
    hashes = set()
    for value in (21, 21.0):
        backend = world(home={"rooms": {"study": ROOM}, "doors": {}})
        backend.call(tool, {"room": "study", argument: value})
        hashes.add(backend.state_hash())
    assert len(hashes) == 1


def test_the_same_record_twice_is_two_records() -> None:
    backend = world(notes={"notes": {}, "reminders": {}})
    first: Any = backend.call("create_note", {"title": "a", "text": "b"})
    once = backend.state_hash()
    second: Any = backend.call("create_note", {"title": "a", "text": "b"})
    assert first["note_id"] != second["note_id"]
    assert backend.state_hash() != once


def test_a_fresh_back_end_each_time() -> None:
    state = BackendState(name="world", initial={"home": {"rooms": {"study": ROOM}, "doors": {}}})
    one = make(state)
    one.call("set_temperature", {"room": "study", "celsius": 25})
    assert make(state).call("get_room", {"room": "study"}) == {"room": "study", **ROOM}
    assert one.state_hash() != make(state).state_hash()


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (BackendState(name="moon"), "there is no back end 'moon'"),
        (BackendState(name="world", initial={"moon": {}}), "there is no back end for 'moon'"),
        (BackendState(name="world", initial={"home": []}), "state of home"),
        (BackendState(name="world", initial={"home": {"rooms": {}}}), "state of home: doors: Field required"),
        (
            BackendState(name="world", initial={"calendar": {"events": {"e": {**EVENT, "minutes": "60"}}}}),
            "events.e.minutes",
        ),
        (BackendState(name="world", initial={"calendar": {"events": {"e": {**EVENT, "room": 1}}}}), "events.e.room"),
        (BackendState(name="world", initial={"units": {"rates": {"EUR": 0}}}), "rates.EUR"),
        (
            BackendState(name="world", initial={"library": {"books": {}, "loans": {}, "loan_due": "2026-13-01"}}),
            "no day",
        ),
    ],
)
def test_back_ends_that_cannot_start(state: BackendState, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        backends.make(state)
