"""Where a turn ends: at an end-of-turn id, or where a stop tag is complete in the text of the ids sampled so far.

Tags are looked for in a short decoded tail, so one is found wherever the tokenizer cuts it, also when its last
characters share a token with what follows. The ids themselves are never cut.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

# A token may decode to nothing (a special or a byte of a longer character): look a little further back.
_SLACK = 4


class StopTags:
    """Texts that end a turn, such as `</code>`."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tags: Sequence[str] = ()) -> None:
        if not all(tags):
            raise ValueError("a stop tag must not be empty")
        self.tags = tuple(tags)
        self._tokenizer = tokenizer
        # A character is at least one byte, and a token at least one byte of its own.
        self._window = max((len(tag.encode()) for tag in tags), default=0) + _SLACK

    def complete(self, turn_ids: Sequence[int]) -> bool:
        """Whether the last of `turn_ids` completes a tag. Ids of earlier turns must not be among them."""
        if not self.tags:
            return False
        tail = decode(self._tokenizer, turn_ids[-self._window :])
        return any(tag in tail for tag in self.tags)


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ids as they are: nothing skipped, nothing cleaned up."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def end_of_turn_ids(tokenizer: PreTrainedTokenizerBase, model_eos: int | Sequence[int] | None) -> frozenset[int]:
    """The ids that end a turn: the tokenizer's and those of the model's generation config."""
    ids = {tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set()
    if isinstance(model_eos, int):
        ids.add(model_eos)
    elif model_eos is not None:
        ids.update(model_eos)
    if not ids:
        raise ValueError("neither the tokenizer nor the model names an end-of-turn token")
    return frozenset(ids)
