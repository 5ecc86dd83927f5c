"""Numbers with a unit at their end: telling one unit from another. Pure functions on normal forms."""

import re
from typing import NamedTuple

_QUANTITY = re.compile(r"(?P<number>.*[\d}])\s*(?P<unit>[A-Za-z]+)")

# Unit, then its other spellings; a plural in -s needs no entry.
_UNITS = """
m meter metre, cm centimeter centimetre, mm millimeter millimetre, km kilometer kilometre, inch inches, ft foot feet,
yd yard, mi mile, g gram, kg kilogram, mg milligram, lb pound, oz ounce, s sec second, min minute, h hr hour, day, week,
month, year yr, dollar usd, cent, euro eur, degree deg, radian rad, liter litre, ml milliliter millilitre, mph, kph
"""
_NAMES: dict[str, str] = {
    spelling: entry.split()[0] for entry in _UNITS.replace("\n", " ").split(",") for spelling in entry.split()
}


class Quantity(NamedTuple):
    number: str
    unit: str
    """One name for all spellings of a unit."""


def split_unit(text: str) -> Quantity | None:
    """`12 cm` as number and unit; None for what does not end in a unit that is known here."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    word = match["unit"].casefold()
    unit = _NAMES.get(word) or _NAMES.get(word.removesuffix("s"))
    return None if unit is None else Quantity(match["number"], unit)
