"""Group-relative advantages: a rollout's reward against those of the other rollouts of its prompt.

Suffixes: B rollouts of a batch, in groups of G that stand together; F reward functions. NaN stands for "no reward" (a
faulted rollout, or a reward function that does not apply) and is left out of every mean.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Scaling = Literal["group", "batch", "none"]

EPSILON = 1e-4
"""Added to a standard deviation, as in TRL."""


class Advantages(NamedTuple):
    advantages_B: Tensor
    """0 where there is no reward."""
    rewards_B: Tensor
    """The weighted sums; NaN where no function gave a reward."""
    frac_zero_std: float
    """Share of groups in which all rewards are the same, so that nothing is learnt; NaN without groups."""


def combine_rewards(rewards_BF: Tensor, weights_F: Tensor) -> Tensor:
    """Weighted sums, over the functions that gave a reward; NaN where none did."""
    none_B = torch.isnan(rewards_BF).all(dim=1)
    sums_B = (torch.nan_to_num(rewards_BF) * weights_F).sum(dim=1)
    return torch.where(none_B, torch.nan, sums_B)


def group_advantages(rewards_B: Tensor, group_size: int, scaling: Scaling) -> Advantages:
    """A = (r - mean of the group) / scale, with scale = std of the group + ε, std of the batch + ε, or 1.

    Raises `ValueError` for groups of one (their advantage is always 0) and for rows that do not fill their groups.
    """
    if group_size < 2:
        raise ValueError("a group of one rollout has no baseline; use num_generations >= 2")
    if rewards_B.numel() % group_size:
        raise ValueError(f"{rewards_B.numel()} rewards do not make groups of {group_size}")
    grouped = rewards_B.view(-1, group_size)
    mean = torch.nanmean(grouped, dim=1, keepdim=True)
    std = nanstd(grouped, dim=1).unsqueeze(1)
    centred = grouped - mean
    if scaling == "group":
        centred = centred / (torch.nan_to_num(std) + EPSILON)
    elif scaling == "batch":
        centred = centred / (torch.nan_to_num(nanstd(rewards_B, dim=0)) + EPSILON)
    # A group whose rewards agree has a deviation of 0 only up to rounding.
    zero_std = torch.isclose(torch.nan_to_num(std), torch.zeros(()), atol=1e-8)
    return Advantages(
        torch.nan_to_num(centred).reshape(-1),
        rewards_B,
        zero_std.float().mean().item(),
    )


def nanstd(values: Tensor, dim: int) -> Tensor:
    """Unbiased standard deviation of the values that are not NaN; NaN of fewer than two."""
    count = (~torch.isnan(values)).sum(dim=dim)
    mean = torch.nanmean(values, dim=dim, keepdim=True)
    squares = torch.nansum((values - mean) ** 2, dim=dim)
    return torch.where(count > 1, (squares / (count - 1).clamp(min=1)).sqrt(), torch.nan)
