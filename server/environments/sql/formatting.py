"""How results and tables are shown: the same text for the same data, always, and a line that says what was cut."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rolloutgym.server.environments.sql.database import Cell, QueryResult, Row, Table

COUNT_CAP = 1_000
"""Rows up to which a result is counted."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")
_MAX_LISTED = 60
_MAX_NAME = 64


@dataclass(frozen=True)
class Caps:
    """How much of a result is shown."""

    rows: int = 20
    cells: int = 500
    bytes: int = 8_000
    """Of the whole text in UTF-8, the closing line not counted."""
    cell_characters: int = 200


def show_result(result: QueryResult, caps: Caps) -> str:
    """Column names, rows with ` | ` between cells, and a closing line with the number of rows and of what was cut."""
    width = len(result.columns)
    rows = result.rows[: min(caps.rows, max(caps.cells // width, 1))]
    cut = 0
    lines = [" | ".join([_shorten(name, caps.cell_characters) for name in result.columns])]
    size = _size(lines[0])
    for row in rows:
        cells = [_show(cell) for cell in row]
        if max(map(len, cells)) > caps.cell_characters:
            cut += sum([len(cell) > caps.cell_characters for cell in cells])
            cells = [_shorten(cell, caps.cell_characters) for cell in cells]
        line = " | ".join(cells)
        size += 1 + _size(line)
        if size > caps.bytes:
            break
        lines.append(line)
    lines.append(_closing(len(lines) - 1, result, cut, caps))
    return "\n".join(lines)


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


def _show(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, str):
        if _CONTROL.search(cell):
            return _CONTROL.sub(_escape, cell)
        return cell
    if isinstance(cell, bytes):
        return f"X'{cell.hex().upper()}'"
    return repr(cell)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _shorten(text: str, cap: int) -> str:
    text = _CONTROL.sub(_escape, text) if _CONTROL.search(text) else text
    return text if len(text) <= cap else text[:cap] + "…"


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


def show_rows(columns: Sequence[str], rows: Sequence[Row], caps: Caps) -> str:
    return show_result(QueryResult(tuple(columns), tuple(rows), False, frozenset()), caps)
