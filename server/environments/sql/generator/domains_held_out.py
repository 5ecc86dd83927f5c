"""The databases that are held out: two to validate on, two to test on."""

from rolloutgym.server.environments.sql.generator import words
from rolloutgym.server.environments.sql.generator.schema import (
    Domain,
    Table,
    category,
    code,
    date,
    each_of,
    integer,
    key,
    label,
    made_of,
    ordinal,
    people,
    real,
    ref,
    text,
)


def _clinic() -> Domain:
    return Domain(
        "clinic",
        "validation",
        (
            Table(
                "owners",
                "owner",
                "owners",
                180,
                (
                    key("owner_id"),
                    label("name", "name", people),
                    category("town", "town", words.CITIES[14:22], "living in {}"),
                    text("phone", "phone number", code("0", 7), nulls=0.15),
                ),
            ),
            Table(
                "vets",
                "vet",
                "vets",
                14,
                (
                    key("vet_id"),
                    label("name", "name", people),
                    category(
                        "speciality",
                        "speciality",
                        ("surgery", "dentistry", "general practice"),
                        "specialised in {}",
                        plural="specialities",
                    ),
                    integer("experience", "experience in years", 1, 35),
                ),
            ),
            Table(
                "animals",
                "animal",
                "animals",
                320,
                (
                    key("animal_id"),
                    label("name", "name", made_of(words.PETS)),
                    ref("owner_id", "owners", "owned by"),
                    category(
                        "species",
                        "species",
                        ("dog", "cat", "rabbit", "parrot", "tortoise"),
                        "of the species {}",
                        plural="species",
                    ),
                    date("born_on", "date of birth", "2008-01-01", "2024-06-30", nulls=0.1),
                    real("weight", "weight in kilograms", 0.1, 48, 1, nulls=0.08),
                ),
            ),
            Table(
                "visits",
                "visit",
                "visits",
                1900,
                (
                    key("visit_id"),
                    ref("animal_id", "animals", "of"),
                    ref("vet_id", "vets", "handled by"),
                    date("visited_on", "date", "2020-01-01", "2024-12-31"),
                    real("fee", "fee", 15, 420),
                    category("reason", "reason", ("check-up", "vaccination", "injury", "illness"), "for the reason {}"),
                    integer("duration", "duration in minutes", 10, 95, nulls=0.05),
                ),
            ),
        ),
    )


def _orchard() -> Domain:
    return Domain(
        "orchard",
        "validation",
        (
            Table(
                "growers",
                "grower",
                "growers",
                22,
                (
                    key("grower_id"),
                    label("name", "name", people),
                    category("valley", "valley", ("Upper", "Middle", "Lower"), "in the {} valley"),
                    ordinal("since", "founding year", 1920, 2018, nulls=0.1),
                ),
            ),
            Table(
                "plots",
                "plot",
                "plots",
                95,
                (
                    key("plot_id"),
                    label("code", "code", code("P-", 4)),
                    ref("grower_id", "growers", "farmed by"),
                    real("hectares", "size in hectares", 0.3, 14, 1),
                    category("soil", "soil type", ("clay", "loam", "sand", "chalk"), "on {} soil", nulls=0.06),
                    integer("trees", "number of trees", 40, 2600),
                ),
            ),
            Table(
                "harvests",
                "harvest",
                "harvests",
                1400,
                (
                    key("harvest_id"),
                    ref("plot_id", "plots", "from"),
                    date("picked_on", "picking date", "2019-08-01", "2024-10-31"),
                    category("fruit", "fruit", ("apple", "pear", "plum", "cherry", "quince"), "of the fruit {}"),
                    integer("crates", "number of crates", 1, 160),
                    real("sugar", "sugar content", 8, 21, 1, nulls=0.1),
                ),
            ),
        ),
    )


