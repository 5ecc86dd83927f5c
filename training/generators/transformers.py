"""Turns from a transformers model: one key-value cache for the whole multi-turn batch.

Prompts are left-padded; from then on every forward appends a block of columns to the shared cache, right-aligned, and
the attention mask marks which cells of a row are real. A row that waits for the others leaves masked holes; positions
are counted per row, so holes do not exist for the model. Nothing is prefilled twice and nothing is cropped; rows whose
episode ended are dropped from the cache. Suffixes: B = rows, Q = new columns, K = columns in the cache, V = vocabulary.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import DynamicLayer

from rolloutgym.training.chat import ChatEncoder, Encoder
from rolloutgym.training.generators.base import Conversation, Sampled, TokenBatch
from rolloutgym.training.sampling import SamplingParams, draw
from rolloutgym.training.stops import StopTags, end_of_turn_ids
from rolloutgym.training.traces import Trace


class TransformersGenerator:
    """A causal language model with full attention in every layer.

    The model is used as it is: sample inside `evaluation_mode(model)`.
    `seed` makes the draws reproducible; without one they come from torch's global generator.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingParams | None = None,
        *,
        stop_tags: Sequence[str] = (),
        encoder: Encoder | None = None,
        seed: int | None = None,
    ) -> None:
        _require_full_attention(model)
        self.model = model
        self.tokenizer = tokenizer
        self.sampling = sampling or SamplingParams()
        self.stops = StopTags(tokenizer, stop_tags)
        self.encoder = encoder or ChatEncoder(tokenizer)
        self.eos_ids = end_of_turn_ids(tokenizer, _generation_eos(model))
        self.random = None if seed is None else torch.Generator(model.device).manual_seed(seed)

    @property
    def context_tokens(self) -> int | None:
        return getattr(self.model.config, "max_position_embeddings", None)

    def begin(self, conversations: Sequence[Conversation | None]) -> TokenBatch:
        return TokenBatch(conversations, self.tokenizer, self.encoder, CachedSampler(self))


