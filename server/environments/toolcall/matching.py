"""How a call compares with an expected one: argument by argument, and as a whole. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import JsonValue

from rolloutgym.server.environments.toolcall.equality import Strings, contains, equal, satisfies
from rolloutgym.server.environments.toolcall.items import ArgumentRule, ExpectedCall
from rolloutgym.server.environments.toolcall.parsing import Call

ExtraArguments = Literal["allow", "declared", "forbid"]


@dataclass(frozen=True, slots=True)
class MatchOptions:
    strings: Strings = "exact"
    extra_arguments: ExtraArguments = "forbid"
    """Arguments beyond the expected that cost nothing: any, those that the tool declares, or none."""
    subset: bool = False
    """An expected object matches one that holds more."""
    defaults_equal: bool = False
    """An argument at its schema's default may be given or left out, on either side."""


class ArgumentStatus(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    WRONG_TYPE = "wrong_type"
    """Different, and of another JSON type."""
    MISSING = "missing"
    EXTRA = "extra"


class Comparison(NamedTuple):
    """A call beside an expected one."""

    similarity: float
    """In [0, 1]; 1 exactly where names, keys and values are equal."""
    matched: bool
    """Under the options' policies."""
    arguments: dict[str, ArgumentStatus]
    """Of the arguments that count."""


def compare(call: Call, expected: ExpectedCall, schema: Mapping[str, JsonValue], options: MatchOptions) -> Comparison:
    """A call beside an expected one; `schema` is the argument schema of the expected tool.

    similarity = 0 if the names differ, else (1 + Jaccard of the keys + number of equal values)/(2 + number of keys
    expected). What counts on neither side: an argument whose rule is `ignore`, one left out that may be, and one beyond
    the expected where the options allow it.
    """
    if call.name != expected.name:
        return Comparison(0.0, False, {})
    statuses: dict[str, ArgumentStatus] = {}
    for key, value in expected.arguments.items():
        rule = expected.rules.get(key)
        if rule is not None and rule.kind == "ignore":
            continue
        if key not in call.arguments:
            if not _may_be_left_out(expected, key, value, schema, options):
                statuses[key] = ArgumentStatus.MISSING
        elif _is_right(call.arguments[key], value, expected, key, rule, options):
            statuses[key] = ArgumentStatus.EQUAL
        else:
            statuses[key] = _difference(call.arguments[key], value)
    for key, argument in call.arguments.items():
        if key not in expected.arguments:
            if _is_possible(argument, expected, key, options.strings):
                statuses[key] = ArgumentStatus.EQUAL
            elif not _may_be_added(key, argument, schema, options):
                statuses[key] = ArgumentStatus.EXTRA
    matched = all(status is ArgumentStatus.EQUAL for status in statuses.values())
    return Comparison(_similarity(statuses), matched, statuses)


def _similarity(statuses: Mapping[str, ArgumentStatus]) -> float:
    if not statuses:
        return 1.0
    counts = Counter(statuses.values())
    extra = counts[ArgumentStatus.EXTRA]
    wanted = len(statuses) - extra
    shared = wanted - counts[ArgumentStatus.MISSING]
    return (1 + shared / (wanted + extra) + counts[ArgumentStatus.EQUAL]) / (2 + wanted)


def _is_right(
    given: JsonValue,
    wanted: JsonValue,
    expected: ExpectedCall,
    key: str,
    rule: ArgumentRule | None,
    options: MatchOptions,
) -> bool:
    if rule is not None:
        return satisfies(given, wanted, rule, options.strings)
    if contains(given, wanted, options.strings) if options.subset else equal(given, wanted, options.strings):
        return True
    return _is_possible(given, expected, key, options.strings)


def _is_possible(given: JsonValue, expected: ExpectedCall, key: str, strings: Strings) -> bool:
    """Whether the data set names this value as another right one."""
    if not expected.possible or key not in expected.possible:
        return False
    return any(value != "" and _is_among(given, value, strings) for value in expected.possible[key])


def _is_among(given: JsonValue, value: JsonValue, strings: Strings) -> bool:
    """Whether `given` is an acceptable value of BFCL's. In one that is an object, or an array of objects, each member
    is a list of acceptable values of its own, with an empty text where the member may be left out."""
    if isinstance(value, dict):
        if not isinstance(given, dict) or not given.keys() <= value.keys():
            return False
        options = {key: member if isinstance(member, list) else [member] for key, member in value.items()}
        return all(
            any(option != "" and _is_among(given[key], option, strings) for option in members)
            if key in given
            else "" in members
            for key, members in options.items()
        )
    if isinstance(value, list) and isinstance(given, list) and any(isinstance(item, dict) for item in value):
        return len(given) == len(value) and all(map(_is_among, given, value, [strings] * len(given)))
    return equal(given, value, strings)


def _may_be_left_out(
    expected: ExpectedCall, key: str, value: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions
) -> bool:
    if expected.possible and "" in expected.possible.get(key, ()):
        return True
    return options.defaults_equal and _is_default(key, value, schema, options)


def _may_be_added(key: str, given: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions) -> bool:
    """Whether a call may have an argument that the expected call does not give."""
    if options.extra_arguments == "allow":
        return True
    if options.extra_arguments == "declared" and _declared(key, schema) is not None:
        return True
    return options.defaults_equal and _is_default(key, given, schema, options)


def _is_default(key: str, value: JsonValue, schema: Mapping[str, JsonValue], options: MatchOptions) -> bool:
    declared = _declared(key, schema)
    return (
        isinstance(declared, Mapping) and "default" in declared and equal(value, declared["default"], options.strings)
    )


def _declared(key: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    """What the tool's schema says of an argument; null where it does not know it."""
    properties = schema.get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def _difference(given: JsonValue, wanted: JsonValue) -> ArgumentStatus:
    return ArgumentStatus.DIFFERENT if _json_type(given) == _json_type(wanted) else ArgumentStatus.WRONG_TYPE


def _json_type(value: JsonValue) -> type:
    return float if type(value) is int else type(value)
