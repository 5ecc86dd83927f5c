"""What a query's ORDER BY and LIMIT leave open: rows that tie, and which of them are cut off.

The query is asked without its LIMIT and with the rank of each row under its own order; a sub-query's cut tie is tried
out by putting each choice of rows in its place. sqlglot rewrites the query for that. A rewriting is trusted only
if the query's own result fits it; else the result stands alone.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rolloutgym.server.environments.sql.comparison import Expected, Group, narrow, rows_match
from rolloutgym.server.environments.sql.database import Cell, Database, QueryFailed, QueryResult, Row
from rolloutgym.server.environments.sql.gold import fetch

_DIGITS = 9
"""Decimals by which sums are compared as sort keys."""
MAX_VARIANTS = 32
"""Most combinations of tied rows in sub-queries that are tried."""
_MAX_LITERAL_ROWS = 25
_ARITHMETIC = (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)


def accepted_results(database: Database, sql: str, result: QueryResult) -> tuple[list[Expected], bool, bool]:
    """All results that are as right as the query's own, which comes first; whether a cut tie makes them more than one;
    whether the query's top level orders."""
    statement = _parse(sql)
    if statement is None:
        ordered = re.search(r"\border\s+by\b[^()]*$", sql, re.IGNORECASE) is not None
        return [_plain(result.rows, ordered)], False, ordered
    ordered = statement.args.get("order") is not None
    accepted = [_expected(database, statement, result)]
    tie = any(len(set(group.rows)) > 1 for group in narrow(accepted[0]))
    steps = 0
    for variant in _variants(database, statement):
        if steps > database.limits.steps:
            break  # all of them together may cost what one query may
        try:
            other = fetch(database, variant.sql(dialect="sqlite"))
        except QueryFailed:
            continue
        finally:
            steps += database.last_steps
        if not any(rows_match(other.rows, expected) for expected in accepted):
            accepted.append(_expected(database, variant, other))
            tie = True
    return accepted, tie, ordered


def scanned_backwards(sql: str) -> str | None:
    """The query over its tables' rows in reverse order; none where it cannot be read."""
    statement = _parse(sql)
    if statement is None:
        return None
    own = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for table in list(statement.find_all(exp.Table)):
        if table.name.lower() in own:
            continue
        alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
        # Without a LIMIT, SQLite leaves out the order of a sub-query as one that cannot matter.
        rows = exp.select("*").from_(exp.table_(table.this.copy())).order_by("rowid DESC").limit(-1)
        table.replace(exp.Subquery(this=rows, alias=alias))
    return statement.sql(dialect="sqlite")


def _parse(sql: str) -> exp.Query | None:
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return None
    return tree if isinstance(tree, exp.Select | exp.SetOperation) else None


def _plain(rows: Sequence[Row], ordered: bool) -> Expected:
    if not ordered:
        return (Group(tuple(rows), len(rows)),)
    return tuple(Group((row,), 1) for row in rows)


def _expected(database: Database, statement: exp.Query, result: QueryResult) -> Expected:
    """The result as groups of rows that tie; as it is, where they cannot be found out."""
    groups = _tie_groups(database, statement)
    if groups is not None and rows_match(result.rows, groups):
        return groups
    return _plain(result.rows, statement.args.get("order") is not None)


def _window(statement: exp.Query) -> tuple[int, int | None] | None:
    """(offset, limit) of the query's top level, limit None for all; none at all where they are not plain numbers."""
    numbers: list[int | None] = []
    for name in ("offset", "limit"):
        clause = statement.args.get(name)
        value = clause.expression if clause is not None else None
        if value is None:
            numbers.append(None)
        elif isinstance(value, exp.Literal) and value.is_int:
            numbers.append(int(value.name))
        else:
            return None
    return numbers[0] or 0, numbers[1]


def _tie_groups(database: Database, statement: exp.Query) -> Expected | None:
    window = _window(statement)
    ranked = _ranked(statement)
    if window is None or ranked is None:
        return None
    try:
        result = fetch(database, ranked.sql(dialect="sqlite"))
    except QueryFailed:
        return None
    rows = [row[:-1] for row in result.rows]
    if statement.args.get("distinct") and len(set(rows)) != len(rows):
        return None  # the rank is part of what is distinct: the sort key is not among the columns
    offset, limit = window
    end = len(rows) if limit is None else min(offset + limit, len(rows))
    groups = []
    stop = 0
    for _, members in itertools.groupby(result.rows, key=lambda row: row[-1]):
        start, stop = stop, stop + len(tied := [row[:-1] for row in members])
        take = min(stop, end) - max(start, offset)
        if take > 0:
            groups.append(Group(tuple(tied), take))
        if stop >= end:
            break
    # Of a result that was too large to fetch, the last group seen may have further members.
    return None if result.truncated and stop == len(rows) else tuple(groups)


