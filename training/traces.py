"""What the trainer must know of one row, token by token: the one record that generation writes and the loss reads.

Ids are only ever appended. A model token keeps the id that was sampled; text of the model is never encoded again.
Suffixes: T = tokens of the completion.
"""

from collections.abc import Sequence


class TraceError(ValueError):
    """The parts of a trace do not fit together."""


class Trace:
    """Prompt and completion of one episode, growing turn by turn.

    `completion_ids_T`, `env_mask_T` (1 = sampled by the model, 0 = written by the environment or the chat template) and
    `logprobs_T` (natural logarithms over the full vocabulary at the sampling temperature; 0.0 where `env_mask_T` is 0)
    always have the same length.
    """

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        if not prompt_ids:
            raise TraceError("a prompt needs at least one token")
        self.prompt_ids = list(prompt_ids)
        self.completion_ids_T: list[int] = []
        self.env_mask_T: list[int] = []
        self.logprobs_T: list[float] = []

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids_T)

    def ids_from(self, start: int) -> list[int]:
        """The ids of prompt and completion from position `start` on."""
        if start >= len(self.prompt_ids):
            return self.completion_ids_T[start - len(self.prompt_ids) :]
        return self.prompt_ids[start:] + self.completion_ids_T

    def add_model_tokens(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        if len(ids) != len(logprobs):
            raise TraceError(f"{len(ids)} sampled tokens came with {len(logprobs)} log-probabilities")
        self.completion_ids_T += ids
        self.env_mask_T += [1] * len(ids)
        self.logprobs_T += logprobs

    def add_environment_tokens(self, ids: Sequence[int]) -> None:
        self.completion_ids_T += ids
        self.env_mask_T += [0] * len(ids)
        self.logprobs_T += [0.0] * len(ids)

    def mask_all(self) -> None:
        """Take every token out of the loss."""
        self.env_mask_T = [0] * len(self.completion_ids_T)
        self.logprobs_T = [0.0] * len(self.completion_ids_T)
