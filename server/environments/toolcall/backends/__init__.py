"""Executable tools: small deterministic state machines that answer a model's calls.

`make` starts an item's back end. A call never raises, whatever the model wrote: what a tool cannot do is its answer,
`{"error": …}`. Tools are found by name in a fixed table; arguments are checked against the tool's schema before any
code sees them. The state is JSON, bounded, and compared by its hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pydantic import JsonValue, ValidationError

from rolloutgym.models import ToolSpec
from rolloutgym.server.environments.toolcall.backends.bank import Bank
from rolloutgym.server.environments.toolcall.backends.calendar import Calendar
from rolloutgym.server.environments.toolcall.backends.contacts import Contacts
from rolloutgym.server.environments.toolcall.backends.domain import Domain, ToolError
from rolloutgym.server.environments.toolcall.backends.files import Files
from rolloutgym.server.environments.toolcall.backends.home import Home
from rolloutgym.server.environments.toolcall.backends.library import Library
from rolloutgym.server.environments.toolcall.backends.notes import Notes
from rolloutgym.server.environments.toolcall.backends.parcels import Parcels
from rolloutgym.server.environments.toolcall.backends.restaurants import Restaurants
from rolloutgym.server.environments.toolcall.backends.schema import InvalidArguments, checked, shown
from rolloutgym.server.environments.toolcall.backends.shop import Shop
from rolloutgym.server.environments.toolcall.backends.tickets import Tickets
from rolloutgym.server.environments.toolcall.backends.travel import Travel
from rolloutgym.server.environments.toolcall.backends.units import Units
from rolloutgym.server.environments.toolcall.backends.weather import Weather
from rolloutgym.server.environments.toolcall.items import BackendState

_ALL: tuple[type[Domain[Any]], ...] = (
    Bank, Calendar, Contacts, Files, Home, Library, Notes, Parcels, Restaurants, Shop, Tickets, Travel, Units, Weather,
)  # fmt: skip
DOMAINS: dict[str, type[Domain[Any]]] = {domain.name: domain for domain in _ALL}

WORLD = "world"
"""The name in `BackendState` of the back end made of these domains; `initial` has one state by domain."""


class Backend(Protocol):
    def call(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """The tool's answer, JSON. Bad arguments and refusals are answers `{"error": text}`; nothing is raised."""
        ...

    def state_hash(self) -> str:
        """Equal for two back ends in equal states."""
        ...


class World:
    """Some of the domains, each with a state of its own."""

    def __init__(self, initial: Mapping[str, JsonValue]) -> None:
        self._domains: list[Domain[Any]] = []
        for name, state in initial.items():
            if name not in DOMAINS:
                raise ValueError(f"there is no back end for {name!r}")
            try:
                own = DOMAINS[name].state_type.model_validate(state)
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]
                raise ValueError(f"state of {name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
            self._domains.append(DOMAINS[name](own))
        self._owner = {tool: domain for domain in self._domains for tool in domain.specs}

    def call(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        domain = self._owner.get(name)
        if domain is None:
            return {"error": f"there is no tool {shown(name)}"}
        try:
            given = checked(arguments, domain.specs[name].function.parameters)
            answer: JsonValue = getattr(domain, name)(**given)
        except (InvalidArguments, ToolError) as error:
            return {"error": str(error)}
        return answer

    def state(self) -> dict[str, JsonValue]:
        """The present state, by domain."""
        return {domain.name: domain.state.model_dump(mode="json") for domain in self._domains}

    def state_hash(self) -> str:
        return hashlib.sha256(json.dumps(self.state(), sort_keys=True).encode()).hexdigest()


def answer_text(answer: JsonValue) -> str:
    """A tool's answer as the content of its message; `required_outputs` are parts of such texts."""
    return json.dumps(answer, ensure_ascii=False)


def make(state: BackendState) -> Backend:
    """A fresh back end in its first state. `ValueError` if there is none of that name."""
    if state.name != WORLD:
        raise ValueError(f"there is no back end {state.name!r}")
    return World(state.initial)


def tool_specs(domains: Iterable[str]) -> list[ToolSpec]:
    """The tools of some domains, in a fixed order."""
    return [spec for name in domains for spec in DOMAINS[name].specs.values()]
