"""Which prompt comes when: every prompt G times in a row, every generation batch as often as it is trained on.

With n prompts in a batch, G repeats and R uses, indices run: the first n prompts, each G times, all of that R times;
then the next n. A last batch of fewer than n prompts is dropped. The order is that of TRL's `RepeatSampler`.
"""

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class RepeatSampler(Sampler[int]):
    """Indices of a data set.

    Args:
        data_source: What is indexed; only its length counts.
        mini_repeat_count: G, how often a prompt stands in a batch (the group size).
        batch_size: n, prompts of a batch.
        repeat_count: R, how often a batch comes.
        shuffle: Whether each epoch has a new order.
        seed: Of the orders. The first epoch's order is that of TRL for the same seed.
    """

    def __init__(
        self,
        data_source: Sized,
        mini_repeat_count: int,
        batch_size: int = 1,
        repeat_count: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self._size = len(data_source)
        self._mini_repeat_count = mini_repeat_count
        self._batch_size = batch_size
        self._repeat_count = repeat_count
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration has."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        for start in range(0, self._size - self._batch_size + 1, self._batch_size):
            batch = order[start : start + self._batch_size]
            for _ in range(self._repeat_count):
                for index in batch:
                    yield from [index] * self._mini_repeat_count

    def __len__(self) -> int:
        batches = self._size // self._batch_size
        return batches * self._batch_size * self._mini_repeat_count * self._repeat_count

    def _order(self) -> list[int]:
        """Epoch e has the e-th permutation that a generator with this seed draws: a resumed run finds the same."""
        if not self._shuffle:
            return list(range(self._size))
        generator = torch.Generator().manual_seed(self._seed)
        order: list[int] = []
        for _ in range(self._epoch + 1):
            order = torch.randperm(self._size, generator=generator).tolist()
        return order