def _university() -> Domain:
    return Domain(
        "university",
        "test",
        (
            Table(
                "departments",
                "department",
                "departments",
                8,
                (
                    key("department_id"),
                    label("name", "name", each_of([f"School of {word}" for word in words.SUBJECTS[4:12]])),
                    category("campus", "campus", ("North", "South", "City"), "on the {} campus", plural="campuses"),
                    integer("budget", "budget in thousands", 400, 9000),
                ),
            ),
            Table(
                "lecturers",
                "lecturer",
                "lecturers",
                60,
                (
                    key("lecturer_id"),
                    label("name", "name", people),
                    ref("department_id", "departments", "employed by"),
                    category("rank", "rank", ("assistant", "associate", "full"), "with the rank {}"),
                    integer("salary", "yearly salary", 38000, 96000, nulls=0.05),
                    date("hired_on", "hiring date", "1990-01-01", "2024-03-31"),
                ),
            ),
            Table(
                "courses",
                "course",
                "courses",
                120,
                (
                    key("course_id"),
                    label("title", "title", made_of(words.SUBJECTS, ("I", "II", "Seminar", "Laboratory"))),
                    ref("lecturer_id", "lecturers", "taught by"),
                    integer("credits", "number of credits", 2, 12),
                    category("level", "level", ("bachelor", "master", "doctoral"), "at {} level"),
                ),
            ),
            Table(
                "students",
                "student",
                "students",
                500,
                (
                    key("student_id"),
                    label("name", "name", people),
                    ref("department_id", "departments", "enrolled in"),
                    ordinal("entry_year", "year of entry", 2017, 2024),
                    category("country", "country", words.COUNTRIES[8:17], "from {}", plural="countries"),
                    real("grade_average", "grade average", 1, 5, 2, nulls=0.06),
                ),
            ),
            Table(
                "enrolments",
                "enrolment",
                "enrolments",
                3200,
                (
                    ref("student_id", "students", "of"),
                    ref("course_id", "courses", "for"),
                    integer("mark", "mark", 30, 100, nulls=0.07),
                    date("enrolled_on", "date", "2021-09-01", "2024-10-15"),
                ),
                pairs=True,
            ),
        ),
    )


def _league() -> Domain:
    return Domain(
        "league",
        "test",
        (
            Table(
                "stadiums",
                "stadium",
                "stadiums",
                14,
                (
                    key("stadium_id"),
                    label("name", "name", each_of([f"{noun} Park" for noun in words.NOUNS[20:34]])),
                    integer("capacity", "capacity", 4000, 61000),
                    category("surface", "surface", ("grass", "hybrid", "turf"), "with a {} surface"),
                ),
            ),
            Table(
                "clubs",
                "club",
                "clubs",
                20,
                (
                    key("club_id"),
                    label("name", "name", each_of([f"{city} FC" for city in words.CITIES[:20]])),
                    ref("stadium_id", "stadiums", "playing at"),
                    ordinal("founded", "founding year", 1885, 1990),
                    category("kit", "kit colour", ("red", "blue", "white", "green"), "playing in {}"),
                ),
            ),
            Table(
                "players",
                "player",
                "players",
                430,
                (
                    key("player_id"),
                    label("name", "name", people),
                    ref("club_id", "clubs", "playing for", nulls=0.04),
                    category(
                        "position",
                        "position",
                        ("goalkeeper", "defender", "midfielder", "forward"),
                        "in the position {}",
                    ),
                    integer("height", "height in centimetres", 162, 203, nulls=0.05),
                    date("born_on", "date of birth", "1985-01-01", "2006-12-31"),
                    real("market_value", "market value in millions", 0.1, 60, 1),
                ),
            ),
            Table(
                "matches",
                "match",
                "matches",
                380,
                (
                    key("match_id"),
                    ref("stadium_id", "stadiums", "played at"),
                    date("played_on", "date", "2022-08-01", "2024-05-31"),
                    integer("home_goals", "number of home goals", 0, 6),
                    integer("away_goals", "number of away goals", 0, 5),
                    integer("spectators", "number of spectators", 900, 60000, nulls=0.05),
                    category("competition", "competition", ("league", "cup", "friendly"), "in the {}"),
                ),
            ),
            Table(
                "cards",
                "card",
                "cards",
                1500,
                (
                    key("card_id"),
                    ref("match_id", "matches", "shown in"),
                    ref("player_id", "players", "shown to"),
                    category("colour", "colour", ("yellow", "red"), "of the colour {}"),
                    ordinal("minute", "minute", 1, 90),
                ),
            ),
        ),
    )


def held_out_domains() -> tuple[Domain, ...]:
    """The databases, without rows yet."""
    return _clinic(), _orchard(), _university(), _league()
