"""From chat messages to token ids, once: the prompt at the start, then only what the environment adds.

A conversation is never rendered again as a whole, so the ids of the model's own turns stay the ones that were sampled.
What a template writes between an assistant's text and the next turn (end-of-turn token, newline, role header) is found
on a conversation of dummies: what the template writes behind a mark in the assistant's text. So earlier turns may be
rendered otherwise once others follow them (as some templates drop thoughts); the ids of what was said stay.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rolloutgym.models import Message, ToolSpec
from rolloutgym.training.stops import decode

_MARK = "mark of the assistant"
_QUESTION: dict[str, Any] = {"role": "user", "content": "mark of the user"}
_ANSWER: dict[str, Any] = {"role": "assistant", "content": _MARK}
_NEXT: dict[str, Any] = {"role": "user", "content": "mark of what comes next"}
_RESULT: dict[str, Any] = {"role": "tool", "content": "mark of the tool", "tool_call_id": "call00000"}
_NO_ARGUMENTS: tuple[dict[str, Any] | str, ...] = ({}, "{}")
"""A call's arguments as an object, which most templates take, and as text, which DeepSeek V3's takes."""


class UnstableTemplate(ValueError):
    """The chat template leaves out what was said, or rewrites a turn with calls when their answers follow."""


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
        self._until_next, found, _ = self._after_turn([_NEXT]).partition(_NEXT["content"])
        if not found:
            raise UnstableTemplate("the chat template leaves out the text of messages")
        self._no_arguments = next(filter(self._shows_results, _NO_ARGUMENTS), None)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """`UnstableTemplate` where there are tools and the template could not show what they give back."""
        if tools and self._no_arguments is None:
            raise UnstableTemplate(
                "the chat template does not show tools' results behind the call: take a text protocol"
            )
        text = self._render(
            [message_dict(message) for message in messages],
            tools=[tool.model_dump() for tool in tools] or None,
            add_generation_prompt=True,
        )
        return self._encode(text)

    def continuation(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        """A turn that the model closed is not closed again.

        It may do so by another token than the tokenizer's `eos_token` (Gemma's `<end_of_turn>`), or by the one with
        which the next turn opens (GLM's `<|user|>`): what counts is what was sampled. A token that the template does
        not write there leaves the turn open.
        """
        dicts = [message_dict(message) for message in messages]
        of_tools = any(message["role"] == "tool" for message in dicts)
        text = self._closing + self._after_calls(dicts, self._no_arguments) if of_tools else self._after_turn(dicts)
        if closed_by is not None:
            end = decode(self._tokenizer, [closed_by])
            if text.startswith(end) or end in (self._closing if of_tools else self._until_next):
                text = text.partition(end)[2]
        return self._encode(text)

    def _after_turn(self, messages: list[dict[str, Any]]) -> str:
        """What the template writes behind the text of an assistant turn that `messages` follow, up to the next."""
        text = self._render([_QUESTION, _ANSWER, *messages], add_generation_prompt=True)
        if _MARK not in text:
            raise UnstableTemplate("the chat template leaves out the assistant's text")
        return _after_mark(text)

    def _after_calls(self, messages: list[dict[str, Any]], no_arguments: dict[str, Any] | str | None) -> str:
        """What it writes for `messages`, tool messages among them, behind a finished assistant turn."""
        calls = [
            {
                "id": message.get("tool_call_id", ""),
                "type": "function",
                "function": {"name": "f", "arguments": no_arguments},
            }
            for message in messages
            if message["role"] == "tool"
        ]
        dummies = [_QUESTION, {**_ANSWER, "tool_calls": calls}]
        before = _after_mark(self._render(dummies))
        whole = _after_mark(self._render(dummies + messages, add_generation_prompt=True))
        if not whole.startswith(before):
            raise UnstableTemplate("the chat template rewrites the assistant's turn once tool messages follow it")
        return whole[len(before) :]

    def _shows_results(self, no_arguments: dict[str, Any] | str) -> bool:
        """Whether a tool's message stands behind a call without arguments, written so."""
        try:
            return _RESULT["content"] in self._after_calls([_RESULT], no_arguments)
        except (UnstableTemplate, TemplateError, TypeError):  # templates refuse, or trip over what they do not expect
            return False

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
