"""SQL that an agent writes in another dialect, translated to SQLite before it runs.

sqlglot does the translation; what its SQLite writer passes on unchanged although SQLite lacks it (parts of dates, LEFT,
CONCAT …) is rewritten here. What cannot be translated is the model's mistake, told in words for the model.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import get_args

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from rolloutgym.server.environments.sql.prompts import Dialect

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

MAX_LENGTH = 20_000
"""Characters; SQLite's own limit stands behind it."""

_TOO_DEEP = "the statement is too deeply nested"
_NUMBER = re.compile(r"[+-]?\d{1,9}(\.\d{1,9})?", re.ASCII)
_DATE_PARTS = {
    "YEAR": "%Y", "MONTH": "%m", "DAY": "%d", "HOUR": "%H", "MINUTE": "%M", "SECOND": "%S", "DOW": "%w", "DOY": "%j",
    "DAYOFWEEK": "%w", "DAYOFYEAR": "%j",
}  # fmt: skip
_TRUNCATED = {"YEAR": "%Y-01-01", "MONTH": "%Y-%m-01", "DAY": "%Y-%m-%d"}
_PART_FUNCTIONS: dict[type[exp.Expr], str] = {exp.Year: "YEAR", exp.Month: "MONTH", exp.Day: "DAY"}


class TranslationFailed(Exception):
    """The SQL is not of that dialect, or not for SQLite. The message is for the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def translate(sql: str, dialect: Dialect) -> str:
    """The statement in SQLite's dialect; unchanged where that is the dialect. Raises `TranslationFailed`."""
    if dialect == "sqlite":
        return sql
    if len(sql) > MAX_LENGTH:
        raise TranslationFailed(f"the statement is longer than {MAX_LENGTH} characters")
    try:
        statements = [tree for tree in sqlglot.parse(sql, read=dialect, error_level=ErrorLevel.IMMEDIATE) if tree]
    except ParseError as error:
        raise TranslationFailed(_parse_message(error, dialect)) from None
    except SqlglotError as error:
        raise TranslationFailed(f"this is not {dialect} SQL: {_plain(str(error))}") from None
    except RecursionError:
        raise TranslationFailed(_TOO_DEEP) from None
    if len(statements) != 1:
        raise TranslationFailed("write exactly one statement")
    try:
        return _rewritten(statements[0]).sql(dialect="sqlite", unsupported_level=ErrorLevel.IGNORE)
    except RecursionError:
        raise TranslationFailed(_TOO_DEEP) from None
    except (SqlglotError, ValueError) as error:
        raise TranslationFailed(f"SQLite has nothing like this: {_plain(str(error))}") from None


def _parse_message(error: ParseError, dialect: str) -> str:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "")
    where = f" near {near!r} (line {first.get('line')}, column {first.get('col')})" if near else ""
    return f"this is not {dialect} SQL{where}: {_plain(str(first.get('description') or error))}"


def _plain(message: str) -> str:
    """The first line, without the terminal colours and the tokens that sqlglot puts in."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", message).strip().split("\n")[0]
    return re.sub(r"( but got)? <Token .*", "", text).rstrip(".")


# ---- what SQLite lacks ----------------------------------------------------------------------------------------------


def _rewritten(tree: exp.Expr) -> exp.Expr:
    """The tree with all of it rewritten, from the leaves up: what stands inside of something rewritten too."""
    for node in reversed(list(tree.bfs())):
        new = _rewrite(node)
        if node is tree:
            return new
        if new is not node:
            node.replace(new)
    return tree


def _rewrite(node: exp.Expr) -> exp.Expr:
    for kind, rewrite in _REWRITES.items():
        if isinstance(node, kind):
            return rewrite(node)
    return node


def _extract(node: exp.Expr) -> exp.Expr:
    return _date_part(node, node.name.upper(), node.expression)


def _part_function(node: exp.Expr) -> exp.Expr:
    return _date_part(node, _PART_FUNCTIONS[type(node)], node.this)


def _date_part(node: exp.Expr, part: str, date: exp.Expr) -> exp.Expr:
    if part not in _DATE_PARTS:
        return node
    # Some dialects' functions wrap their argument as a conversion to a date.
    date = date.this if isinstance(date, exp.TsOrDsToDate) else date
    return exp.paren(exp.Add(this=_strftime(_DATE_PARTS[part], date), expression=exp.Literal.number(0)))


def _truncate(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    form = _TRUNCATED.get(unit.name.upper()) if unit is not None else None
    return node if form is None else _strftime(form, node.this)


def _strftime(form: str, date: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="STRFTIME", expressions=[exp.Literal.string(form), date.copy()])


def _left(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="SUBSTR", expressions=[node.this, exp.Literal.number(1), node.expression])


def _right(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="SUBSTR", expressions=[node.this, exp.Neg(this=exp.paren(node.expression))])


def _concat(node: exp.Expr) -> exp.Expr:
    """`a || b`; where the dialect takes NULL for nothing, so does this."""
    parts = [part.copy() for part in node.expressions]
    if node.args.get("coalesce"):
        parts = [exp.Coalesce(this=part, expressions=[exp.Literal.string("")]) for part in parts]
    joined = parts[0]
    for part in parts[1:]:
        joined = exp.DPipe(this=joined, expression=part)
    return exp.paren(joined)


def _add_interval(node: exp.Expr) -> exp.Expr:
    """`date ± INTERVAL 'n' unit` as a modifier of SQLite's DATETIME, of DATE where whole days are added."""
    interval = node.expression
    if not isinstance(interval, exp.Interval) or not isinstance(interval.this, exp.Literal):
        return node
    unit, text = interval.text("unit").upper().rstrip("S") or "DAY", interval.this.name
    if not _NUMBER.fullmatch(text):
        return node
    number = -Decimal(text) if isinstance(node, exp.Sub) else Decimal(text)
    if unit == "WEEK":
        unit, number = "DAY", 7 * number
    name = "DATE" if unit in _TRUNCATED else "DATETIME"
    modifier = exp.Literal.string(f"{number:+f} {unit.lower()}")
    return exp.Anonymous(this=name, expressions=[node.this.copy(), modifier])


def _anonymous(node: exp.Expr) -> exp.Expr:
    return exp.CurrentTimestamp() if node.name.upper() == "NOW" and not node.expressions else node


def _escaped_text(node: exp.Expr) -> exp.Expr:
    """Postgres's `E'…'`, with its escapes read."""
    return exp.Literal.string(node.name)


_REWRITES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr]] = {
    exp.Extract: _extract,
    exp.Year: _part_function,
    exp.Month: _part_function,
    exp.Day: _part_function,
    exp.DateTrunc: _truncate,
    exp.TimestampTrunc: _truncate,
    exp.Left: _left,
    exp.Right: _right,
    exp.Concat: _concat,
    exp.Add: _add_interval,
    exp.Sub: _add_interval,
    exp.Anonymous: _anonymous,
    exp.ByteString: _escaped_text,
}
