"""A dialogue in the making: a script writes it line by line, and every call runs on the back end as it is written.

So the tool responses are real, and what the user or the assistant says later can use them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from random import Random
from typing import Any, Literal

from pydantic import JsonValue

from rolloutgym.models import FunctionCall, Message, ToolCall
from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.toolcall.backends import DOMAINS, WORLD, World, answer_text, tool_specs
from rolloutgym.server.environments.toolcall.generator.worlds import initial_state
from rolloutgym.server.environments.toolcall.items import BackendState, ExpectedCall, Item, Turn
from rolloutgym.server.environments.toolcall.scenarios import classify

Split = Literal["train", "validation", "test"]

HELD_OUT: dict[str, Split] = {"parcels": "validation", "library": "test"}
"""Domains that one evaluation split keeps to itself."""


MAX_ATTEMPTS = 20

# Not strftime's: its names depend on the locale.
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class Script:
    """How one kind of dialogue is written. All its variants share a group and so a split."""

    name: str
    write: Callable[["Draft"], None]
    domains: tuple[str, ...]
    split: Split
    variants: int
    executable: bool
    without: tuple[str, ...]
    """Tools that are kept from the model."""
    apart: tuple[str, ...]
    """Domains whose tools would answer what no tool shall answer, or make the expected call doubtful."""


@dataclass
class Dialogue:
    """A finished dialogue, and the first state of all its domains (an item that is not executable does not keep it)."""

    item: Item
    initial: dict[str, JsonValue]


@dataclass
class Draft:
    """What a script writes on."""

    random: Random
    world: World
    variant: int
    conversation: list[Message] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)
    required_outputs: list[str] = field(default_factory=list)

    # -- what is drawn

    def state(self, domain: str) -> dict[str, Any]:
        """The domain's present state, to choose from."""
        state: Any = self.world.state()[domain]
        return state  # type: ignore[no-any-return]

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def pick_record(self, domain: str, kind: str, **fields: JsonValue) -> tuple[str, dict[str, Any]]:
        """An id and record with these field values."""
        records = sorted(self.state(domain)[kind].items())
        found = [(id, r) for id, r in records if all(r[name] == value for name, value in fields.items())]
        return self.random.choice(found)

    def spoken_day(self, day: str) -> str:
        when = date.fromisoformat(day)
        month, weekday = MONTHS[when.month - 1], WEEKDAYS[when.weekday()]
        european = f"{when.day} {month} {when.year}"
        return str(self.pick((day, european, f"{month} {when.day}, {when.year}", f"{weekday}, {european}")))

    def spoken_clock(self, clock: str) -> str:
        hour, minute = int(clock[:2]), clock[3:]
        twelve = f"{(hour - 1) % 12 + 1}{'' if minute == '00' else ':' + minute} {'am' if hour < 12 else 'pm'}"
        return str(self.pick((clock, twelve)))

    # -- what is said

    def user(self, *wordings: str, **values: object) -> None:
        self._put(Message(role="user", content=self._say(wordings, values)))

    def chat(self, *wordings: str, **values: object) -> None:
        """The assistant talks before its first judged turn."""
        self.history.append(Message(role="assistant", content=self._say(wordings, values)))
        self.conversation.append(self.history[-1])

    def narrate(self, *wordings: str, **values: object) -> None:
        """The assistant talks about what a tool answered."""
        self._turn("none", narration=True, reply=self._say(wordings, values))

    def no_call(self, *wordings: str, **values: object) -> None:
        """The right turn is one without a call: a question back, a refusal, plain talk."""
        self._turn("none", reply=self._say(wordings, values))

    def call(self, tool: str, **arguments: Any) -> Any:
        """One expected call; returns what the tool answers."""
        return self.calls((tool, arguments))[0]

    def calls(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """Several independent calls in one turn, in any order; returns the answers."""
        self._turn("calls", calls=[ExpectedCall(name=tool, arguments=arguments) for tool, arguments in calls])
        return [self._respond(tool, arguments) for tool, arguments in calls]

    def must_show(self, *answers: JsonValue) -> None:
        """Answers that an executable dialogue must have brought to light, whatever path it took."""
        self.required_outputs += [answer_text(answer) for answer in answers]

    def _say(self, wordings: Sequence[str], values: Mapping[str, object]) -> str:
        """The variant's wording: neighbouring variants differ, whatever values are drawn."""
        return wordings[self.variant % len(wordings)].format(**values)

    def _put(self, message: Message) -> None:
        self.conversation.append(message)
        if self.steps:
            self.steps[-1]["then"].append(message)
        else:
            self.history.append(message)

    def _turn(
        self, expect: str, *, calls: Sequence[ExpectedCall] = (), narration: bool = False, reply: str = ""
    ) -> None:
        self.steps.append({"expect": expect, "calls": calls, "then": [], "narration": narration, "reply": reply})
        made = tuple(ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls)
        self.conversation.append(Message(role="assistant", content=reply, tool_calls=made or None))

    def _respond(self, tool: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        answer = self.world.call(tool, arguments)
        self._put(Message(role="tool", name=tool, content=answer_text(answer)))
        return answer


def dialogue(script: Script, variant: int, seed: int) -> Dialogue:
    """One variant of a script. A draft that an executable dialogue could pass without a call (the lamp happens to be at
    the wanted level) is thrown away."""
    for attempt in range(MAX_ATTEMPTS):
        random = seeded_random(seed, "toolcall", script.name, str(variant), str(attempt))
        domains = [*script.domains, *_distractors(script, random)]
        initial: dict[str, JsonValue] = {domain: initial_state(domain, random) for domain in domains}
        draft = Draft(random, World(initial), variant)
        script.write(draft)
        if not script.executable or draft.required_outputs or draft.world.state_hash() != World(initial).state_hash():
            return Dialogue(_item(script, variant, draft, domains, initial), initial)
    raise ValueError(f"script {script.name} changes nothing")


def _item(script: Script, variant: int, draft: Draft, domains: list[str], initial: dict[str, JsonValue]) -> Item:
    tools = [spec for spec in tool_specs(domains) if spec.function.name not in script.without]
    draft.random.shuffle(tools)
    backend = BackendState(name=WORLD, initial=initial, required_outputs=tuple(draft.required_outputs))
    return Item(
        id=f"{script.name}-{variant:02d}",
        group=script.name,
        split=script.split,
        license="MIT",
        tools=tuple(tools),
        history=tuple(draft.history),
        steps=tuple(Turn(**step) for step in draft.steps),
        scenario=classify(draft.conversation),
        tags={
            "domain": "+".join(script.domains),
            "parallel": any(len(step["calls"]) > 1 for step in draft.steps),
            "executable": script.executable,
        },
        backend=backend if script.executable else None,
    )


def _distractors(script: Script, random: Random) -> list[str]:
    """One or two more domains, whose tools are there and not needed."""
    taken = {*script.domains, *script.apart}
    free = [name for name in DOMAINS if name not in taken and HELD_OUT.get(name, script.split) == script.split]
    return random.sample(free, random.choice((1, 1, 2)))
