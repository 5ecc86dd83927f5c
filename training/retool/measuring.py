"""From rollouts and losses to metrics."""

from collections.abc import Sequence

from torch import Tensor

from rolloutgym.models import StopReason
from rolloutgym.training.retool.advantages import Advantages, nanstd
from rolloutgym.training.retool.loss import TokenLosses, TokenScores
from rolloutgym.training.retool.metrics import Metrics
from rolloutgym.training.rollouts import Rollout

CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_LENGTH, StopReason.TIME_LIMIT})
"""Ends in the middle of what the model was saying."""


def measure_rollouts(
    metrics: Metrics, rollouts: Sequence[Rollout], scored: Advantages, rewards_BF: Tensor, names: Sequence[str]
) -> None:
    """Lengths count the tokens that the model sampled. The rewards are those of all processes already."""
    for rollout in rollouts:
        length = float(rollout.sampled_tokens)
        cut = rollout.stop_reason in CUT_OFF
        kinds = ["completions/{}length"] if cut else ["completions/{}length", "completions/{}terminated_length"]
        for kind in kinds:
            metrics.mean(kind.format("mean_"), length)
            metrics.least(kind.format("min_"), length)
            metrics.most(kind.format("max_"), length)
        metrics.mean("completions/clipped_ratio", float(cut))
        metrics.mean("rollout/fault_rate", float(rollout.fault is not None))
        if rollout.fault is None:
            metrics.mean("rollout/solve_rate", float(bool(rollout.success)))
            metrics.mean("rollout/turns", float(rollout.turns))
            tool_calls = rollout.turns - (rollout.stop_reason == StopReason.ANSWERED)
            metrics.mean("tools/call_frequency", float(tool_calls))
            for reason in StopReason:
                metrics.mean(f"rollout/stop/{reason}", float(rollout.stop_reason == reason))
    metrics.mean("frac_reward_zero_std", scored.frac_zero_std)
    measured = {("reward", "reward_std"): scored.rewards_B}
    measured |= {
        (f"rewards/{name}/mean", f"rewards/{name}/std"): rewards_B
        for name, rewards_B in zip(names, rewards_BF.unbind(dim=1), strict=True)
    }
    for (mean, std), rewards_B in measured.items():
        given = float((~rewards_B.isnan()).sum())
        metrics.mean(mean, float(rewards_B.nanmean()), given)
        metrics.mean(std, float(nanstd(rewards_B, dim=0)), given)


def measure_loss(metrics: Metrics, mask_BT: Tensor, losses: TokenLosses, scores: TokenScores) -> None:
    """Means over trained tokens; least and most over sequences."""
    tokens_B = mask_BT.sum(dim=1)
    tokens = float(tokens_B.sum())
    if not tokens:
        return

    def over_tokens(values_BT: Tensor) -> float:
        return float((values_BT.detach().float() * mask_BT).sum()) / tokens

    if scores.entropy_BT is not None:
        metrics.mean("entropy", over_tokens(scores.entropy_BT), tokens)
    if losses.kl_BT is not None:
        metrics.mean("kl", over_tokens(losses.kl_BT), tokens)
    region_BT = losses.clipped_low_BT | losses.clipped_high_BT
    for name, clipped_BT in (
        ("low", losses.clipped_low_BT), ("high", losses.clipped_high_BT), ("region", region_BT)
    ):  # fmt: skip
        metrics.mean(f"clip_ratio/{name}_mean", over_tokens(clipped_BT), tokens)
    trained_B = tokens_B > 0
    low_B = ((losses.clipped_low_BT * mask_BT).sum(dim=1) / tokens_B.clamp(min=1))[trained_B]
    high_B = ((losses.clipped_high_BT * mask_BT).sum(dim=1) / tokens_B.clamp(min=1))[trained_B]
    metrics.least("clip_ratio/low_min", float(low_B.min()))
    metrics.most("clip_ratio/high_max", float(high_B.max()))
