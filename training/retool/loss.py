r"""The policy loss, and the log-probabilities under it. Pure functions of tensors.

    ratio = exp(logp - logp_old)
    L_t = -min(ratio A, clip(ratio, 1 - ε_low, 1 + ε_high) A) + β KL_t,   KL_t = exp(r) - r - 1,  r = logp_ref - logp

(PPO's clipped objective, arXiv 1707.06347, with DAPO's two bounds, arXiv 2503.14476, and the k3 estimator of the KL
divergence from the reference). Token losses become one number in four ways:

| name      | sum over tokens, divided by                                                                      |
|-----------|--------------------------------------------------------------------------------------------------|
| `bnpo`    | the trained tokens of the optimiser step                                                         |
| `dapo`    | the same (TRL tells them apart by micro-batch; here neither depends on it)                       |
| `grpo`    | each sequence's trained tokens, then the sequences of the step (arXiv 2402.03300)                |
| `dr_grpo` | the sequences of the step times the longest completion allowed (arXiv 2503.20783)               |

Divisors are of the whole optimiser step, so gradients do not depend on the micro-batch size.
Suffixes: B sequences, T completion tokens, H hidden size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LossType = Literal["bnpo", "dapo", "grpo", "dr_grpo"]


@dataclass(frozen=True)
class StepTotals:
    """What one optimiser step trains on, over all its micro-batches and processes."""

    tokens: float
    """Trained tokens."""
    sequences: float
    """Rollouts without a fault, those that are masked for their length among them."""


class TokenLosses(NamedTuple):
    loss_BT: Tensor
    """0 or a constant where the mask is 0, and without a gradient there."""
    kl_BT: Tensor | None
    clipped_low_BT: Tensor
    """Where the ratio fell below 1 - ε_low at a negative advantage, so that its gradient is cut."""
    clipped_high_BT: Tensor
    """Where it rose above 1 + ε_high at a positive advantage."""


def token_losses(
    logps_BT: Tensor,
    old_logps_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    epsilon_low: float,
    epsilon_high: float,
    beta: float = 0.0,
    ref_logps_BT: Tensor | None = None,
) -> TokenLosses:
    """The loss of every token that `mask_BT` counts.

    Differences of the others are 0 before their exponential is taken: padding has no old log-probability, and an
    overflow there, times a mask of 0, would be NaN.
    """
    advantages_B1 = advantages_B.unsqueeze(1)
    left_out_BT = mask_BT == 0
    ratio_BT = torch.exp((logps_BT - old_logps_BT).masked_fill(left_out_BT, 0.0))
    clipped_BT = ratio_BT.clamp(1 - epsilon_low, 1 + epsilon_high)
    loss_BT = -torch.min(ratio_BT * advantages_B1, clipped_BT * advantages_B1)
    kl_BT = None
    if beta != 0.0:
        if ref_logps_BT is None:
            raise ValueError("a KL term needs the reference model's log-probabilities")
        difference_BT = (ref_logps_BT - logps_BT).masked_fill(left_out_BT, 0.0)
        kl_BT = torch.exp(difference_BT) - difference_BT - 1
        loss_BT = loss_BT + beta * kl_BT
    return TokenLosses(
        loss_BT,
        kl_BT,
        (ratio_BT < 1 - epsilon_low) & (advantages_B1 < 0),
        (ratio_BT > 1 + epsilon_high) & (advantages_B1 > 0),
    )


def reduce_loss(
    loss_BT: Tensor, mask_BT: Tensor, totals: StepTotals, loss_type: LossType, max_completion_length: int
) -> Tensor:
    """This micro-batch's share of the step's loss: shares add up to it."""
    masked_BT = loss_BT * mask_BT
    if loss_type in ("bnpo", "dapo"):
        return masked_BT.sum() / max(totals.tokens, 1.0)
    if loss_type == "grpo":
        per_sequence_B = masked_BT.sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1.0)
        return per_sequence_B.sum() / max(totals.sequences, 1.0)
    if loss_type == "dr_grpo":
        return masked_BT.sum() / (max(totals.sequences, 1.0) * max_completion_length)
    raise ValueError(f"unknown loss type {loss_type!r}")


class TokenScores(NamedTuple):
    logps_BT: Tensor
    """Log-probability of each completion token at the temperature."""
    entropy_BT: Tensor | None
    """Entropy of the distribution that it came from, without gradient."""


def score_tokens(
    hidden_BTH: Tensor, head: torch.nn.Module, tokens_BT: Tensor, temperature: float, *, chunk: int, entropy: bool
) -> TokenScores:
    """Log-probabilities from the hidden states *before* each token, a few hundred tokens at a time.

    The logits of the whole batch are never held: each chunk's are made, reduced, and made again for its gradient. So
    the peak is chunk × V and not B × T × V.
    """
    flat_hidden, flat_tokens = hidden_BTH.flatten(0, 1), tokens_BT.flatten()
    logps: list[Tensor] = []
    entropies: list[Tensor] = []
    for start in range(0, flat_tokens.numel(), chunk):
        part = slice(start, start + chunk)
        arguments = (flat_hidden[part], head, flat_tokens[part], temperature, entropy)
        if torch.is_grad_enabled() and flat_hidden.requires_grad:
            chunk_logps, chunk_entropy = checkpoint(_score_chunk, *arguments, use_reentrant=False)
        else:
            chunk_logps, chunk_entropy = _score_chunk(*arguments)
        logps.append(chunk_logps)
        entropies.append(chunk_entropy)
    shape = tokens_BT.shape
    return TokenScores(torch.cat(logps).view(shape), torch.cat(entropies).view(shape) if entropy else None)


def _score_chunk(
    hidden: Tensor, head: torch.nn.Module, tokens: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    logits: Tensor = head(hidden).float() / temperature
    normaliser = torch.logsumexp(logits, dim=-1)
    logps = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - normaliser
    if not entropy:
        return logps, torch.empty(0)
    with torch.no_grad():
        # H = log Z - Σ p·logit
        expected = (torch.exp(logits - normaliser.unsqueeze(-1)) * logits).sum(dim=-1)
        return logps, normaliser.detach() - expected
