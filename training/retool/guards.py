"""What keeps a run from harm: steps that are not taken, named rules of instability, and a plateau of the reward.

A gradient that is not finite never reaches the weights (`NonFiniteSteps`, in every run). The other two are callbacks
of choice; they read what the trainer logs. A run that is stopped is saved first, and its history says why.
"""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import SchedulerType

from rolloutgym.training.retool.metrics import Metrics


class NonFiniteSteps(TrainerCallback):
    """Takes the gradients away where one is NaN or infinite, on all processes alike: weights and moments stay.

    One such step would make every weight NaN, and the next checkpoint would keep them. Logged as `skipped_steps`.
    """

    def __init__(self, accelerator: Accelerator, metrics: Metrics) -> None:
        self._accelerator = accelerator
        self._metrics = metrics

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model: torch.nn.Module = kwargs["model"]
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        own = torch.nn.utils.get_total_norm(gradients).isfinite().float().to(self._accelerator.device)
        finite: Tensor = self._accelerator.reduce(own, "mean")
        skipped = float(finite) < 1.0
        if skipped:
            model.zero_grad(set_to_none=True)
        self._metrics.mean("skipped_steps", float(skipped))


@dataclass(frozen=True)
class StabilityRules:
    """None switches a rule off."""

    non_finite_steps: int | None = 1
    """Stop after so many logs in a row with a loss or gradient norm that is not finite, or with a skipped step."""
    max_kl: float | None = None
    """Stop when the KL divergence from the reference exceeds this."""
    max_grad_norm: float | None = None
    """Stop when the gradient norm (before clipping) exceeds this on average over the window."""
    reward_collapse: float | None = None
    """Stop when the mean reward of the window falls this far below the best window's."""
    window: int = 10
    """Logs."""


class StabilityGuard(TrainerCallback, ExportableState):
    """Stops the run when a rule is broken. `reason` says which."""

    def __init__(self, rules: StabilityRules | None = None) -> None:
        self.rules = rules or StabilityRules()
        self.reason: str | None = None
        self._rewards: deque[float] = deque(maxlen=self.rules.window)
        self._norms: deque[float] = deque(maxlen=self.rules.window)
        self._best = -math.inf
        self._non_finite = 0

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not logs or "loss" not in logs or self.reason is not None:
            return
        self.reason = self.broken_rule(logs)
        if self.reason is not None:
            entry: Any = {"stopped_early": self.reason, "step": state.global_step}
            state.log_history.append(entry)
            control.should_save = True
            control.should_training_stop = True

    def broken_rule(self, logs: dict[str, Any]) -> str | None:
        """The rule that these numbers break, in words; None where they break none."""
        rules = self.rules
        finite = all(math.isfinite(float(logs.get(name, 0.0))) for name in ("loss", "grad_norm"))
        finite = finite and not logs.get("skipped_steps", 0.0)
        self._non_finite = 0 if finite else self._non_finite + 1
        if rules.non_finite_steps is not None and self._non_finite >= rules.non_finite_steps:
            return f"non-finite loss or gradient in {self._non_finite} logs in a row"
        if not finite:
            return None
        if rules.max_kl is not None and logs.get("kl", 0.0) > rules.max_kl:
            return f"KL divergence {logs['kl']:.4g} above {rules.max_kl:g}"
        self._norms.append(float(logs.get("grad_norm", 0.0)))
        full = len(self._norms) == rules.window
        if rules.max_grad_norm is not None and full and _mean(self._norms) > rules.max_grad_norm:
            return f"mean gradient norm {_mean(self._norms):.4g} above {rules.max_grad_norm:g}"
        if "reward" not in logs:
            return None
        self._rewards.append(float(logs["reward"]))
        if len(self._rewards) == rules.window:
            mean = _mean(self._rewards)
            self._best = max(self._best, mean)
            if rules.reward_collapse is not None and mean < self._best - rules.reward_collapse:
                return f"mean reward {mean:.4g} fell more than {rules.reward_collapse:g} below {self._best:.4g}"
        return None

    def state(self) -> dict[str, Any]:
        attributes = {
            "reason": self.reason,
            "_rewards": list(self._rewards),
            "_norms": list(self._norms),
            "_best": self._best,
            "_non_finite": self._non_finite,
        }
        return {"args": {}, "attributes": attributes}


class RewardPlateau(TrainerCallback, ExportableState):
    """Lowers the learning rate when the mean reward of an epoch stops to rise (`ReduceLROnPlateau`, mode max).

    For a constant schedule (`lr_scheduler_type="constant"`): another would set the rate again at the next step.
    """

    def __init__(self, *, factor: float = 0.5, patience: int = 2, threshold: float = 1e-3, min_lr: float = 0.0) -> None:
        self._settings: dict[str, Any] = {
            "factor": factor,
            "patience": patience,
            "threshold": threshold,
            "min_lr": min_lr,
        }
        self._plateau: torch.optim.lr_scheduler.ReduceLROnPlateau | None = None
        self._restored: dict[str, Any] | None = None
        self._rewards: list[float] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if SchedulerType(args.lr_scheduler_type) is not SchedulerType.CONSTANT:
            raise ValueError("RewardPlateau needs lr_scheduler_type='constant'")
        self._plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            _plain(kwargs["optimizer"], "optimizer"), mode="max", threshold_mode="abs", **self._settings
        )
        if self._restored is not None:
            self._plateau.load_state_dict(self._restored)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "loss" in logs and "reward" in logs:
            self._rewards.append(float(logs["reward"]))

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._rewards and self._plateau is not None:
            before = self._plateau.optimizer.param_groups[0]["lr"]
            self._plateau.step(_mean(self._rewards))
            after = self._plateau.optimizer.param_groups[0]["lr"]
            self._rewards.clear()
            if after < before:
                # The schedule multiplies its base rates, which the plateau has to lower too.
                scheduler = _plain(kwargs["lr_scheduler"], "scheduler")
                scheduler.base_lrs = [rate * after / before for rate in scheduler.base_lrs]
                scheduler._last_lr = [group["lr"] for group in self._plateau.optimizer.param_groups]
                state.log_history.append({"learning_rate_lowered_to": after, "step": state.global_step})

    def state(self) -> dict[str, Any]:
        own = None if self._plateau is None else {k: v for k, v in self._plateau.state_dict().items() if _is_plain(v)}
        return {"args": dict(self._settings), "attributes": {"_restored": own, "_rewards": list(self._rewards)}}


def _plain(wrapped: Any, name: str) -> Any:
    """What accelerate's wrapper holds under this name, or the thing itself where it is not wrapped."""
    return getattr(wrapped, name, wrapped)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (int, float, str, bool, list)) or value is None


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
