"""What a tool-call task is: a conversation, the tools, and what is expected of the model at each of its turns."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue

from rolloutgym.models import Message, TaskInfo, ToolSpec

Scenario = Literal["single", "multistep", "multiturn", "relevance"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ArgumentRule(_Frozen):
    """How one argument is compared, where plain equality is too strict."""

    kind: Literal["exact", "any_of", "regex", "number", "similarity", "ignore", "unordered"]
    values: tuple[JsonValue, ...] = ()
    """Accepted values (`any_of`)."""
    pattern: str = ""
    """Regular expression in RE2's syntax for the whole text (`regex`)."""
    tolerance: Annotated[FiniteFloat, Field(ge=0)] = 0.0
    """Absolute (`number`)."""
    threshold: Annotated[FiniteFloat, Field(gt=0, le=1)] = 1.0
    """Least ratio (`similarity`)."""


class ExpectedCall(_Frozen):
    name: str
    arguments: dict[str, JsonValue]
    possible: dict[str, tuple[JsonValue, ...]] | None = None
    """BFCL's acceptable values by argument; an empty text among them means that the argument may be left out."""
    rules: dict[str, ArgumentRule] = Field(default_factory=dict)


class Turn(_Frozen):
    """One judged turn of the model."""

    expect: Literal["calls", "none", "any"]
    calls: tuple[ExpectedCall, ...] = ()
    order: Literal["ordered", "any"] = "any"
    then: tuple[Message, ...] = ()
    """What the data set puts after the turn: tool responses (in the order of `calls`, where there is one for each), the
    next user message; never the gold one."""
    narration: bool = False
    """A turn of mere talk (`expect` is `none`): it is the model's only where narration turns are asked for. Otherwise
    `reply` stands in its place, which keeps the conversation whole."""
    reply: str = ""
    """What the data set's assistant wrote at this turn, calls left out. Of a judged turn it is never shown."""


class BackendState(_Frozen):
    """The executable back end of an item, and where it starts."""

    name: str
    initial: dict[str, JsonValue] = Field(default_factory=dict)
    required_outputs: tuple[str, ...] = ()
    """Texts that the tool responses or the model's replies must have shown by the end."""


class Item(_Frozen):
    id: str
    group: str
    """Items of one group (a scenario, its variants) share a split."""
    split: Literal["train", "validation", "test"]
    license: str = ""
    tools: tuple[ToolSpec, ...]
    """What the model may call from the start."""
    later_tools: tuple[ToolSpec, ...] = ()
    """Tools that a message in some `then` announces; not shown before."""
    history: tuple[Message, ...]
    """What was said before the first judged turn; ends with a user or tool message."""
    steps: Annotated[tuple[Turn, ...], Field(min_length=1)]
    scenario: Scenario
    tags: dict[str, str | int | float | bool] = Field(default_factory=dict)
    backend: BackendState | None = None

    def info(self) -> TaskInfo:
        return TaskInfo(id=self.id, split=self.split, tags={**self.tags, "scenario": self.scenario})

    def fingerprint(self) -> bytes:
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(frozen=True)
class ItemProblem:
    """An item that was left out at load, and why."""

    id: str
    reason: str
    """Of a row of a file: the file and line first."""


def expected_calls(item: Item) -> int:
    """N: the number of calls that the item expects in all."""
    return sum(len(turn.calls) for turn in item.steps)
