"""Reward functions called as TRL calls them: every column and every field of the episode, one value per row.

A function may be a coroutine. It returns one number per row, or None where it does not apply. The default reads the
episode's own return, which the service has computed.
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

RewardFunction = Callable[..., Any]


def reward_name(function: RewardFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)


def weights_of(functions: Sequence[RewardFunction], weights: Sequence[float] | None) -> Tensor:
    """`ValueError` where weights and functions differ in number."""
    if weights is None:
        return torch.ones(len(functions))
    if len(weights) != len(functions):
        raise ValueError(f"{len(weights)} reward weights for {len(functions)} reward functions")
    return torch.tensor(weights, dtype=torch.float32)


def call_rewards(
    functions: Sequence[RewardFunction],
    weights_F: Tensor,
    columns: Mapping[str, Sequence[Any]],
    rows: int,
    on_error: Literal["raise", "nan"],
) -> Tensor:
    """(B, F): what each function gives each row; NaN for None, and for functions of weight 0, which are not called.

    Raises what a function raises (or gives NaN for its rows, by `on_error`), and `ValueError` for a wrong number of
    rows.
    """
    results: list[list[float]] = []
    for function, weight in zip(functions, weights_F.tolist(), strict=True):
        if weight == 0:
            results.append([math.nan] * rows)
            continue
        try:
            given = function(**columns)
            values = asyncio.run(_awaited(given)) if inspect.isawaitable(given) else given
        except Exception:
            if on_error == "raise":
                raise
            values = [None] * rows
        if len(values) != rows:
            raise ValueError(f"reward function {reward_name(function)} gave {len(values)} rewards for {rows} rows")
        results.append([math.nan if value is None else float(value) for value in values])
    return torch.tensor(results, dtype=torch.float32).T.reshape(rows, len(functions))


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given
