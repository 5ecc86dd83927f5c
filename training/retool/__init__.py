"""A GRPO trainer for code-interleaved reasoning, after ReTool (arXiv 2504.11536, which optimised with PPO).

The model reasons, runs code between `<code>` and `</code>` in the remote sandbox, reads what comes back between
`<interpreter>` and `</interpreter>`, and is rewarded for its final answer; what the interpreter wrote is not trained
on. The whole loop is here to be read and changed: `sampler` (which prompts), `advantages` and `loss` (pure
mathematics), `trainer` (how they meet in `transformers.Trainer`).
"""

from rolloutgym.training.retool.config import RetoolConfig
from rolloutgym.training.retool.trainer import RetoolTrainer

__all__ = ["RetoolConfig", "RetoolTrainer"]
