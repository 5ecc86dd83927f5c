"""From chat messages to token ids, once: the prompt at the start, then only what the environment adds.

A conversation is never rendered again as a whole, so the ids of the model's own turns stay the ones that were sampled.
What a template writes between an assistant's text and the next turn (end-of-turn token, newline, role header) is found
once, on a conversation of dummies, and then prefixed to every environment message. A template whose output for a
conversation is not a prefix of its output for a longer one cannot be continued that way and is refused.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from rolloutgym.models import Message, ToolSpec
from rolloutgym.training.stops import decode

_MARK = "mark of the assistant"
_QUESTION: dict[str, Any] = {"role": "user", "content": "mark of the user"}
_ANSWER: dict[str, Any] = {"role": "assistant", "content": _MARK}


class UnstableTemplate(ValueError):
    """The chat template rewrites earlier turns when the conversation grows."""


class Encoder(Protocol):
    """How messages become ids."""

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The whole first prompt, up to where the assistant begins to speak."""
        ...

    def continuation(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        """The ids to append after an assistant turn so that the model speaks again.

        `closed_by`: the end-of-turn id that the model sampled itself; None where it sampled none.
        """
        ...


class ChatEncoder:
    """Messages rendered by the tokenizer's chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, **template_options: Any) -> None:
        """`template_options` go to every rendering (such as `enable_thinking=False`)."""
        self._tokenizer = tokenizer
        self._options = template_options
        self._closing = _after_mark(self._render([_QUESTION, _ANSWER]))
        self._tail([_QUESTION])  # refuses an unstable template now and not in the middle of a run

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        text = self._render(
            [message_dict(message) for message in messages],
            tools=[tool.model_dump() for tool in tools] or None,
            add_generation_prompt=True,
        )
        return self._encode(text)

    def continuation(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        return self._encode(self._rest(closed_by) + self._tail([message_dict(message) for message in messages]))

    def _rest(self, closed_by: int | None) -> str:
        """What the template still writes to finish the assistant's turn.

        A model may end its turn with another token than the tokenizer's `eos_token` (as Gemma does with
        `<end_of_turn>`): what counts is the one that was sampled. One that is not the template's leaves the turn open.
        """
        if closed_by is None:
            return self._closing
        _, found, rest = self._closing.partition(decode(self._tokenizer, [closed_by]))
        return rest if found else self._closing

    def _tail(self, messages: list[dict[str, Any]]) -> str:
        """What the template writes for `messages` after a finished assistant turn, with the next header."""
        calls = [
            {"id": message.get("tool_call_id", ""), "type": "function", "function": {"name": "f", "arguments": {}}}
            for message in messages
            if message["role"] == "tool"
        ]
        dummies = [_QUESTION, {**_ANSWER, "tool_calls": calls} if calls else _ANSWER]
        before = _after_mark(self._render(dummies)) if calls else self._closing
        whole = _after_mark(self._render(dummies + messages, add_generation_prompt=True))
        if not whole.startswith(before):
            raise UnstableTemplate("the chat template rewrites the assistant's turn once messages follow it")
        return whole[len(before) :]

    def _render(self, messages: list[dict[str, Any]], **options: Any) -> str:
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, **self._options, **options))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


class InlineEncoder(ChatEncoder):
    """Environment text continues the assistant's own turn, as interpreters interleaved with reasoning do.

    Only a turn that the model closed itself is followed by a new chat turn.
    """

    def continuation(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        if closed_by is not None:
            return super().continuation(messages, closed_by)
        return self._encode("".join(message.content for message in messages))


def _after_mark(text: str) -> str:
    """What follows the dummy assistant's text. A template may rewrite what stands before it (as some drop earlier
    thoughts), and may show calls in place of the text: then the whole is compared."""
    _, found, after = text.partition(_MARK)
    return after if found else text


def message_dict(message: Message) -> dict[str, Any]:
    """A message in the form that chat templates take: absent fields are left out."""
    return message.model_dump(mode="json", exclude_none=True)
