"""Conversions of units and currencies, and sums. Rates stand in the state; nothing changes it."""

from typing import Annotated, ClassVar

from pydantic import Field, JsonValue

from rolloutgym.server.environments.toolcall.backends.domain import (
    Domain,
    Record,
    ToolError,
    choice,
    number,
    tool,
    whole,
)

_LENGTH = {"m": 1.0, "km": 1000.0, "cm": 0.01, "mile": 1609.344, "foot": 0.3048, "inch": 0.0254}
_MASS = {"kg": 1.0, "g": 0.001, "pound": 0.45359237, "ounce": 0.028349523125}
_VOLUME = {"l": 1.0, "ml": 0.001, "gallon": 3.785411784, "cup": 0.2365882365}
_QUANTITIES = (_LENGTH, _MASS, _VOLUME)
_UNITS = tuple(unit for quantity in _QUANTITIES for unit in quantity)

CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "SEK", "PLN")


class UnitsState(Record):
    rates: dict[str, Annotated[float, Field(gt=0)]]
    """Units of a currency for one euro."""


class Units(Domain[UnitsState]):
    name: ClassVar[str] = "units"
    state_type: ClassVar[type[Record]] = UnitsState

    @tool(
        "Convert a length, mass or volume to another unit.",
        value=number("What to convert.", 0, 1e9),
        from_unit=choice("Unit of the value.", *_UNITS),
        to_unit=choice("Unit wanted.", *_UNITS),
    )
    def convert_units(self, value: float, from_unit: str, to_unit: str) -> JsonValue:
        for quantity in _QUANTITIES:
            if from_unit in quantity and to_unit in quantity:
                return {"value": round(value * quantity[from_unit] / quantity[to_unit], 4), "unit": to_unit}
        raise ToolError(f"{from_unit} cannot be converted to {to_unit}")

    @tool(
        "Convert an amount of money at today's rate.",
        amount=number("What to convert.", 0, 1e9),
        from_currency=choice("Currency of the amount.", *CURRENCIES),
        to_currency=choice("Currency wanted.", *CURRENCIES),
    )
    def convert_currency(self, amount: float, from_currency: str, to_currency: str) -> JsonValue:
        rates = self.state.rates
        if not {from_currency, to_currency} <= rates.keys():
            raise ToolError(f"there is no rate between {from_currency} and {to_currency}")
        return {"amount": round(amount / rates[from_currency] * rates[to_currency], 2), "currency": to_currency}

    @tool(
        "Add a tip to a bill and split it evenly.",
        bill=number("The bill.", 0, 1e6),
        tip_percent=number("Tip in percent of the bill.", 0, 100),
        people=whole("How many share it.", 1, 100),
    )
    def split_bill(self, bill: float, tip_percent: float, people: int) -> JsonValue:
        total = bill * (1 + tip_percent / 100)
        return {"total": round(total, 2), "each": round(total / people, 2)}
