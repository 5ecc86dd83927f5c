"""How results and tables are shown: the same text for the same data, always, and a line that says what was cut."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rolloutgym.server.environments.sql.database import Cell, QueryResult, Table

COUNT_CAP = 1_000
"""Rows up to which a result is counted."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_MAX_LISTED = 60
_MAX_NAME = 64


class Caps(NamedTuple):
    """How much of a result is shown."""

    rows: int = 20
    cells: int = 500
    bytes: int = 8_000
    """Of the whole text in UTF-8, the closing line not counted."""
    cell_characters: int = 200


def show_result(result: QueryResult, caps: Caps) -> str:
    """Column names, rows with ` | ` between cells, and a closing line with the number of rows and of what was cut."""
    cap = caps.cell_characters
    rows = result.rows[: min(caps.rows, max(caps.cells // len(result.columns), 1))]
    cut = 0
    lines = [_line(result.columns, cap)[0]]
    size = _size(lines[0])
    for row in rows:
        line, cells_cut = _line(row, cap)
        size += 1 + _size(line)
        if size > caps.bytes:
            break
        cut += cells_cut
        lines.append(line)
    lines.append(_closing(len(lines) - 1, result, cut, caps))
    return "\n".join(lines)


def _line(row: Sequence[Cell], cap: int) -> tuple[str, int]:
    """A row as shown, and how many of its cells were cut."""
    cells = [cell if cell.__class__ is str else _spell(cell) for cell in row]
    line = " | ".join(cells)
    if len(line) <= cap and line.isprintable():  # so that no cell is too long or holds a control character
        return line, 0
    shown = [_shorten(cell, cap) for cell in cells]
    return " | ".join(shown), sum([len(cell) > cap for cell in shown])


def _closing(shown: int, result: QueryResult, cut: int, caps: Caps) -> str:
    total = len(result.rows)
    if result.truncated or total > COUNT_CAP:
        text = f"{shown} of more than {min(total, COUNT_CAP)} rows shown"
    elif shown < total:
        text = f"{shown} of {total} rows shown"
    else:
        text = "no rows" if total == 0 else "1 row" if total == 1 else f"{total} rows"
    if cut:
        text += f"; {cut} {'cell' if cut == 1 else 'cells'} cut to {caps.cell_characters} characters"
    return f"({text})"


def _spell(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    return f"X'{cell.hex().upper()}'" if isinstance(cell, bytes) else str(cell)


def _shorten(text: str, cap: int) -> str:
    """At most `cap` characters, with control characters escaped, and a mark where it was cut."""
    if len(text) > 2 * cap:
        text = text[: 2 * cap]
    text = _CONTROL.sub(_escape, text)
    return text if len(text) <= cap else text[:cap] + "…"


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# ---- tables ---------------------------------------------------------------------------------------------------------


def show_table(table: Table, rows: int | None) -> str:
    """A table's columns, types and keys; `rows` is null where they could not be counted in time."""
    count = "rows not counted" if rows is None else "1 row" if rows == 1 else f"{rows} rows"
    single = {key.columns[0]: key for key in table.foreign_keys if len(key.columns) == 1}
    lines = [f"{table.kind.capitalize()} {table.name} ({count}):"]
    for column in table.columns:
        parts = [f"{column.name} {column.type}".rstrip()]
        if column.primary_key:
            parts.append("primary key")
        if column.not_null:
            parts.append("not null")
        if column.name in single:
            parts.append(f"references {_target(single[column.name].table, single[column.name].references)}")
        lines.append("- " + ", ".join(parts))
    lines.extend(
        f"Foreign key ({', '.join(key.columns)}) references {_target(key.table, key.references)}"
        for key in table.foreign_keys
        if len(key.columns) > 1
    )
    return "\n".join(lines)


def _target(table: str, columns: Sequence[str]) -> str:
    return f"{table}({', '.join(columns)})" if columns else table


def list_tables(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MAX_LISTED])
    return listed if len(names) <= _MAX_LISTED else f"{listed} and {len(names) - _MAX_LISTED} more"


def unknown_table(name: str, names: Sequence[str]) -> str:
    """What to say of a table that is not there: the nearest name and all of them."""
    shown = name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…"
    return f"There is no table {shown!r}.{suggestion(name, names)} Tables: {list_tables(names)}."


def suggestion(name: str, names: Iterable[str]) -> str:
    """` Did you mean …?`, or nothing where no name is near."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(name[:_MAX_NAME].lower(), by_lower, n=1)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""
