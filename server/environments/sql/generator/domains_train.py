"""The databases to train on."""

from rolloutgym.server.environments.sql.generator import words
from rolloutgym.server.environments.sql.generator.schema import (
    Domain,
    Table,
    category,
    code,
    date,
    each_of,
    email,
    integer,
    key,
    label,
    made_of,
    ordinal,
    people,
    real,
    ref,
    text,
    titles,
)


def _library_shelves() -> tuple[Table, ...]:
    return (
        Table(
            "branches",
            "branch",
            "branches",
            7,
            (
                key("branch_id"),
                label("name", "name", each_of([f"{city} Library" for city in words.CITIES[:7]])),
                category("city", "city", words.CITIES[:4], "in {}", plural="cities"),
                integer("seats", "number of seats", 20, 240),
                date("opened_on", "opening date", "1951-01-01", "2019-12-31", nulls=0.1),
            ),
        ),
        Table(
            "authors",
            "author",
            "authors",
            90,
            (
                key("author_id"),
                label("name", "name", people),
                category("country", "country", words.COUNTRIES[:9], "from {}", nulls=0.08, plural="countries"),
                ordinal("born", "year of birth", 1890, 1995, nulls=0.1),
            ),
        ),
        Table(
            "books",
            "book",
            "books",
            420,
            (
                key("book_id"),
                label("title", "title", titles),
                ref("author_id", "authors", "written by"),
                category(
                    "genre", "genre", ("novel", "essay", "poetry", "history", "travel", "crime"), "of the genre {}"
                ),
                integer("pages", "page count", 60, 900),
                ordinal("published", "publication year", 1930, 2024),
                real("price", "price", 4, 60, nulls=0.05),
            ),
        ),
    )


def _library_lending() -> tuple[Table, ...]:
    return (
        Table(
            "members",
            "member",
            "members",
            260,
            (
                key("member_id"),
                label("full_name", "full name", people),
                ref("branch_id", "branches", "registered at"),
                category("tier", "membership tier", ("basic", "student", "plus", "patron"), "in the {} tier"),
                text("email", "e-mail address", email, nulls=0.2),
                date("joined_on", "joining date", "2012-01-01", "2024-11-30"),
            ),
        ),
        Table(
            "loans",
            "loan",
            "loans",
            2400,
            (
                key("loan_id"),
                ref("book_id", "books", "of"),
                ref("member_id", "members", "taken out by"),
                date("lent_on", "lending date", "2019-01-01", "2024-12-15"),
                date("returned_on", "return date", "2024-01-01", "2024-12-31", nulls=0.12),
                integer("renewals", "number of renewals", 0, 5),
                category(
                    "condition",
                    "condition on return",
                    ("fine", "worn", "damaged"),
                    "returned in {} condition",
                    plural="conditions on return",
                    nulls=0.12,
                ),
            ),
        ),
    )


def _library() -> Domain:
    return Domain("library", "train", (*_library_shelves(), *_library_lending()))


def _shop_goods() -> tuple[Table, ...]:
    return (
        Table(
            "categories",
            "category",
            "categories",
            9,
            (
                key("category_id"),
                label(
                    "name",
                    "name",
                    each_of(
                        ("Kitchen", "Garden", "Office", "Outdoor", "Bath", "Lighting", "Tools", "Textiles", "Décor")
                    ),
                ),
                category("department", "department", ("Home", "Leisure", "Work"), "in the {} department"),
            ),
        ),
        Table(
            "suppliers",
            "supplier",
            "suppliers",
            24,
            (
                key("supplier_id"),
                label("company", "company name", made_of(words.SURNAMES, ("& Sons", "Trading", "GmbH", "S.A."))),
                category("country", "country", words.COUNTRIES[:6], "based in {}", plural="countries"),
                integer("lead_days", "lead time in days", 2, 60, nulls=0.1),
            ),
        ),
        Table(
            "products",
            "product",
            "products",
            260,
            (
                key("product_id"),
                label("name", "name", made_of(words.ADJECTIVES, words.GOODS)),
                ref("category_id", "categories", "in"),
                ref("supplier_id", "suppliers", "supplied by"),
                real("price", "list price", 2, 220),
                integer("stock", "stock level", 0, 400, nulls=0.05),
                real("weight_kg", "weight in kilograms", 0.1, 25, 1, nulls=0.1),
            ),
        ),
    )


def _shop_sales() -> tuple[Table, ...]:
    return (
        Table(
            "customers",
            "customer",
            "customers",
            700,
            (
                key("customer_id"),
                label("name", "name", people),
                category("city", "city", words.CITIES[4:14], "living in {}", plural="cities"),
                category("segment", "segment", ("private", "trade", "school"), "in the {} segment"),
                date("registered_on", "registration date", "2016-01-01", "2024-10-31"),
            ),
        ),
        Table(
            "orders",
            "order",
            "orders",
            6000,
            (
                key("order_id"),
                label("reference", "reference", code("OR-", 6)),
                ref("customer_id", "customers", "placed by"),
                date("ordered_on", "order date", "2021-01-01", "2024-12-31"),
                category(
                    "status",
                    "status",
                    ("delivered", "shipped", "open", "cancelled"),
                    "with the status {}",
                    plural="statuses",
                ),
                category("channel", "channel", ("web", "store", "phone"), "made through the {} channel", nulls=0.04),
                real("shipping", "shipping fee", 0, 25),
            ),
        ),
        Table(
            "order_lines",
            "order line",
            "order lines",
            18000,
            (
                key("line_id"),
                ref("order_id", "orders", "of"),
                ref("product_id", "products", "for"),
                integer("quantity", "quantity", 1, 12),
                integer("discount", "discount in percent", 0, 30, nulls=0.3),
            ),
        ),
    )


