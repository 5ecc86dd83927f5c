"""The questions to validate on: none of them has the form of a training question."""

import random
from collections import Counter

from rolloutgym.server.environments.sql.generator.drafts import (
    Draft,
    Registry,
    amount,
    condition,
    is_tied,
    literal,
    mean,
    measure,
    numbers,
    present,
    ranked,
    some,
    some_link,
    some_table,
    text_order,
    to_decimals,
    unique_parent,
)
from rolloutgym.server.environments.sql.generator.schema import Domain

VALIDATION = Registry()


@VALIDATION.add("single", "easy")
def count_both_conditions(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    first = condition(rng, table)
    second = condition(rng, table, without=[first.column if first else None])
    if first is None or second is None:
        return None
    question = rng.choice(("Among the {0} {1}, how many are there {2}?", "Count the {0} {1} and {2}."))
    found = sum(first.test(record) and second.test(record) for record in table.records)
    sql = f"SELECT count(*) FROM {table.name} WHERE {first.sql()} AND {second.sql()}"
    return Draft(question.format(table.plural, first.words, second.words), sql, [(found,)])


@VALIDATION.add("single", "easy")
def count_between(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (column := measure(rng, table)) is None:
        return None
    values = sorted(numbers(table.records, column))
    low, high = values[len(values) // rng.randint(4, 9)], values[-len(values) // rng.randint(3, 8)]
    if low >= high:
        return None
    question = rng.choice(
        (
            "How many {0} have a {1} from {2} to {3}, both included?",
            "Count the {0} whose {1} lies between {2} and {3} (inclusive).",
        )
    )
    sql = f"SELECT count(*) FROM {table.name} WHERE {column.name} BETWEEN {low!r} AND {high!r}"
    found = sum(low <= value <= high for value in values)
    return Draft(question.format(table.plural, column.phrase, low, high), sql, [(found,)])


@VALIDATION.add("order", "medium")
def second_highest(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := measure(rng, table)) is None:
        return None
    records = ranked(table.records, column, descending=True)
    if is_tied([record[column.name] for record in records], 2):
        return None
    question = rng.choice(
        (
            "Give the {1} of the {0} with the second highest {2}.",
            "Which {0} comes second by {2}, counted from the highest? Show its {1}.",
        )
    )
    sql = f"SELECT {label.name} FROM {table.name} ORDER BY {column.name} DESC LIMIT 1 OFFSET 1"
    return Draft(question.format(table.singular, label.phrase, column.phrase), sql, [(records[1][label.name],)])


@VALIDATION.add("order", "medium")
def ranked_with_condition(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := measure(rng, table)) is None:
        return None
    first = condition(rng, table, without=[column])
    second = condition(rng, table, without=[column, first.column if first else None])
    if first is None or second is None:
        return None
    records = ranked(
        (record for record in table.records if first.test(record) and second.test(record)), column, descending=False
    )
    if not records or is_tied([record[column.name] for record in records], len(records)):
        return None
    question = rng.choice(
        (
            "Show {1} and {2} of the {0} {3} and {4}, by increasing {2}; leave out a missing {2}.",
            "For the {0} {3} and {4}, list {1} and {2} from low to high {2}, without those where it is missing.",
        )
    )
    sql = (
        f"SELECT {label.name}, {column.name} FROM {table.name} WHERE {first.sql()} AND {second.sql()} "
        f"AND {column.name} IS NOT NULL ORDER BY {column.name}"
    )
    words = (table.plural, label.phrase, column.phrase, first.words, second.words)
    return Draft(question.format(*words), sql, [(record[label.name], record[column.name]) for record in records])


@VALIDATION.add("group", "medium")
def count_and_highest(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None or (value := measure(rng, table)) is None:
        return None
    rows = []
    for name in set(present(table.records, column)):
        members = [record for record in table.records if record[column.name] == name]
        rows.append((name, len(members), max(numbers(members, value), default=None)))
    question = rng.choice(
        (
            "Per {1}, show the number of {0} and the highest {2}; leave out {0} without a {1}.",
            "Give every {1} with its count of {0} and their maximum {2}, ignoring a missing {1}.",
        )
    )
    sql = (
        f"SELECT {column.name}, count(*), max({value.name}) FROM {table.name} "
        f"WHERE {column.name} IS NOT NULL GROUP BY {column.name}"
    )
    return Draft(question.format(table.plural, column.phrase, value.phrase), sql, rows)


@VALIDATION.add("group", "medium")
def least_common(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    counts = Counter(present(table.records, column)).most_common()[::-1]
    if is_tied([count for _, count in counts], 1):
        return None
    question = rng.choice(
        (
            "Which {1} is the rarest among the {0}, and how often does it occur?",
            "Name the least frequent {1} of the {0} together with its number of {0}.",
        )
    )
    sql = (
        f"SELECT {column.name}, count(*) FROM {table.name} WHERE {column.name} IS NOT NULL "
        f"GROUP BY {column.name} ORDER BY count(*) LIMIT 1"
    )
    return Draft(question.format(table.plural, column.phrase), sql, [counts[0]])


@VALIDATION.add("join", "medium")
def average_of_parent(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (parent := unique_parent(rng, link)) is None or (value := amount(rng, link.child)) is None:
        return None
    record, name = parent
    average = to_decimals(mean(numbers((child for child, owner in link.pairs() if owner is record), value)), 1)
    if average is None:
        return None
    question = rng.choice(
        (
            "What is the average {4} of the {0} {1} the {2} {3}, rounded to one decimal?",
            "To one decimal, how high is the mean {4} of the {0} {1} the {2} {3}?",
        )
    )
    sql = (
        f"SELECT round(avg(T1.{value.name}), 1) FROM {link.join()} WHERE T2.{link.parent_label.name} = {literal(name)}"
    )
    words = (link.child.plural, link.column.of, link.parent.singular, name, value.phrase)
    return Draft(question.format(*words), sql, [(average,)])


@VALIDATION.add("join", "hard")
def count_by_parent_category(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (column := some(rng, link.parent, "category")) is None:
        return None
    where = condition(rng, link.child)
    if where is None:
        return None
    counts = Counter(
        parent[column.name] for child, parent in link.pairs() if where.test(child) and parent[column.name] is not None
    )
    question = rng.choice(
        (
            "How many {2} {3} are there for each {0} of the {1}? Leave out a missing {0}, and any with none.",
            "Count the {2} {3} per {0} of their {1}, without a missing {0} and without zeros.",
        )
    )
    sql = (
        f"SELECT T2.{column.name}, count(*) FROM {link.join()} WHERE {where.sql('T1.')} "
        f"AND T2.{column.name} IS NOT NULL GROUP BY T2.{column.name}"
    )
    words = (column.phrase, link.parent.plural, link.child.plural, where.words)
    return Draft(question.format(*words), sql, list(counts.items()))


@VALIDATION.add("subquery", "hard")
def all_with_the_highest(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := measure(rng, table)) is None:
        return None
    highest = max(numbers(table.records, column))
    question = rng.choice(
        (
            "Give the {1} of every {0} whose {2} equals the highest {2} of all, alphabetically.",
            "In alphabetical order, list the {1} of each {0} that reaches the maximum {2}.",
        )
    )
    sql = (
        f"SELECT {label.name} FROM {table.name} WHERE {column.name} = (SELECT max({column.name}) FROM {table.name}) "
        f"ORDER BY {label.name}"
    )
    rows = text_order((record[label.name],) for record in table.records if record[column.name] == highest)
    return Draft(question.format(table.singular, label.phrase, column.phrase), sql, rows)


@VALIDATION.add("subquery", "hard")
def parents_with_none_such(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (where := condition(rng, link.child)) is None:
        return None
    found = sum(not any(map(where.test, children)) for children in link.children().values())
    question = rng.choice(
        (
            "How many {0} have no {1} {2}?",
            "Count the {0} for which there are no {1} {2}.",
        )
    )
    sql = (
        f"SELECT count(*) FROM {link.parent.name} AS T2 WHERE NOT EXISTS (SELECT 1 FROM {link.child.name} AS T1 "
        f"WHERE T1.{link.column.name} = T2.{link.parent.key.name} AND {where.sql('T1.')})"
    )
    words = (link.parent.plural, link.child.plural, where.words)
    return Draft(question.format(*words), sql, [(found,)])


@VALIDATION.add("set", "hard")
def count_of_union(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    column = some(rng, table, "category", "integer")
    if column is None:
        return None
    first, second = condition(rng, table, without=[column]), condition(rng, table, without=[column])
    if first is None or second is None or first.words == second.words:
        return None
    found = {value for test in (first.test, second.test) for value in present(filter(test, table.records), column)}
    phrases = column.phrases if column.kind == "category" else f"values of the {column.phrase}"
    question = rng.choice(
        (
            "How many different {1} are found among the {0} {2} or the {0} {3}, taken together?",
            "Take the {1} of the {0} {2} and those of the {0} {3}: how many distinct ones are there in all?",
        )
    )
    sql = (
        f"SELECT count({column.name}) FROM (SELECT {column.name} FROM {table.name} WHERE {first.sql()} "
        f"UNION SELECT {column.name} FROM {table.name} WHERE {second.sql()})"
    )
    return Draft(question.format(table.plural, phrases, first.words, second.words), sql, [(len(found),)])


@VALIDATION.add("set", "hard")
def parents_with_one_kind_only(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None:
        return None
    first, second = condition(rng, link.child), condition(rng, link.child)
    if first is None or second is None or first.words == second.words:
        return None
    keys = [
        key
        for key, children in link.children().items()
        if any(map(first.test, children)) and not any(map(second.test, children))
    ]
    question = rng.choice(
        (
            "Give the {4} of the {0} that have {1} {2} but none {3}.",
            "Which {0} have {1} {2}, yet no {1} {3}? Show the {4}.",
        )
    )
    side = f"SELECT {link.column.name} FROM {link.child.name} WHERE {link.column.name} IS NOT NULL AND"
    key = link.parent.key
    sql = f"{side} {first.sql()} EXCEPT {side} {second.sql()}"
    phrase = f"{link.parent.singular} {key.phrase}"
    words = (link.parent.plural, link.child.plural, first.words, second.words, phrase)
    return Draft(question.format(*words), sql, [(value,) for value in keys])
