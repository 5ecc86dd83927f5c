"""Language models made from scratch in a moment: for the demonstration, the tests and the benchmarks.

Nothing is downloaded. The weights are random; the tokenizers are lossless on their own alphabet.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, END_OF_TURN, START_OF_TURN = "<|pad|>", "<|im_end|>", "<|im_start|>"

ON_CPU: Final[dict[str, Any]] = {
    "use_cpu": True,
    "bf16": False,
    "activation_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "disable_tqdm": True,
}
"""Settings of a trainer that such a model is trained with: on the processor, and nothing kept or reported."""

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(merges: Sequence[tuple[str, str]] = (), *, tags: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """One token for each byte, the ChatML markers, the given merges (longer tokens) and whole tags."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _finished(tokenizer, tags, CHATML)


def word_tokenizer(words: Sequence[str], *, chat_template: str = CHATML) -> PreTrainedTokenizerFast:
    """One token for each word between spaces; words outside the list become the padding token."""
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([PAD, *words]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _finished(tokenizer, (), chat_template)


def _finished(tokenizer: Tokenizer, tags: Sequence[str], chat_template: str) -> PreTrainedTokenizerFast:
    markers = (PAD, END_OF_TURN, START_OF_TURN)
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PAD,
        padding_side="left",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 2048,
    seed: int = 0,
) -> LlamaForCausalLM:
    """A Llama of random weights in float32 for this tokenizer. Leaves torch's random state as it was."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