class RoomyLayer(DynamicLayer):
    """A layer's keys and values with free columns behind them.

    What is new is written there, where `DynamicLayer` copies the whole cache for every token. What the model sees,
    `keys` and `values` (B, heads, K, size), is a view of the filled part.
    """

    step = 128
    """Columns by which it grows."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        filled = self.get_seq_length()
        end = filled + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < end:
            self._room = self._grown(self.keys, key_states), self._grown(self.values, value_states)
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, filled:end] = new
        self.keys, self.values = (room[:, :, :end] for room in self._room)
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._room = None

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        batch, heads, columns, size = new.shape
        filled = self.get_seq_length()
        room = new.new_empty(batch, heads, filled + columns + self.step, size)
        if old is not None and filled:
            room[:, :, :filled] = old
        return room


class CachedSampler:
    """The shared cache of one batch, and the loop that draws a turn for every row at once."""

    def __init__(self, generator: TransformersGenerator) -> None:
        self._of = generator
        self._model = generator.model
        self._device = generator.model.device
        self._pad = generator.tokenizer.pad_token_id or 0  # never attended to: any id does
        parameters = inspect.signature(type(_base_model(self._model)).forward).parameters
        # transformers 5.24 renamed the argument; the old name goes in 5.40.
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._last_only: dict[str, int] = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._cache = Cache(layer_class_to_replicate=RoomyLayer)
        self._rows: list[int] | None = None
        self._mask_BK: Tensor
        self._positions_B: Tensor
        self._fed: dict[int, int] = {}

    @torch.no_grad()
    def sample(self, traces: Mapping[int, Trace], budgets: Mapping[int, int]) -> dict[int, Sampled]:
        rows = list(traces)
        self._keep(rows)
        new_ids = [traces[row].ids_from(self._fed.get(row, 0)) for row in rows]
        turns = [_OpenTurn(budgets[row]) for row in rows]
        while True:
            logits_BV = self._forward(new_ids)
            tokens_B, logprobs_B = draw(logits_BV, self._of.sampling, self._of.random)
            for turn, token, logprob in zip(turns, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
                if turn.end is None:
                    turn.add(token, logprob, self._of.eos_ids, self._of.stops)
            if all(turn.end is not None for turn in turns):
                break
            new_ids = [turn.ids[-1:] if turn.end is None else [] for turn in turns]
        # Tokens that were drawn after the last forward of their row are fed with what the environment says.
        for row, turn in zip(rows, turns, strict=True):
            self._fed[row] = len(traces[row]) + len(turn.ids) - 1
        return {row: turn.sampled() for row, turn in zip(rows, turns, strict=True)}

    def close(self) -> None:
        self._cache = Cache(layer_class_to_replicate=RoomyLayer)

    def _keep(self, rows: list[int]) -> None:
        """Drop the rows that are not played any more."""
        if self._rows is not None and rows != self._rows:
            places = torch.tensor([self._rows.index(row) for row in rows], device=self._device)
            self._cache.batch_select_indices(places)
            self._mask_BK, self._positions_B = self._mask_BK[places], self._positions_B[places]
        if self._rows is None:
            self._mask_BK = torch.zeros(len(rows), 0, dtype=torch.long, device=self._device)
            self._positions_B = torch.zeros(len(rows), dtype=torch.long, device=self._device)
        self._rows = rows

    def _forward(self, new_ids: Sequence[Sequence[int]]) -> Tensor:
        """Feed each row its new ids (none: a hole) as one right-aligned block; the logits after the last column."""
        width = max(map(len, new_ids))
        ids_BQ = torch.tensor([[self._pad] * (width - len(ids)) + list(ids) for ids in new_ids], device=self._device)
        lengths_B = torch.tensor([len(ids) for ids in new_ids], device=self._device)
        mask_BQ = (torch.arange(width, device=self._device) >= width - lengths_B[:, None]).long()
        positions_BQ = (self._positions_B[:, None] + mask_BQ.cumsum(-1) - 1).clamp(min=0)
        self._positions_B = self._positions_B + lengths_B
        self._mask_BK = torch.cat([self._mask_BK, mask_BQ], dim=1)
        arguments: dict[str, Any] = {self._cache_name: self._cache, **self._last_only}
        output = self._model(
            input_ids=ids_BQ, attention_mask=self._mask_BK, position_ids=positions_BQ, use_cache=True, **arguments
        )
        logits_BV: Tensor = output.logits[:, -1]
        return logits_BV


class _OpenTurn:
    """A turn of one row while it is being sampled."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.ids: list[int] = []
        self._logprobs: list[float] = []
        self.end: Literal["end_of_turn", "stop_tag", "budget"] | None = None

    def add(self, token: int, logprob: float, eos_ids: frozenset[int], stops: StopTags) -> None:
        self.ids.append(token)
        self._logprobs.append(logprob)
        if token in eos_ids:
            self.end = "end_of_turn"
        elif stops.complete(self.ids):
            self.end = "stop_tag"
        elif len(self.ids) >= self._budget:
            self.end = "budget"

    def sampled(self) -> Sampled:
        return Sampled(self.ids, self._logprobs, self.end or "budget")


def _base_model(model: PreTrainedModel) -> Any:
    """The model below a peft adapter, which passes on arguments that its own signature does not name."""
    below = getattr(model, "get_base_model", None)
    return below() if below else model


def _generation_eos(model: PreTrainedModel) -> int | list[int] | None:
    eos: int | list[int] | None = model.generation_config.eos_token_id if model.generation_config else None
    return eos


def _require_full_attention(model: PreTrainedModel) -> None:
    """Holes in a shared cache would count as part of a sliding window, and a recurrent state has no holes at all."""
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if not kinds and getattr(model.config, "sliding_window", None) is not None:
        kinds = {"sliding_attention"}
    if kinds - {"full_attention"}:
        raise ValueError(f"the model has layers of {', '.join(sorted(kinds))}; only full attention can share one cache")


@contextmanager
def evaluation_mode(model: PreTrainedModel) -> Iterator[None]:
    """No dropout while sampling, and the mode as before afterwards, whatever happens: a trainer whose model stays in
    evaluation mode logs, and even normalises, differently. Gradient checkpointing, which would drop the cache, sleeps
    outside training mode and needs no switch."""
    was_training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(was_training)