def _shop() -> Domain:
    return Domain("shop", "train", (*_shop_goods(), *_shop_sales()))


def _transit_network() -> tuple[Table, ...]:
    return (
        Table(
            "depots",
            "depot",
            "depots",
            6,
            (
                key("depot_id"),
                label("name", "name", each_of([f"{noun} Depot" for noun in words.NOUNS[10:16]])),
                integer("capacity", "capacity", 25, 120),
            ),
        ),
        Table(
            "routes",
            "route",
            "routes",
            30,
            (
                key("route_id"),
                label("code", "code", code("R", 3)),
                ref("depot_id", "depots", "run from"),
                category("mode", "mode", ("bus", "tram", "ferry"), "of the mode {}"),
                real("length_km", "length in kilometres", 3, 48, 1),
                integer("stops_planned", "planned number of stops", 6, 50, nulls=0.1),
            ),
        ),
        Table(
            "stops",
            "stop",
            "stops",
            160,
            (
                key("stop_id"),
                label("name", "name", made_of(words.NOUNS, ("Square", "Street", "Park", "Market", "Quay"))),
                category("zone", "zone", ("A", "B", "C", "D"), "in zone {}"),
                integer("shelters", "number of shelters", 0, 4, nulls=0.07),
            ),
        ),
        Table(
            "route_stops",
            "route stop",
            "route stops",
            600,
            (
                ref("route_id", "routes", "on"),
                ref("stop_id", "stops", "at"),
                ordinal("position", "position", 1, 40),
            ),
            pairs=True,
        ),
    )


def _transit_service() -> tuple[Table, ...]:
    return (
        Table(
            "drivers",
            "driver",
            "drivers",
            85,
            (
                key("driver_id"),
                label("name", "name", people),
                ref("mentor_id", "drivers", "mentored by", nulls=0.3),
                category(
                    "licence",
                    "licence class",
                    ("D", "D1", "DE"),
                    "with a class {} licence",
                    plural="licence classes",
                ),
                date("hired_on", "hiring date", "1998-01-01", "2024-06-30"),
                integer("salary", "monthly salary", 2400, 4300, nulls=0.05),
            ),
        ),
        Table(
            "vehicles",
            "vehicle",
            "vehicles",
            110,
            (
                key("vehicle_id"),
                label("plate", "number plate", code("TR-", 4)),
                ref("depot_id", "depots", "kept at"),
                category("fuel", "fuel", ("diesel", "electric", "hybrid", "hydrogen"), "running on {}"),
                ordinal("built", "year of construction", 2002, 2024),
                integer("seats", "number of seats", 18, 90),
            ),
        ),
        Table(
            "trips",
            "trip",
            "trips",
            5200,
            (
                key("trip_id"),
                ref("route_id", "routes", "on"),
                ref("driver_id", "drivers", "driven by"),
                ref("vehicle_id", "vehicles", "made with", nulls=0.03),
                date("run_on", "date", "2023-01-01", "2024-12-31"),
                integer("passengers", "number of passengers", 0, 180, nulls=0.06),
                integer("delay_minutes", "delay in minutes", -2, 45),
                category(
                    "weather",
                    "weather",
                    ("clear", "rain", "fog", "snow"),
                    "in {} weather",
                    nulls=0.05,
                    plural="kinds of weather",
                ),
            ),
        ),
    )


def _transit() -> Domain:
    return Domain("transit", "train", (*_transit_network(), *_transit_service()))


def _festival_films() -> tuple[Table, ...]:
    return (
        Table(
            "countries",
            "country",
            "countries",
            18,
            (
                key("country_id"),
                label("name", "name", each_of(words.COUNTRIES)),
                category("continent", "continent", ("Europe", "Asia", "Africa", "America"), "in {}"),
            ),
        ),
        Table(
            "directors",
            "director",
            "directors",
            70,
            (
                key("director_id"),
                label("name", "name", people),
                ref("country_id", "countries", "from"),
                ordinal("debut_year", "year of the first film", 1975, 2024, nulls=0.1),
            ),
        ),
        Table(
            "films",
            "film",
            "films",
            190,
            (
                key("film_id"),
                label("title", "title", titles),
                ref("director_id", "directors", "directed by"),
                integer("minutes", "running time in minutes", 58, 205),
                ordinal("year", "year of production", 2012, 2024),
                category(
                    "language",
                    "language",
                    ("Portuguese", "Japanese", "French", "Spanish", "Turkish"),
                    "in {}",
                    nulls=0.05,
                ),
                real("budget", "budget in millions", 0.2, 40, 1, nulls=0.2),
            ),
        ),
        Table(
            "genres",
            "genre",
            "genres",
            8,
            (
                key("genre_id"),
                label(
                    "name",
                    "name",
                    each_of(("drama", "comedy", "thriller", "documentary", "animation", "fantasy", "western", "noir")),
                ),
            ),
        ),
        Table(
            "film_genres",
            "genre entry",
            "genre entries",
            360,
            (
                ref("film_id", "films", "of"),
                ref("genre_id", "genres", "of"),
            ),
            pairs=True,
        ),
    )


