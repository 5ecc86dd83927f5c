"""The questions to train on."""

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
    total,
    unique_parent,
)
from rolloutgym.server.environments.sql.generator.schema import Domain

TRAIN = Registry()


@TRAIN.add("single", "easy")
def count_all(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    question = rng.choice(("How many {} are there?", "What is the total number of {}?", "Count all {} on record."))
    return Draft(question.format(table.plural), f"SELECT count(*) FROM {table.name}", [(len(table.records),)])


@TRAIN.add("single", "easy")
def count_where(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (where := condition(rng, table)) is None:
        return None
    question = rng.choice(("How many {} {} are there?", "Count the {} {}.", "What is the number of {} {}?"))
    sql = f"SELECT count(*) FROM {table.name} WHERE {where.sql()}"
    return Draft(question.format(table.plural, where.words), sql, [(sum(map(where.test, table.records)),)])


@TRAIN.add("single", "easy")
def count_missing(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    columns = [column for column in table.columns if column.nulls and column.phrase]
    if not columns:
        return None
    column = rng.choice(columns)
    question = rng.choice(("How many {} have no recorded {}?", "For how many {} is the {} missing?"))
    sql = f"SELECT count(*) FROM {table.name} WHERE {column.name} IS NULL"
    missing = len(table.records) - len(present(table.records, column))
    return Draft(question.format(table.plural, column.phrase), sql, [(missing,)])


@TRAIN.add("single", "easy")
def count_distinct(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (column := some(rng, table, "category", "integer")) is None:
        return None
    question = rng.choice(("How many different {1} do the {0} have?", "Count the distinct {1} found among the {0}."))
    sql = f"SELECT count(DISTINCT {column.name}) FROM {table.name}"
    phrases = column.phrases if column.kind == "category" else f"values of the {column.phrase}"
    found = len(set(present(table.records, column)))
    return Draft(question.format(table.plural, phrases), sql, [(found,)])


@TRAIN.add("single", "easy")
def lowest_and_highest(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    column = measure(rng, table)
    if column is None or (where := condition(rng, table, without=[column])) is None:
        return None
    question = rng.choice(
        (
            "What are the lowest and the highest {1} among the {0} {2}?",
            "Give the minimum and the maximum {1} of the {0} {2}.",
        )
    )
    values = numbers(filter(where.test, table.records), column)
    if not values:
        return None
    sql = f"SELECT min({column.name}), max({column.name}) FROM {table.name} WHERE {where.sql()}"
    return Draft(question.format(table.plural, column.phrase, where.words), sql, [(min(values), max(values))])


@TRAIN.add("single", "medium")
def average_rounded(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    column = amount(rng, table)
    if column is None or (where := condition(rng, table, without=[column])) is None:
        return None
    average = to_decimals(mean(numbers(filter(where.test, table.records), column)), 2)
    if average is None:
        return None
    question = rng.choice(
        (
            "What is the average {1} of the {0} {2}, rounded to two decimals?",
            "Compute the mean {1} over all {0} {2} and round it to two decimals.",
            "Rounded to two decimals, what is the average {1} among the {0} {2}?",
        )
    )
    sql = f"SELECT round(avg({column.name}), 2) FROM {table.name} WHERE {where.sql()}"
    return Draft(question.format(table.plural, column.phrase, where.words), sql, [(average,)])


@TRAIN.add("single", "easy")
def sum_where(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    column = amount(rng, table, "integer")
    if column is None or (where := condition(rng, table, without=[column])) is None:
        return None
    values = numbers(filter(where.test, table.records), column)
    if not values:
        return None
    question = rng.choice(("What is the sum of the {1} over all {0} {2}?", "Add up the {1} of the {0} {2}."))
    sql = f"SELECT sum({column.name}) FROM {table.name} WHERE {where.sql()}"
    return Draft(question.format(table.plural, column.phrase, where.words), sql, [(int(total(values)),)])


@TRAIN.add("single", "easy")
def list_distinct(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    question = rng.choice(
        (
            "Which different {1} occur among the {0}? List them in alphabetical order, leaving out missing ones.",
            "List each {2} that some {3} has, once and alphabetically.",
        )
    )
    sql = f"SELECT DISTINCT {column.name} FROM {table.name} WHERE {column.name} IS NOT NULL ORDER BY {column.name}"
    rows = text_order({(value,) for value in present(table.records, column)})
    return Draft(question.format(table.plural, column.phrases, column.phrase, table.singular), sql, rows)


@TRAIN.add("order", "easy")
def list_alphabetically(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    label = table.label
    if label is None or (where := condition(rng, table)) is None:
        return None
    question = rng.choice(
        (
            "List the {1} of every {0} {2}, in alphabetical order.",
            "In alphabetical order, give the {1} of each {0} {2}.",
        )
    )
    sql = f"SELECT {label.name} FROM {table.name} WHERE {where.sql()} ORDER BY {label.name}"
    rows = text_order((record[label.name],) for record in filter(where.test, table.records))
    return Draft(question.format(table.singular, label.phrase, where.words), sql, rows)


@TRAIN.add("order", "medium")
def the_highest(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := measure(rng, table)) is None:
        return None
    descending = rng.random() < 0.6
    records = ranked(table.records, column, descending=descending)
    if is_tied([record[column.name] for record in records], 1):
        return None
    question = rng.choice(("Which {0} has the {3} {2}? Give its {1}.", "Give the {1} of the {0} with the {3} {2}."))
    sql = (
        f"SELECT {label.name} FROM {table.name} WHERE {column.name} IS NOT NULL "
        f"ORDER BY {column.name} {'DESC' if descending else 'ASC'} LIMIT 1"
    )
    extreme = "highest" if descending else "lowest"
    rows = [(records[0][label.name],)]
    return Draft(question.format(table.singular, label.phrase, column.phrase, extreme), sql, rows)


@TRAIN.add("order", "medium")
def the_first_few(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := measure(rng, table)) is None:
        return None
    where = condition(rng, table, without=[column])
    cut = rng.randint(2, 6)
    if where is None:
        return None
    records = ranked(filter(where.test, table.records), column, descending=True)
    if len(records) < cut or is_tied([record[column.name] for record in records], cut):
        return None
    question = rng.choice(
        (
            "Of the {0} {4}, which {3} have the highest {2}? Give {1} and {2}, highest first.",
            "Show the {1} and the {2} of the top {3} {0} {4} by {2}, in descending order.",
        )
    )
    sql = (
        f"SELECT {label.name}, {column.name} FROM {table.name} WHERE {where.sql()} "
        f"ORDER BY {column.name} DESC LIMIT {cut}"
    )
    rows = [(record[label.name], record[column.name]) for record in records[:cut]]
    return Draft(question.format(table.plural, label.phrase, column.phrase, cut, where.words), sql, rows)


@TRAIN.add("order", "medium")
def the_earliest(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "date", labelled=True)
    if table is None or (label := table.label) is None or (column := some(rng, table, "date")) is None:
        return None
    latest = rng.random() < 0.5
    records = ranked(table.records, column, descending=latest)
    if is_tied([record[column.name] for record in records], 1):
        return None
    question = rng.choice(
        (
            "Which {0} has the {3} {2}? Show the {1} and the date.",
            "Give the {1} and the {2} of the {0} whose {2} is the {3}.",
        )
    )
    sql = (
        f"SELECT {label.name}, {column.name} FROM {table.name} WHERE {column.name} IS NOT NULL "
        f"ORDER BY {column.name}{' DESC' if latest else ''} LIMIT 1"
    )
    rows = [(records[0][label.name], records[0][column.name])]
    extreme = "latest" if latest else "earliest"
    return Draft(question.format(table.singular, label.phrase, column.phrase, extreme), sql, rows)


@TRAIN.add("group", "medium")
def count_by_category(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    question = rng.choice(
        (
            "For each {1}, how many {0} are there? Leave out {0} without one.",
            "Show every {1} together with its number of {0}, ignoring {0} for which it is missing.",
        )
    )
    sql = f"SELECT {column.name}, count(*) FROM {table.name} WHERE {column.name} IS NOT NULL GROUP BY {column.name}"
    rows = list(Counter(present(table.records, column)).items())
    return Draft(question.format(table.plural, column.phrase), sql, rows)


@TRAIN.add("group", "medium")
def average_by_category(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None or (value := amount(rng, table)) is None:
        return None
    rows = []
    for name in set(present(table.records, column)):
        members = [record for record in table.records if record[column.name] == name]
        average = to_decimals(mean(numbers(members, value)), 1)
        if average is None:
            return None
        rows.append((name, average))
    question = rng.choice(
        (
            "What is the average {2} of the {0} for each {1}, to one decimal? Leave out {0} whose {1} is missing.",
            "Per {1}, give the mean {2} of the {0}, rounded to one decimal, without those whose {1} is unknown.",
        )
    )
    sql = (
        f"SELECT {column.name}, round(avg({value.name}), 1) FROM {table.name} "
        f"WHERE {column.name} IS NOT NULL GROUP BY {column.name}"
    )
    return Draft(question.format(table.plural, column.phrase, value.phrase), sql, rows)


@TRAIN.add("group", "hard")
def most_common(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    where = condition(rng, table, without=[column])
    if where is None:
        return None
    counts = Counter(present(filter(where.test, table.records), column)).most_common()
    if not counts or is_tied([count for _, count in counts], 1):
        return None
    question = rng.choice(
        (
            "Which {1} is the most common among the {0} {2}?",
            "Among the {0} {2}, which {1} occurs most often?",
        )
    )
    sql = (
        f"SELECT {column.name} FROM {table.name} WHERE {where.sql()} AND {column.name} IS NOT NULL "
        f"GROUP BY {column.name} ORDER BY count(*) DESC LIMIT 1"
    )
    return Draft(question.format(table.plural, column.phrase, where.words), sql, [(counts[0][0],)])


@TRAIN.add("group", "medium")
def having_at_least(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    counts = Counter(present(table.records, column))
    least = rng.choice(sorted(counts.values()))
    question = rng.choice(("Which {1} have at least {2} {0}?", "List the {1} that occur for {2} or more {0}."))
    sql = (
        f"SELECT {column.name} FROM {table.name} WHERE {column.name} IS NOT NULL "
        f"GROUP BY {column.name} HAVING count(*) >= {least}"
    )
    rows = [(name,) for name, count in counts.items() if count >= least]
    return Draft(question.format(table.plural, column.phrases, least), sql, rows)


@TRAIN.add("join", "medium")
def count_of_parent(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (parent := unique_parent(rng, link)) is None:
        return None
    record, name = parent
    question = rng.choice((
        "How many {0} are there {1} the {2} {3}?", "Count the {0} {1} the {2} {3}.",
        "What is the number of {0} {1} the {2} called {3}?",
    ))  # fmt: skip
    sql = f"SELECT count(*) FROM {link.join()} WHERE T2.{link.parent_label.name} = {literal(name)}"
    found = sum(pair[1] is record for pair in link.pairs())
    return Draft(question.format(link.child.plural, link.column.of, link.parent.singular, name), sql, [(found,)])


@TRAIN.add("join", "medium")
def count_of_parents_where(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (where := condition(rng, link.parent)) is None:
        return None
    question = rng.choice(("How many {0} are there {1} {2} {3}?", "Count the {0} {1} {2} {3}."))
    sql = f"SELECT count(*) FROM {link.join()} WHERE {where.sql('T2.')}"
    found = sum(where.test(parent) for _, parent in link.pairs())
    return Draft(question.format(link.child.plural, link.column.of, link.parent.plural, where.words), sql, [(found,)])


@TRAIN.add("join", "medium")
def list_of_parents_where(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain, "label")
    if link is None or (label := link.child.label) is None or (where := condition(rng, link.parent)) is None:
        return None
    other = condition(rng, link.child)
    if other is None:
        return None
    question = rng.choice(
        (
            "List the {4} of the {0} {5} and {1} {2} {3}, in alphabetical order.",
            "Alphabetically, what is the {4} of each of the {0} {5} that are {1} {2} {3}?",
        )
    )
    sql = (
        f"SELECT T1.{label.name} FROM {link.join()} WHERE {where.sql('T2.')} AND {other.sql('T1.')} "
        f"ORDER BY T1.{label.name}"
    )
    rows = text_order(
        (child[label.name],) for child, parent in link.pairs() if where.test(parent) and other.test(child)
    )
    words = (link.child.plural, link.column.of, link.parent.plural, where.words, label.phrase, other.words)
    return Draft(question.format(*words), sql, rows)


@TRAIN.add("join", "hard")
def count_over_two_links(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    further = some_link(rng, domain, child=link.parent) if link is not None else None
    if link is None or further is None or (where := condition(rng, further.parent)) is None:
        return None
    met = {parent[link.parent.key.name] for parent, grandparent in further.pairs() if where.test(grandparent)}
    question = rng.choice(
        (
            "How many {0} are there {1} {2} that are {3} {4} {5}?",
            "Count the {0} {1} those {2} that are {3} {4} {5}.",
        )
    )
    sql = (
        f"SELECT count(*) FROM {link.join()} JOIN {further.parent.name} AS T3 "
        f"ON T2.{further.column.name} = T3.{further.parent.key.name} WHERE {where.sql('T3.')}"
    )
    found = sum(parent[link.parent.key.name] in met for _, parent in link.pairs())
    words = (
        link.child.plural, link.column.of, link.parent.plural,
        further.column.of, further.parent.plural, where.words,
    )  # fmt: skip
    return Draft(question.format(*words), sql, [(found,)])


@TRAIN.add("join", "hard")
def parent_with_most(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (where := condition(rng, link.child)) is None:
        return None
    counts = Counter(parent[link.parent.key.name] for child, parent in link.pairs() if where.test(child)).most_common()
    if not counts or is_tied([count for _, count in counts], 1):
        return None
    label = link.parent_label
    winner = next(record for record in link.parent.records if record[link.parent.key.name] == counts[0][0])
    question = rng.choice(
        (
            "Give the {0} of the {1} with the most {2} {3}, and how many there are.",
            "Which {1} has the largest number of {2} {3}? Show its {0} and that number.",
        )
    )
    sql = (
        f"SELECT T2.{label.name}, count(*) FROM {link.join()} WHERE {where.sql('T1.')} "
        f"GROUP BY T2.{link.parent.key.name} ORDER BY count(*) DESC LIMIT 1"
    )
    words = (label.phrase, link.parent.singular, link.child.plural, where.words)
    return Draft(question.format(*words), sql, [(winner[label.name], counts[0][1])])


@TRAIN.add("join", "hard")
def sum_by_parent_category(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain, "integer")
    if link is None or (column := some(rng, link.parent, "category")) is None:
        return None
    if (value := amount(rng, link.child, "integer")) is None:
        return None
    sums: dict[object, int] = {}
    for child, parent in link.pairs():
        number = child[value.name]
        if parent[column.name] is not None and isinstance(number, int):
            sums[parent[column.name]] = sums.get(parent[column.name], 0) + number
    question = rng.choice(
        (
            "For each {0} of the {1}, what is the sum of the {2} of their {3}? Leave out missing values of either.",
            "Group the {3} by the {0} of their {1} and add up the {2}, leaving out what is missing.",
        )
    )
    sql = (
        f"SELECT T2.{column.name}, sum(T1.{value.name}) FROM {link.join()} WHERE T2.{column.name} IS NOT NULL "
        f"AND T1.{value.name} IS NOT NULL GROUP BY T2.{column.name}"
    )
    rows = [(str(name), number) for name, number in sums.items()]
    return Draft(question.format(column.phrase, link.parent.plural, value.phrase, link.child.plural), sql, rows)


@TRAIN.add("subquery", "hard")
def above_average(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (column := amount(rng, table)) is None:
        return None
    values = numbers(table.records, column)
    average = mean(values)
    if average is None or any(abs(value - float(average)) < 1e-6 for value in values):
        return None
    question = rng.choice(
        (
            "How many {0} have a {1} above the average over all {0}?",
            "Count the {0} whose {1} is greater than the overall average.",
        )
    )
    sql = f"SELECT count(*) FROM {table.name} WHERE {column.name} > (SELECT avg({column.name}) FROM {table.name})"
    found = sum(value > float(average) for value in values)
    return Draft(question.format(table.plural, column.phrase), sql, [(found,)])


@TRAIN.add("subquery", "hard")
def parents_without(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None:
        return None
    found = sum(not children for children in link.children().values())
    question = rng.choice(("How many {0} do not have any {1}?", "Count the {0} for which there are no {1} at all."))
    sql = (
        f"SELECT count(*) FROM {link.parent.name} WHERE {link.parent.key.name} NOT IN "
        f"(SELECT {link.column.name} FROM {link.child.name} WHERE {link.column.name} IS NOT NULL)"
    )
    return Draft(question.format(link.parent.plural, link.child.plural), sql, [(found,)])


@TRAIN.add("subquery", "hard")
def parents_with_some(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (where := condition(rng, link.child)) is None:
        return None
    found = sum(any(map(where.test, children)) for children in link.children().values())
    question = rng.choice(
        (
            "How many {0} have at least one of the {1} {2}?",
            "Count the {0} to which one or more {1} {2} belong.",
        )
    )
    sql = (
        f"SELECT count(*) FROM {link.parent.name} WHERE {link.parent.key.name} IN "
        f"(SELECT {link.column.name} FROM {link.child.name} WHERE {where.sql()})"
    )
    words = (link.parent.plural, link.child.plural, where.words)
    return Draft(question.format(*words), sql, [(found,)])


@TRAIN.add("set", "hard")
def values_in_both(domain: Domain, rng: random.Random) -> Draft | None:
    return _two_sets(domain, rng, "INTERSECT", (
        "Which {1} occur both among the {0} {2} and among the {0} {3}?",
        "List the {1} found for {0} {2} as well as for {0} {3}.",
    ))  # fmt: skip


@TRAIN.add("set", "hard")
def values_in_one(domain: Domain, rng: random.Random) -> Draft | None:
    return _two_sets(domain, rng, "EXCEPT", (
        "Which {1} occur among the {0} {2} but not among the {0} {3}?",
        "List the {1} found for {0} {2}, without those found for {0} {3}.",
    ))  # fmt: skip


def _two_sets(domain: Domain, rng: random.Random, operator: str, questions: tuple[str, str]) -> Draft | None:
    table = rng.choice(domain.tables)
    column = some(rng, table, "category", "integer")
    if column is None:
        return None
    first = condition(rng, table, without=[column])
    second = condition(rng, table, without=[column])
    if first is None or second is None or first.words == second.words:
        return None
    left = set(present(filter(first.test, table.records), column))
    right = set(present(filter(second.test, table.records), column))
    found = left & right if operator == "INTERSECT" else left - right
    if column.nulls:
        known = f" AND {column.name} IS NOT NULL"
        missing = " Leave out missing ones."
    else:
        known = missing = ""
    sql = (
        f"SELECT {column.name} FROM {table.name} WHERE {first.sql()}{known} {operator} "
        f"SELECT {column.name} FROM {table.name} WHERE {second.sql()}{known}"
    )
    phrases = column.phrases if column.kind == "category" else f"values of the {column.phrase}"
    question = rng.choice(questions).format(table.plural, phrases, first.words, second.words) + missing
    return Draft(question, sql, [(value,) for value in found])
