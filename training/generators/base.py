"""What the rollout loop asks of a model: begin a batch of conversations, take turns, hear the environment.

A `Generator` is a model with its settings; a `Batch` is the state of the conversations that it is playing. Batches of
tokens (`TokenBatch`) keep a `Trace` for every row and differ only in their sampler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue
from transformers import PreTrainedTokenizerBase

from rolloutgym.models import Message, ToolSpec
from rolloutgym.training.chat import Encoder
from rolloutgym.training.stops import decode
from rolloutgym.training.traces import Trace


@dataclass(frozen=True)
class Conversation:
    """How an episode begins."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


class Turn(NamedTuple):
    """What the model said when it was its turn."""

    message: Message
    """As it goes on record: the text as sampled, without a closing end-of-turn token."""
    action: str | dict[str, JsonValue]
    """What to send to the environment."""
    complete: bool
    """Whether the model ended the turn itself; false where it ran into its budget."""
    tokens: int
    context_full: bool = False
    """Whether it was the model's context that cut an incomplete turn."""


class Batch(Protocol):
    """Conversations in progress. Rows are numbered as they were given."""

    def used(self, row: int) -> "Usage": ...

    def generate(self, budgets: Mapping[int, int]) -> dict[int, Turn]:
        """One turn for each named row, of at most so many tokens. A row that is not named has ended for good."""
        ...

    def reply(self, row: int, messages: Sequence[Message], room: int) -> bool:
        """Append what the environment said; false, and nothing appended, if it takes more than `room` tokens."""
        ...

    def trace(self, row: int) -> Trace | None:
        """The row's tokens; None where the model does not show them."""
        ...

    def close(self) -> None:
        """No row will speak again."""
        ...


class Usage(NamedTuple):
    """Tokens of a row so far."""

    prompt: int
    completion: int


class Generator(Protocol):
    @property
    def context_tokens(self) -> int | None:
        """The longest prompt and completion that the model takes together; None where it is not known."""
        ...

    def begin(self, conversations: Sequence[Conversation | None]) -> Batch:
        """Start a batch; None holds the place of an episode that could not be started."""
        ...


# ---- token batches --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sampled:
    """One row's newly sampled tokens, with their log-probabilities, and how the turn ended."""

    ids: list[int]
    logprobs: list[float]
    end: Literal["end_of_turn", "stop_tag", "budget"]


class Sampler(Protocol):
    def sample(self, traces: Mapping[int, Trace], budgets: Mapping[int, int]) -> dict[int, Sampled]:
        """A turn of at least one token for every row of `traces`, which are the ones still played."""
        ...

    def close(self) -> None:
        """No row will speak again."""
        ...


class TokenBatch:
    """Rows of tokens: messages are encoded once, model tokens are kept as sampled."""

    def __init__(
        self,
        conversations: Sequence[Conversation | None],
        tokenizer: PreTrainedTokenizerBase,
        encoder: Encoder,
        sampler: Sampler,
    ) -> None:
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._sampler = sampler
        self._closed_by: dict[int, int | None] = {}
        # A row that never began still has a place in the trainer's batch: one masked token.
        self._filler = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0
        self._traces = [
            Trace(encoder.prompt(conversation.messages, conversation.tools) if conversation else [self._filler])
            for conversation in conversations
        ]

    def used(self, row: int) -> Usage:
        trace = self._traces[row]
        return Usage(len(trace.prompt_ids), len(trace.completion_ids_T))

    def generate(self, budgets: Mapping[int, int]) -> dict[int, Turn]:
        turns: dict[int, Turn] = {}
        sampled = self._sampler.sample({row: self._traces[row] for row in budgets}, budgets)
        for row, said in sampled.items():
            self._traces[row].add_model_tokens(said.ids, said.logprobs)
            closed = said.end == "end_of_turn"
            self._closed_by[row] = said.ids[-1] if closed else None
            spoken = said.ids[:-1] if closed else said.ids
            text = decode(self._tokenizer, spoken)
            turns[row] = Turn(Message(role="assistant", content=text), text, said.end != "budget", len(said.ids))
        return turns

    def reply(self, row: int, messages: Sequence[Message], room: int) -> bool:
        ids = self._encoder.continuation(messages, self._closed_by[row])
        if len(ids) > room:
            return False
        self._traces[row].add_environment_tokens(ids)
        return True

    def trace(self, row: int) -> Trace:
        """The row's tokens; a completion is never empty (a masked end-of-turn token stands for one)."""
        trace = self._traces[row]
        if not trace.completion_ids_T:
            trace.add_environment_tokens([self._filler])
        return trace

    def close(self) -> None:
        self._sampler.close()
