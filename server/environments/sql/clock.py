"""A clock that stands still, for the SQL of one connection: `date('now')` is the same in every run of an episode.

SQLite's date functions are replaced by ones that put a fixed moment in place of `now` and know no zone but UTC; all
else they ask of SQLite's own, on a second, empty database. A moment is a C string to SQLite, so `now` may come as a
blob, or with anything after a NUL.
"""

import sqlite3
from typing import TypeAlias

NOW = "2025-01-01 00:00:00"
"""What every query takes for now, UTC."""

_FUNCTIONS = ("date", "time", "datetime", "julianday", "unixepoch")
_FRACTIONS = frozenset({"subsec", "subsecond"})
"""Modifiers that may stand alone, for `now` (SQLite 3.42)."""
_ZONES = frozenset({"localtime", "utc"})

_Value: TypeAlias = int | float | str | bytes | None


class StandingClock:
    """Replaces the date functions of a connection. Keep it as long as that, then close it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._own = sqlite3.connect(":memory:", check_same_thread=False)
        for name in _FUNCTIONS:
            self._replace(connection, name, before=0)
        self._replace(connection, "strftime", before=1)
        if self._own.execute("SELECT 1 FROM pragma_function_list WHERE name = 'timediff'").fetchone():
            connection.create_function("timediff", 2, self._timediff, deterministic=True)
        day, clock = NOW.split(" ")
        for name, value in (("current_date", day), ("current_time", clock), ("current_timestamp", NOW)):
            connection.create_function(name, 0, lambda value=value: value, deterministic=True)

    def close(self) -> None:
        self._own.close()

    def _replace(self, connection: sqlite3.Connection, name: str, *, before: int) -> None:
        """`before` arguments come before the moment (strftime's format)."""

        def function(*arguments: _Value) -> _Value:
            return self._ask(name, [*arguments[:before], *moment(arguments[before:])])

        connection.create_function(name, -1, function, deterministic=True)

    def _timediff(self, later: _Value, earlier: _Value) -> _Value:
        """Of SQLite 3.43: both arguments are moments."""
        return self._ask("timediff", [*moment((later,)), *moment((earlier,))])

    def _ask(self, function: str, arguments: list[_Value]) -> _Value:
        sql = f"SELECT {function}({', '.join('?' * len(arguments))})"
        return self._own.execute(sql, arguments).fetchone()[0]  # type: ignore[no-any-return]


def moment(arguments: tuple[_Value, ...]) -> list[_Value]:
    """A moment and its modifiers, with the standing clock for `now` and no zone to convert from or to."""
    given = [_as_c_string(argument) for argument in arguments]
    if not given or _word(given[0]) in _FRACTIONS:
        given.insert(0, NOW)
    first = NOW if _word(given[0]) == "now" else given[0]
    return [first, *[value for value in given[1:] if _word(value) not in _ZONES]]


def _word(value: _Value) -> str:
    return value.lower() if isinstance(value, str) else ""


def _as_c_string(value: _Value) -> _Value:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value.partition("\0")[0] if isinstance(value, str) else value
