"""The run on disk: `metrics.jsonl`, one line a log, and `completions.jsonl`, one line a rollout. Always written.

Other reports (TensorBoard and the like) are those of `transformers`, by `report_to`.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rolloutgym.training.rollouts import Rollout


class RunLog(TrainerCallback):
    """Open while used as a context manager; outside, and on other processes than the first, it writes nothing."""

    def __init__(self, folder: Path, *, active: bool) -> None:
        self._folder = folder
        self._active = active
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        if self._active:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in ("metrics", "completions"):
                self._files[name] = (self._folder / f"{name}.jsonl").open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._write("metrics", {"step": state.global_step, **(logs or {})})

    def completions(
        self, step: int, mode: str, rollouts: Sequence[Rollout], rewards_B: Tensor, advantages_B: Tensor
    ) -> None:
        """Prompt, completion, reward and advantage of each rollout of this process."""
        for rollout, reward, advantage in zip(rollouts, rewards_B.tolist(), advantages_B.tolist(), strict=False):
            self._write(
                "completions",
                {
                    "step": step,
                    "mode": mode,
                    "task_id": rollout.task_id,
                    "messages": [message.model_dump(mode="json", exclude_none=True) for message in rollout.transcript],
                    "reward": reward,
                    "advantage": advantage,
                    "success": rollout.success,
                    "stop_reason": rollout.stop_reason,
                    "fault": rollout.fault.code if rollout.fault else None,
                },
            )

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if name in self._files:
            clean = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in record.items()}
            self._files[name].write(json.dumps(clean, ensure_ascii=False) + "\n")
            self._files[name].flush()
