"""Words that names and titles are made of."""

GIVEN_NAMES = (
    "Aïcha", "Alma", "Anders", "Ayşe", "Bea", "Björn", "Carmen", "Chiara", "Dario", "Dmitri", "Elif", "Emre", "Esra",
    "Farid", "Fatou", "Gita", "Greta", "Hana", "Håkon", "Ilse", "Inés", "Ivo", "Jana", "João", "Kaito", "Kira", "Lars",
    "Léa", "Lin", "Luka", "Maja", "Mateo", "Milo", "Mina", "Nadia", "Nils", "Noor", "Olga", "Omar", "Oskar", "Paula",
    "Petra", "Rafael", "Ravi", "Rosa", "Sana", "Søren", "Stella", "Tariq", "Tove", "Uma", "Vera", "Yuki", "Zoë",
)  # fmt: skip
SURNAMES = (
    "Abreu", "Adeyemi", "Akın", "Almeida", "Bakker", "Banerjee", "Berg", "Blanc", "Çelik", "Costa", "Dahl", "Diallo",
    "Dvořák", "Eriksen", "Falk", "Ferrari", "Fischer", "Gallo", "García", "Haddad", "Horváth", "Ito", "Jansen", "Kaya",
    "Keller", "Kovač", "Larsen", "Lindqvist", "López", "Marin", "Mbeki", "Moreau", "Müller", "Nakata", "Novák", "Nuñez",
    "Okafor", "Olsen", "Petrov", "Quist", "Rao", "Rossi", "Sato", "Silva", "Šimić", "Suzuki", "Tanaka", "Vargas",
    "Weber", "Yılmaz", "Zhao",
)  # fmt: skip
CITIES = (
    "Ålesund", "Bergamo", "Coimbra", "Düsseldorf", "Évora", "Fukuoka", "Ghent", "Győr", "Haifa", "İzmir", "Kraków",
    "Leeds", "Málaga", "Nantes", "Odense", "Porto", "Quito", "Rennes", "Split", "Tartu", "Utrecht", "Vaasa",
    "Winterthur", "Zadar",
)  # fmt: skip
COUNTRIES = (
    "Argentina", "Belgium", "Chile", "Denmark", "Estonia", "Finland", "Ghana", "Hungary", "Iceland", "Japan", "Kenya",
    "Latvia", "Mexico", "Nepal", "Portugal", "Senegal", "Türkiye", "Uruguay",
)  # fmt: skip
ADJECTIVES = (
    "Amber", "Ancient", "Bitter", "Blue", "Bright", "Broken", "Distant", "Early", "Empty", "Frozen", "Gentle", "Golden",
    "Hidden", "Hollow", "Little", "Long", "Lost", "Narrow", "Northern", "Open", "Pale", "Quiet", "Red", "Restless",
    "Silent", "Silver", "Slow", "Small", "Southern", "Steep", "Still", "Stolen", "Sudden", "Sunken", "Tall", "Thin",
    "Twin", "Velvet", "Wandering", "White", "Wild", "Winter",
)  # fmt: skip
NOUNS = (
    "Anchor", "Bridge", "Canal", "Cedar", "Clock", "Comet", "Crossing", "Door", "Ember", "Fable", "Ferry", "Field",
    "Garden", "Gate", "Glacier", "Harbour", "Hill", "Island", "Lantern", "Letter", "Lighthouse", "Map", "Meadow",
    "Mirror", "Moon", "Mountain", "Orchard", "Path", "Pebble", "Pier", "Rain", "River", "Road", "Rope", "Sail",
    "Season", "Shore", "Song", "Stair", "Station", "Stone", "Storm", "Tide", "Tower", "Valley", "Wharf", "Window",
    "Wood",
)  # fmt: skip
GOODS = (
    "Backpack", "Basket", "Blanket", "Bottle", "Bowl", "Brush", "Candle", "Chair", "Clock", "Cushion", "Desk", "Drill",
    "Fan", "Frame", "Hammer", "Jacket", "Kettle", "Ladder", "Lamp", "Mug", "Notebook", "Pan", "Pen", "Pillow", "Plate",
    "Rug", "Scarf", "Shelf", "Spoon", "Stool", "Teapot", "Tent", "Towel", "Tray", "Umbrella", "Vase",
)  # fmt: skip
PETS = (
    "Ash", "Bandit", "Biscuit", "Cleo", "Cosmo", "Daisy", "Domino", "Figaro", "Ginger", "Hazel", "Juno", "Kiwi", "Luna",
    "Mango", "Maple", "Miso", "Mochi", "Nala", "Olive", "Pepper", "Pixel", "Poppy", "Rocky", "Sesame", "Shadow",
    "Toffee", "Tofu", "Waffle", "Ziggy",
)  # fmt: skip
SUBJECTS = (
    "Acoustics", "Algebra", "Anatomy", "Astronomy", "Botany", "Calculus", "Cartography", "Chemistry", "Cryptography",
    "Drawing", "Ecology", "Economics", "Ethics", "Genetics", "Geology", "Geometry", "Grammar", "Hydrology",
    "Linguistics", "Logic", "Mechanics", "Metallurgy", "Meteorology", "Optics", "Phonetics", "Physiology", "Poetics",
    "Rhetoric", "Robotics", "Statistics", "Surveying", "Thermodynamics", "Topology", "Virology",
)  # fmt: skip