def _festival_programme() -> tuple[Table, ...]:
    return (
        Table(
            "venues",
            "venue",
            "venues",
            9,
            (
                key("venue_id"),
                label("name", "name", each_of([f"{word} Hall" for word in words.ADJECTIVES[:9]])),
                category("district", "district", ("Old Town", "Harbour", "Station"), "in the {} district"),
                integer("seats", "number of seats", 60, 900),
            ),
        ),
        Table(
            "screenings",
            "screening",
            "screenings",
            900,
            (
                key("screening_id"),
                ref("film_id", "films", "of"),
                ref("venue_id", "venues", "held at"),
                date("shown_on", "date", "2023-09-01", "2024-09-30"),
                integer("tickets_sold", "number of tickets sold", 0, 600, nulls=0.04),
                real("ticket_price", "ticket price", 4, 18, 1),
                category("slot", "slot", ("matinee", "evening", "late"), "in the {} slot"),
            ),
        ),
        Table(
            "critics",
            "critic",
            "critics",
            40,
            (
                key("critic_id"),
                label("name", "name", people),
                ref("country_id", "countries", "from", nulls=0.1),
                category("medium", "medium", ("radio", "press", "web"), "working for the {}", plural="media"),
            ),
        ),
        Table(
            "reviews",
            "review",
            "reviews",
            1500,
            (
                key("review_id"),
                ref("film_id", "films", "of"),
                ref("critic_id", "critics", "written by"),
                integer("stars", "number of stars", 1, 5),
                integer("word_count", "word count", 80, 1500, nulls=0.1),
            ),
        ),
    )


def _festival_prizes() -> tuple[Table, ...]:
    return (
        Table(
            "juries",
            "jury",
            "juries",
            5,
            (
                key("jury_id"),
                label("name", "name", each_of(("Main", "Debut", "Short", "Audience", "Youth"))),
                ordinal("founded", "founding year", 1984, 2018),
            ),
        ),
        Table(
            "jurors",
            "juror",
            "jurors",
            34,
            (
                key("juror_id"),
                label("name", "name", people),
                ref("jury_id", "juries", "sitting on"),
                category("role", "role", ("member", "chair"), "with the role {}"),
            ),
        ),
        Table(
            "awards",
            "award",
            "awards",
            60,
            (
                key("award_id"),
                label("title", "title", made_of(("Golden", "Silver", "Bronze"), ("Lantern", "Anchor", "Comet"))),
                ref("film_id", "films", "won by"),
                ref("jury_id", "juries", "given by"),
                ordinal("given_in", "award year", 2015, 2024),
                integer("prize", "prize money", 500, 25000, nulls=0.3),
            ),
        ),
    )


def _festival() -> Domain:
    return Domain("festival", "train", (*_festival_films(), *_festival_programme(), *_festival_prizes()))


def _weather() -> Domain:
    return Domain(
        "weather",
        "train",
        (
            Table(
                "regions",
                "region",
                "regions",
                8,
                (
                    key("region_id"),
                    label("name", "name", each_of([f"{word} Coast" for word in words.ADJECTIVES[12:20]])),
                    integer("area", "area in square kilometres", 300, 9000),
                ),
            ),
            Table(
                "stations",
                "station",
                "stations",
                48,
                (
                    key("station_id"),
                    label("name", "name", made_of(words.ADJECTIVES, words.NOUNS)),
                    ref("region_id", "regions", "in"),
                    ordinal("elevation", "elevation in metres", -3, 2900),
                    category("operator", "operator", ("state", "airport", "university"), "run by the {}"),
                    date("started_on", "start of service", "1961-01-01", "2020-12-31", nulls=0.1),
                ),
            ),
            Table(
                "readings",
                "reading",
                "readings",
                9000,
                (
                    key("reading_id"),
                    ref("station_id", "stations", "taken at"),
                    date("taken_on", "date", "2022-01-01", "2024-12-31"),
                    real("temperature", "temperature in degrees", -18, 38, 1, nulls=0.05),
                    real("rain_mm", "rainfall in millimetres", 0, 60, 1, nulls=0.08),
                    integer("humidity", "humidity in percent", 15, 100),
                    category("quality", "quality mark", ("good", "fair", "poor"), "marked as {}"),
                ),
            ),
        ),
    )


def train_domains() -> tuple[Domain, ...]:
    """The databases, without rows yet."""
    return _library(), _shop(), _transit(), _festival(), _weather()
