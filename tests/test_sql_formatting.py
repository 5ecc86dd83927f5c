"""What a result looks like: the same for the same data, and with a word on what was cut."""

import pytest

from rolloutgym.server.environments.sql.database import Cell, Column, ForeignKey, QueryResult, Table
from rolloutgym.server.environments.sql.formatting import Caps, list_tables, show_result, show_table, unknown_table


def _result(*rows: tuple[Cell, ...], columns: str = "a b", truncated: bool = False) -> QueryResult:
    return QueryResult(tuple(columns.split()), rows, truncated, frozenset())


@pytest.mark.parametrize(
    ("result", "caps", "text"),
    [
        (_result(), Caps(), "a | b\n(no rows)"),
        (_result((1, "x")), Caps(), "a | b\n1 | x\n(1 row)"),
        (_result((1.0, None), (2, b"\xab")), Caps(), "a | b\n1.0 | NULL\n2 | X'AB'\n(2 rows)"),
        (_result((1, 1), (1, 1)), Caps(), "a | b\n1 | 1\n1 | 1\n(2 rows)"),
        (_result((1e300, float("inf"))), Caps(), "a | b\n1e+300 | inf\n(1 row)"),
        (_result(("x\ny\t\0", "\u2028é")), Caps(), "a | b\nx\\ny\\t\\x00 | \\u2028é\n(1 row)"),
        (_result((1, 2), (3, 4), (5, 6)), Caps(rows=2), "a | b\n1 | 2\n3 | 4\n(2 of 3 rows shown)"),
        (_result((1, 2), (3, 4), (5, 6)), Caps(cells=4), "a | b\n1 | 2\n3 | 4\n(2 of 3 rows shown)"),
        (_result((1, 2), (3, 4)), Caps(cells=1), "a | b\n1 | 2\n(1 of 2 rows shown)"),
        (_result((1, 2), (3, 4)), Caps(bytes=12), "a | b\n1 | 2\n(1 of 2 rows shown)"),
        (_result((1, 2), (3, 4)), Caps(bytes=16), "a | b\n1 | 2\n(1 of 2 rows shown)"),
        (_result((1, 2), (3, 4)), Caps(bytes=17), "a | b\n1 | 2\n3 | 4\n(2 rows)"),
        (_result((1, 2)), Caps(bytes=1), "a | b\n(0 of 1 rows shown)"),
        (_result(("é" * 5, 1)), Caps(bytes=18), "a | b\n(0 of 1 rows shown)"),
        (_result((1, 2), truncated=True), Caps(), "a | b\n1 | 2\n(1 of more than 1 rows shown)"),
        (_result(*[(1, 2)] * 1001), Caps(rows=1), "a | b\n1 | 2\n(1 of more than 1000 rows shown)"),
        (_result(*[(1, 2)] * 1000), Caps(rows=1), "a | b\n1 | 2\n(1 of 1000 rows shown)"),
        (
            _result(("x" * 12, "y" * 10)),
            Caps(cell_characters=10),
            f"a | b\n{'x' * 10}… | {'y' * 10}\n(1 row; 1 cell cut to 10 characters)",
        ),
        (
            _result(("x" * 12, "y" * 11), ("z" * 99, 0)),
            Caps(cell_characters=10, rows=1),
            f"a | b\n{'x' * 10}… | {'y' * 10}…\n(1 of 2 rows shown; 2 cells cut to 10 characters)",
        ),
        (_result((1,), columns="a" * 20), Caps(cell_characters=10), f"{'a' * 10}…\n1\n(1 row)"),
        (
            _result(("\n" * 9, 1)),
            Caps(cell_characters=10),
            "a | b\n" + r"\n" * 5 + "… | 1\n(1 row; 1 cell cut to 10 characters)",
        ),
    ],
)  # fmt: skip
def test_results(result: QueryResult, caps: Caps, text: str) -> None:
    assert show_result(result, caps) == text


def test_a_text_of_a_megabyte_is_cut_before_it_is_looked_at() -> None:
    shown = show_result(_result(("\n" * 10**6, b"x" * 10**6)), Caps())
    assert len(shown) < 600


def test_tables() -> None:
    table = Table(
        "concert",
        "table",
        (Column("id", "INTEGER", True, 1), Column("stadium", "", False, 0), Column("home", "INT", False, 0)),
        (ForeignKey(("stadium",), "stadium", ()), ForeignKey(("id", "home"), "pair", ("a", "b"))),
    )
    text = show_table(table, 2)
    assert text == (
        "Table concert (2 rows):\n- id INTEGER, primary key, not null\n- stadium, references stadium\n- home INT\n"
        "Foreign key (id, home) references pair(a, b)"
    )
    assert show_table(table, 1).startswith("Table concert (1 row):")
    assert show_table(table, None).startswith("Table concert (rows not counted):")


def test_names() -> None:
    assert unknown_table("SINGR", ["singer", "Song"]) == (
        "There is no table 'SINGR'. Did you mean singer? Tables: singer, Song."
    )
    assert unknown_table("xyz", ["singer"]) == "There is no table 'xyz'. Tables: singer."
    assert list_tables([f"t{number}" for number in range(62)]).endswith("t59 and 2 more")
