"""Log-probabilities from inside the model's own forward, so that DDP, FSDP and adapters see an ordinary call.

`add_scoring(model)` gives the model one more way to be called: with `score_tokens=T` it answers `TokenScores` for the
last T tokens instead of logits. The hidden states go through the head in chunks; see `loss.score_tokens`.
"""

from types import MethodType
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from rolloutgym.training.retool.batches import Batch
from rolloutgym.training.retool.loss import TokenScores, score_tokens

# Models that change the logits after the head; there the head alone does not tell the log-probability.
_CHANGED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "logits_soft_cap", "lm_head_multiplier")


def base_model(model: Any) -> PreTrainedModel:
    """The causal language model below a peft adapter."""
    get_base_model = getattr(model, "get_base_model", None)
    below: PreTrainedModel = get_base_model() if get_base_model else model
    return below


def add_scoring(model: Any, *, temperature: float, chunk: int) -> None:
    """`ValueError` for a model whose logits are more than its head of its last hidden states."""
    below = base_model(model)
    changed = [name for name in _CHANGED_LOGITS if getattr(below.config, name, None) not in (None, 1, 1.0)]
    if changed:
        raise ValueError(f"the model's logits are changed after its head ({', '.join(changed)})")
    plain_forward = below.forward

    def forward(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        count: int | None = kwargs.pop("score_tokens", None)
        entropy: bool = kwargs.pop("with_entropy", False)
        if count is None:
            return plain_forward(*args, **kwargs)
        decoder: Any = self.get_decoder()  # type: ignore[no-untyped-call]
        hidden: Tensor = decoder(*args, use_cache=False, **kwargs)[0]
        ids: Tensor = kwargs["input_ids"]
        head: Any = self.get_output_embeddings()  # type: ignore[no-untyped-call]
        return score_tokens(
            hidden[:, -count - 1 : -1], head, ids[:, -count:], temperature, chunk=chunk, entropy=entropy
        )

    below.forward = MethodType(forward, below)


def scores_of(model: Any, batch: Batch, *, entropy: bool) -> TokenScores:
    """Scores of a batch's completions: by a model with `add_scoring`."""
    scores: TokenScores = model(
        input_ids=batch.ids_BL,
        attention_mask=batch.attention_BL,
        position_ids=batch.positions_BL,
        score_tokens=batch.mask_BT.shape[1],
        with_entropy=entropy,
    )
    return scores
