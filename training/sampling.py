"""Choosing the next token of every row: pure functions over a matrix of logits.

Top-k, top-p and min-p shape what is drawn, never what is reported: the log-probability of a draw is that of the full
vocabulary at the temperature, which is what a policy-gradient loss computes again (reporting the truncated one biases
the importance ratio). Suffixes: B = rows, V = vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn. The defaults draw from the model's own distribution."""

    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose probability reaches p; 1 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least this fraction as likely as the most likely one; 0 keeps all."""

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must not be negative, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must not be negative, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], not {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p must be in [0, 1], not {self.min_p}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


class Draw(NamedTuple):
    tokens_B: Tensor
    logprobs_B: Tensor
    """Natural logarithms over the full vocabulary at the temperature (at temperature 1 for greedy draws)."""


def filter_logits(logits_BV: Tensor, params: SamplingParams) -> Tensor:
    """The logits with every token outside top-k, then top-p, then min-p at minus infinity; row by row, a new tensor.

    Each filter sees the distribution that the one before it left, as in transformers. At least one token stays.
    """
    if 0 < params.top_k < logits_BV.size(-1):
        least_B1 = logits_BV.topk(params.top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)
    if params.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(dim=-1)
        outside_BV = sorted_BV.softmax(-1).cumsum(-1) <= 1 - params.top_p
        outside_BV[:, -1] = False
        logits_BV = logits_BV.masked_fill(outside_BV.scatter(-1, order_BV, outside_BV), -torch.inf)
    if params.min_p > 0:
        probs_BV = logits_BV.softmax(-1)
        too_rare_BV = probs_BV < params.min_p * probs_BV.max(dim=-1, keepdim=True).values
        logits_BV = logits_BV.masked_fill(too_rare_BV, -torch.inf)
    return logits_BV


def draw(logits_BV: Tensor, params: SamplingParams, generator: torch.Generator | None = None) -> Draw:
    """One token for every row. `generator` lives on the logits' device; without one the global generator is used."""
    logits_BV = logits_BV.float()
    if params.greedy:
        tokens_B = logits_BV.argmax(-1)
    else:
        logits_BV = logits_BV / params.temperature
        probs_BV = filter_logits(logits_BV, params).softmax(-1)
        tokens_B = torch.multinomial(probs_BV, 1, generator=generator)[:, 0]
    chosen_B = logits_BV.gather(-1, tokens_B[:, None])[:, 0]
    return Draw(tokens_B, chosen_B - logits_BV.logsumexp(-1))
