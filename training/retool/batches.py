"""Rollouts as the trainer keeps them, row by row, and as the model takes them, padded.

Rows stay lists of ids, and a micro-batch is padded to its own longest row only. Which token is real is known from the
lengths, never from the ids: the padding id may be an ordinary one. Suffixes: B rows, L prompt and completion, T the
completion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Row:
    """One rollout of the generation that is trained on."""

    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    """1 where the loss counts the token."""
    advantage: float = 0.0
    faulted: bool = False
    """Whether an infrastructure fault ended it: it then counts as no sequence of the step."""
    old_logps: Tensor | None = None
    """(T,), frozen when the rollout was generated; None where the policy has not changed since."""
    ref_logps: Tensor | None = None
    """(T,), under the reference model; None without a KL term."""

    @property
    def trained_tokens(self) -> int:
        return sum(self.mask)


@dataclass(frozen=True)
class Batch:
    ids_BL: Tensor
    attention_BL: Tensor
    positions_BL: Tensor
    mask_BT: Tensor
    """1.0 where the loss counts the token."""
    advantages_B: Tensor
    old_logps_BT: Tensor | None
    ref_logps_BT: Tensor | None


def collate(rows: Sequence[Row], pad_id: int, device: torch.device) -> Batch:
    """Prompts padded on the left, completions on the right."""
    prompt_width = max(len(row.prompt_ids) for row in rows)
    width = max(len(row.completion_ids) for row in rows)
    ids, attention = [], []
    for row in rows:
        left, right = prompt_width - len(row.prompt_ids), width - len(row.completion_ids)
        ids.append([pad_id] * left + row.prompt_ids + row.completion_ids + [pad_id] * right)
        attention.append([0] * left + [1] * (prompt_width + width - left - right) + [0] * right)
    attention_BL = torch.tensor(attention, device=device)
    masks = [row.mask + [0] * (width - len(row.mask)) for row in rows]
    return Batch(
        torch.tensor(ids, device=device),
        attention_BL,
        (attention_BL.cumsum(dim=1) - 1).clamp(min=0),
        torch.tensor(masks, dtype=torch.float32, device=device),
        torch.tensor([row.advantage for row in rows], dtype=torch.float32, device=device),
        _stack([row.old_logps for row in rows], width, device),
        _stack([row.ref_logps for row in rows], width, device),
    )


def _stack(values: Sequence[Tensor | None], width: int, device: torch.device) -> Tensor | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    padded = torch.zeros(len(known), width)
    for index, value in enumerate(known):
        padded[index, : len(value)] = value
    return padded.to(device)
