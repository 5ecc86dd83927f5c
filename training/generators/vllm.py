"""Turns from the vLLM that TRL runs for its trainer, in colocate and in server mode.

TRL's generation is a collective call: every process must make it equally often and with equally many prompts. So each
turn first tells all processes how many tokens are still wanted; rows that have ended send a dummy prompt, and a process
whose rows have all ended goes on taking part until nobody wants anything. vLLM's own prefix cache stands for ours.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from rolloutgym.training.chat import Encoder
from rolloutgym.training.generators.base import Conversation, Sampled, TokenBatch
from rolloutgym.training.stops import StopTags, end_of_turn_ids
from rolloutgym.training.traces import Trace


class VLLMGenerator:
    """`generation` is the trainer's `vllm_generation`, whose weights TRL has brought up to date before the rollout."""

    def __init__(
        self,
        generation: Any,
        tokenizer: PreTrainedTokenizerBase,
        encoder: Encoder,
        *,
        stop_tags: Sequence[str] = (),
        model_eos: int | Sequence[int] | None = None,
        context_tokens: int | None = None,
    ) -> None:
        """`ValueError` for sampling filters: vLLM then reports log-probabilities of the filtered distribution, which
        the loss does not compute."""
        if (generation.top_k or 0) > 0 or generation.top_p < 1 or (generation.min_p or 0) > 0:
            raise ValueError("top_k, top_p and min_p would make vLLM's log-probabilities others than the loss's")
        self._generation = generation
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._stops = StopTags(tokenizer, stop_tags)
        self._eos_ids = end_of_turn_ids(tokenizer, model_eos)
        self._context_tokens = context_tokens

    @property
    def context_tokens(self) -> int | None:
        return self._context_tokens

    def begin(self, conversations: Sequence[Conversation | None]) -> TokenBatch:
        sampler = _CollectiveSampler(self._generation, self._eos_ids, self._stops, len(conversations))
        return TokenBatch(conversations, self._tokenizer, self._encoder, sampler)


class _CollectiveSampler:
    def __init__(self, generation: Any, eos_ids: frozenset[int], stops: StopTags, rows: int) -> None:
        self._generation = generation
        self._stops = stops
        self._rows = rows
        self._eos_ids = eos_ids
        self._dummy = [min(eos_ids)]

    def sample(self, traces: Mapping[int, Trace], budgets: Mapping[int, int]) -> dict[int, Sampled]:
        answers = self._take_part({row: trace.ids_from(0) for row, trace in traces.items()}, max(budgets.values()))
        assert answers is not None  # this process wanted tokens
        ids_of_row, logprobs_of_row = answers
        return {row: self._turn(ids_of_row[row], logprobs_of_row[row], budgets[row]) for row in traces}

    def close(self) -> None:
        while self._take_part({}, 0) is not None:
            pass

    def _take_part(self, prompts: Mapping[int, list[int]], wanted: int) -> tuple[list[Any], list[Any]] | None:
        """One collective call; None once no process wants a token. `wanted`: most tokens that this one needs."""
        most = max(gather_object([wanted]))
        if most == 0:
            return None
        padded = [prompts.get(row, self._dummy) for row in range(self._rows)]
        with self._settings(most):
            _, ids, logprobs, _ = self._generation.generate(prompts=padded, images=None, num_generations=1)
        if logprobs is None:
            raise ValueError("vLLM returned no log-probabilities")
        return ids, logprobs

    def _turn(self, ids: Sequence[int], logprobs: Sequence[Sequence[float | None]], budget: int) -> Sampled:
        kept = list(ids[:budget])
        own = [math.nan if best[0] is None else best[0] for best in logprobs[:budget]]
        if kept[-1] in self._eos_ids:
            return Sampled(kept, own, "end_of_turn")
        return Sampled(kept, own, "stop_tag" if self._stops.complete(kept) else "budget")

    @contextmanager
    def _settings(self, max_tokens: int) -> Iterator[None]:
        """TRL's generation has no arguments of the call for these."""
        generation = self._generation
        before = generation.max_completion_length, generation.generation_kwargs
        generation.max_completion_length = max_tokens
        if self._stops.tags:
            stop = {"stop": list(self._stops.tags), "include_stop_str_in_output": True}
            generation.generation_kwargs = {**(before[1] or {}), **stop}
        try:
            yield
        finally:
            generation.max_completion_length, generation.generation_kwargs = before
