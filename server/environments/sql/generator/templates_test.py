"""The questions to test on: none of them has the form of a training or a validation question."""

import random
from collections import Counter
from fractions import Fraction

from rolloutgym.server.environments.sql.generator.drafts import (
    Draft,
    Registry,
    amount,
    category_condition,
    condition,
    is_tied,
    mean,
    numbers,
    present,
    ranked,
    some,
    some_link,
    some_table,
    text_order,
    to_decimals,
    total,
)
from rolloutgym.server.environments.sql.generator.schema import Domain

TEST = Registry()


@TEST.add("single", "easy")
def count_either(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    first, second = category_condition(rng, table, column), category_condition(rng, table, column)
    if first.words == second.words:
        return None
    question = rng.choice(("How many {0} are there {1} or {2}?", "Count all {0} {1} or {2}."))
    values = f"{first.operator.removeprefix('= ')}, {second.operator.removeprefix('= ')}"
    sql = f"SELECT count(*) FROM {table.name} WHERE {column.name} IN ({values})"
    found = sum(first.test(record) or second.test(record) for record in table.records)
    return Draft(question.format(table.plural, first.words, second.words), sql, [(found,)])


@TEST.add("single", "medium")
def spread(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (column := some(rng, table, "integer")) is None or (where := condition(rng, table, without=[column])) is None:
        return None
    values = numbers(filter(where.test, table.records), column)
    if not values:
        return None
    question = rng.choice(
        (
            "What is the difference between the highest and the lowest {1} of the {0} {2}?",
            "By how much does the maximum {1} exceed the minimum among the {0} {2}?",
        )
    )
    sql = f"SELECT max({column.name}) - min({column.name}) FROM {table.name} WHERE {where.sql()}"
    return Draft(question.format(table.plural, column.phrase, where.words), sql, [(max(values) - min(values),)])


@TEST.add("single", "medium")
def percentage(domain: Domain, rng: random.Random) -> Draft | None:
    table = rng.choice(domain.tables)
    if (where := condition(rng, table)) is None:
        return None
    share = to_decimals(Fraction(100 * sum(map(where.test, table.records)), len(table.records)), 1)
    if share is None:
        return None
    question = rng.choice(
        (
            "What percentage of all {0} are {0} {1}? Round it to one decimal.",
            "Of all {0}, how many percent are those {1}, rounded to one decimal?",
        )
    )
    sql = f"SELECT round(100.0 * sum(CASE WHEN {where.sql()} THEN 1 ELSE 0 END) / count(*), 1) FROM {table.name}"
    return Draft(question.format(table.plural, where.words), sql, [(share,)])


@TEST.add("order", "easy")
def starting_with(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None:
        return None
    letter = str(rng.choice(table.records)[label.name])[0]
    # SQLite's LIKE folds ASCII letters only, and all labels start with a capital or a digit.
    if not letter.isascii() or not letter.isalpha():
        return None
    question = rng.choice(
        (
            "Which {1} of the {0} begin with the letter {2}? Name each once, in alphabetical order.",
            "List, alphabetically and without repetition, the {1} of the {0} that start with {2}.",
        )
    )
    sql = f"SELECT DISTINCT {label.name} FROM {table.name} WHERE {label.name} LIKE '{letter}%' ORDER BY {label.name}"
    found = {(name,) for record in table.records if (name := str(record[label.name])).startswith(letter)}
    return Draft(question.format(table.plural, label.phrases, letter), sql, text_order(found))


@TEST.add("order", "medium")
def the_last_few(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, labelled=True)
    if table is None or (label := table.label) is None or (column := some(rng, table, "date", "integer")) is None:
        return None
    cut = rng.randint(2, 5)
    records = ranked(table.records, column, descending=False)
    if is_tied([record[column.name] for record in records], cut):
        return None
    question = rng.choice(
        (
            "Starting from the lowest {2}, give the {1} of the first {3} {0}.",
            "Sort the {0} by {2} in ascending order, leave out those without one, and show the {1} of the first {3}.",
        )
    )
    sql = (
        f"SELECT {label.name} FROM {table.name} WHERE {column.name} IS NOT NULL ORDER BY {column.name} ASC LIMIT {cut}"
    )
    rows = [(record[label.name],) for record in records[:cut]]
    return Draft(question.format(table.plural, label.phrase, column.phrase, cut), sql, rows)


@TEST.add("group", "medium")
def distinct_by_category(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None:
        return None
    other = some(rng, table, "integer", "ref", "category")
    if other is None or other is column:
        return None
    if other.kind == "ref":
        what = domain.table(other.parent).plural
    else:
        what = other.phrases if other.kind == "category" else f"values of the {other.phrase}"
    groups: dict[object, set[object]] = {}
    for record in table.records:
        if record[column.name] is not None:
            groups.setdefault(record[column.name], set()).add(record[other.name])
    question = rng.choice(
        (
            "For every {1} of the {0}, how many different {2} are there? Ignore {0} without a {1}.",
            "Count the distinct {2} per {1} of the {0}, leaving out a missing {1}.",
        )
    )
    sql = (
        f"SELECT {column.name}, count(DISTINCT {other.name}) FROM {table.name} "
        f"WHERE {column.name} IS NOT NULL GROUP BY {column.name}"
    )
    rows = [(str(name), len(values - {None})) for name, values in groups.items()]
    return Draft(question.format(table.plural, column.phrase, what), sql, rows)


@TEST.add("group", "medium")
def count_by_year(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "date")
    if table is None or (column := some(rng, table, "date")) is None or (where := condition(rng, table)) is None:
        return None
    years = Counter(str(day)[:4] for day in present(filter(where.test, table.records), column))
    question = rng.choice(
        (
            "Per year of the {1}, how many {0} {2} are there? Give the year as four digits; skip years with none.",
            "Count the {0} {2} for each four-digit year of their {1}, leaving out those without a date.",
        )
    )
    sql = (
        f"SELECT strftime('%Y', {column.name}), count(*) FROM {table.name} WHERE {where.sql()} "
        f"AND {column.name} IS NOT NULL GROUP BY strftime('%Y', {column.name})"
    )
    return Draft(question.format(table.plural, column.phrase, where.words), sql, list(years.items()))


@TEST.add("group", "hard")
def having_high_average(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None or (value := amount(rng, table)) is None:
        return None
    averages = {
        name: mean(numbers((record for record in table.records if record[column.name] == name), value))
        for name in set(present(table.records, column))
    }
    known = {name: average for name, average in averages.items() if average is not None}
    bound = int(sum(known.values(), Fraction()) / len(known))
    if any(abs(average - bound) < Fraction(1, 1000) for average in known.values()):
        return None
    question = rng.choice(
        (
            "For which {1} is the average {2} of the {0} above {3}?",
            "List the {1} whose {0} have a mean {2} greater than {3}.",
        )
    )
    sql = (
        f"SELECT {column.name} FROM {table.name} WHERE {column.name} IS NOT NULL "
        f"GROUP BY {column.name} HAVING avg({value.name}) > {bound}"
    )
    rows = [(name,) for name, average in known.items() if average > bound]
    return Draft(question.format(table.plural, column.phrases, value.phrase, bound), sql, rows)


@TEST.add("join", "hard")
def ranking_of_parents(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain, "integer")
    if link is None or (value := amount(rng, link.child, "integer")) is None:
        return None
    sums = {key: int(total(numbers(children, value))) for key, children in link.children().items()}
    best = sorted(((number, key) for key, number in sums.items()), key=lambda pair: pair[0], reverse=True)
    cut = rng.randint(2, 4)
    if is_tied([number for number, _ in best], cut) or best[cut - 1][0] <= 0:
        return None
    label = link.parent_label
    names = {record[link.parent.key.name]: record[label.name] for record in link.parent.records}
    question = rng.choice(
        (
            "Rank the {1} by the sum of the {3} of their {2} and show the {0} of the top {4}, with that sum.",
            "Which {4} {1} have the largest total of the {3} of {2}? Give {0} and total, largest first.",
        )
    )
    sql = (
        f"SELECT T2.{label.name}, sum(T1.{value.name}) FROM {link.join()} "
        f"GROUP BY T2.{link.parent.key.name} ORDER BY sum(T1.{value.name}) DESC LIMIT {cut}"
    )
    words = (label.phrase, link.parent.plural, link.child.plural, value.phrase, cut)
    return Draft(question.format(*words), sql, [(names[key], number) for number, key in best[:cut]])


@TEST.add("join", "hard")
def conditions_on_both_sides(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None:
        return None
    child_where, parent_where = condition(rng, link.child), condition(rng, link.parent)
    if child_where is None or parent_where is None:
        return None
    found = sum(child_where.test(child) and parent_where.test(parent) for child, parent in link.pairs())
    question = rng.choice(
        (
            "How many of the {0} {4} are {1} {2} {3}?",
            "Count those {0} {4} that are {1} {2} {3}.",
        )
    )
    sql = f"SELECT count(*) FROM {link.join()} WHERE {child_where.sql('T1.')} AND {parent_where.sql('T2.')}"
    words = (link.child.plural, link.column.of, link.parent.plural, parent_where.words, child_where.words)
    return Draft(question.format(*words), sql, [(found,)])


@TEST.add("join", "hard")
def two_parents(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None or (other := some_link(rng, domain, child=link.child)) is None or other.column is link.column:
        return None
    first, second = condition(rng, link.parent), condition(rng, other.parent)
    if first is None or second is None:
        return None
    others = {child[other.column.name] for child, parent in other.pairs() if second.test(parent)}
    found = sum(first.test(parent) and child[other.column.name] in others for child, parent in link.pairs())
    question = rng.choice(
        (
            "How many {0} are both {1} {2} {3} and {4} {5} {6}?",
            "Count the {0} that are {1} {2} {3} and at the same time {4} {5} {6}.",
        )
    )
    sql = (
        f"SELECT count(*) FROM {link.join()} JOIN {other.parent.name} AS T3 "
        f"ON T1.{other.column.name} = T3.{other.parent.key.name} WHERE {first.sql('T2.')} AND {second.sql('T3.')}"
    )
    words = (
        link.child.plural, link.column.of, link.parent.plural, first.words,
        other.column.of, other.parent.plural, second.words,
    )  # fmt: skip
    return Draft(question.format(*words), sql, [(found,)])


@TEST.add("subquery", "hard")
def average_count(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None:
        return None
    counts = [len(children) for children in link.children().values() if children]
    average = to_decimals(mean(counts), 2)
    if average is None:
        return None
    question = rng.choice(
        (
            "Per {0}, how many {1} are there on average, counting only {2} with at least one? Round to two decimals.",
            "Counting only {2} with some {1}, what is the average number of {1} per {0}, to two decimals?",
        )
    )
    sql = (
        f"SELECT round(avg(n), 2) FROM (SELECT count(*) AS n FROM {link.child.name} "
        f"WHERE {link.column.name} IS NOT NULL GROUP BY {link.column.name})"
    )
    words = (link.parent.singular, link.child.plural, link.parent.plural)
    return Draft(question.format(*words), sql, [(average,)])


@TEST.add("subquery", "extra")
def above_own_group(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None or (column := some(rng, table, "category")) is None or (value := amount(rng, table)) is None:
        return None
    if len(table.records) > 1000:
        return None  # a correlated sub-query over a large table is slow
    found = 0
    for name in set(present(table.records, column)):
        values = numbers((record for record in table.records if record[column.name] == name), value)
        average = float(mean(values) or 0)
        if any(abs(number - average) < 1e-6 for number in values):
            return None
        found += sum(number > average for number in values)
    question = rng.choice(
        (
            "How many {0} have a {2} above the average {2} of the {0} with the same {1}?",
            "Count the {0} whose {2} is greater than the mean {2} within their own {1}.",
        )
    )
    sql = (
        f"SELECT count(*) FROM {table.name} AS T1 WHERE T1.{value.name} > "
        f"(SELECT avg(T2.{value.name}) FROM {table.name} AS T2 WHERE T2.{column.name} = T1.{column.name})"
    )
    return Draft(question.format(table.plural, column.phrase, value.phrase), sql, [(found,)])


@TEST.add("set", "hard")
def parents_with_both(domain: Domain, rng: random.Random) -> Draft | None:
    link = some_link(rng, domain)
    if link is None:
        return None
    first, second = condition(rng, link.child), condition(rng, link.child)
    if first is None or second is None or first.words == second.words:
        return None
    found = sum(
        any(map(first.test, children)) and any(map(second.test, children)) for children in link.children().values()
    )
    question = rng.choice(
        (
            "How many {0} have both {1} {2} and {1} {3}?",
            "Count the {0} that have at least one of the {1} {2} as well as one {3}.",
        )
    )
    side = f"SELECT {link.column.name} FROM {link.child.name} WHERE {link.column.name} IS NOT NULL AND"
    sql = f"SELECT count(*) FROM ({side} {first.sql()} INTERSECT {side} {second.sql()})"
    words = (link.parent.plural, link.child.plural, first.words, second.words)
    return Draft(question.format(*words), sql, [(found,)])


@TEST.add("set", "hard")
def two_counts_at_once(domain: Domain, rng: random.Random) -> Draft | None:
    table = some_table(rng, domain, "category")
    if table is None:
        return None
    first, second = condition(rng, table), condition(rng, table)
    if first is None or second is None or first.words == second.words:
        return None
    counts = [("first", sum(map(first.test, table.records))), ("second", sum(map(second.test, table.records)))]
    question = rng.choice(
        (
            "Make a table of two rows: 'first' with the number of {0} {1}, 'second' with that of the {0} {2}.",
            "Give two rows, labelled 'first' and 'second': how many {0} there are {1}, and how many {2}.",
        )
    )
    sql = (
        f"SELECT 'first', count(*) FROM {table.name} WHERE {first.sql()} UNION ALL "
        f"SELECT 'second', count(*) FROM {table.name} WHERE {second.sql()}"
    )
    return Draft(question.format(table.plural, first.words, second.words), sql, counts)