def _ranked(statement: exp.Query) -> exp.Query | None:
    """The query without its LIMIT and with one more column, last: the rank of the row under the query's own order."""
    query = statement.copy()
    for name in ("limit", "offset"):
        query.set(name, None)
    order = query.args.get("order")
    if isinstance(query, exp.SetOperation):
        # The keys of a compound are names or positions of its columns.
        query.set("order", None)
        keys = (
            None if order is None else _keys(order, [exp.column(p.alias_or_name, quoted=True) for p in query.selects])
        )
        query = exp.select("*").from_(exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("result"))))
    else:
        keys = None if order is None else _keys(order, query.selects)
    if order is not None and keys is None:
        return None
    rank: exp.Expr = exp.Literal.number(1)
    if keys:
        rank = exp.Window(this=exp.DenseRank(), order=exp.Order(expressions=keys))
    query.append("expressions", exp.alias_(rank, "tie_rank", quoted=True))
    if keys:
        query.set("order", exp.Order(expressions=[key.copy() for key in keys]))
    return query


def _keys(order: exp.Expr, projections: Sequence[exp.Expr]) -> list[exp.Expr] | None:
    """The sort keys with positions and names of result columns replaced by what they stand for."""
    starred = any(projection.is_star for projection in projections)
    named = {projection.alias_or_name.lower(): projection.unalias() for projection in projections}
    keys = []
    for ordered in order.expressions:
        key = ordered.copy()
        operand = key.this
        if isinstance(operand, exp.Literal) and operand.is_int:
            position = int(operand.name) - 1
            if starred or not 0 <= position < len(projections):
                return None
            operand.replace(projections[position].unalias().copy())
        else:
            for column in list(key.find_all(exp.Column)):
                if not column.table and column.name.lower() in named:
                    column.replace(named[column.name.lower()].copy())
        if key.find(exp.Window):
            return None
        if isinstance(key.this, _ARITHMETIC) and key.find(exp.Sum, exp.Avg):
            # Sums that are equal but for the order of adding tie.
            key.this.replace(exp.Round(this=key.this.copy(), decimals=exp.Literal.number(_DIGITS)))
        keys.append(key)
    return keys


# ---- ties inside sub-queries ----------------------------------------------------------------------------------------


def _variants(database: Database, statement: exp.Query) -> Iterator[exp.Query]:
    """The statement with each other choice of tied rows where a sub-query's LIMIT cuts through them."""
    nodes = list(statement.find_all(exp.Select, exp.SetOperation))
    choices: list[tuple[int, list[list[Row]]]] = []
    for position, node in enumerate(nodes):
        if node is not statement and node.args.get("limit") is not None:
            results = list(_choices(_tie_groups(database, node)))
            if len(results) > 1:
                choices.append((position, results))
    if not choices:
        return
    combinations = itertools.product(*(results for _, results in choices))
    for combination in itertools.islice(combinations, MAX_VARIANTS):
        variant = statement.copy()
        copies = list(variant.find_all(exp.Select, exp.SetOperation))
        for (position, _), rows in zip(choices, combination, strict=True):
            copies[position].replace(_constant(rows, [p.alias_or_name for p in nodes[position].selects]))
        yield variant


def _choices(groups: Expected | None) -> Iterator[list[Row]]:
    """Every result that the groups allow; nothing where that is only one."""
    if groups is None or not any(narrow(groups)):
        return
    # Bytes cannot be written back as literals here, and long results make long queries.
    if sum(group.take for group in groups) > _MAX_LITERAL_ROWS or any(
        isinstance(cell, bytes) for group in groups for row in group.rows for cell in row
    ):
        return
    # `product` takes in all of each part before it gives anything: a part must be short.
    parts = [itertools.islice(itertools.combinations(group.rows, group.take), MAX_VARIANTS) for group in groups]
    for combination in itertools.islice(itertools.product(*parts), MAX_VARIANTS):
        yield list(itertools.chain.from_iterable(combination))


def _constant(rows: list[Row], names: Sequence[str]) -> exp.Query:
    """A query that returns these rows."""
    selects = [
        exp.select(*(exp.alias_(_literal(cell), name, quoted=True) for cell, name in zip(row, names, strict=True)))
        for row in rows
    ]
    query: exp.Query = selects[0]
    for select in selects[1:]:
        query = exp.union(query, select, distinct=False)
    return query


def _literal(cell: Cell) -> exp.Expr:
    if isinstance(cell, str):
        return exp.Literal.string(cell)
    return exp.null() if cell is None else exp.Literal.number(repr(cell))
