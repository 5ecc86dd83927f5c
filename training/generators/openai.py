"""Turns from any endpoint that speaks OpenAI's chat completions: text alone, for evaluation.

Rows are asked one after the other here; whoever wants many at once plays many batches of one row from threads, so that
no row waits for the slowest. There are no token ids and no log-probabilities.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from rolloutgym.models import Message, ToolCall, ToolSpec
from rolloutgym.training.chat import message_dict
from rolloutgym.training.generators.base import Conversation, Turn, Usage
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.traces import Trace

_NEWER_LIMIT = "max_completion_tokens"
_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


class EndpointError(Exception):
    """The model's endpoint did not answer, or not in a form that can be read. `fatal`: every other call would fail
    the same way."""

    def __init__(self, message: str, *, fatal: bool) -> None:
        super().__init__(message)
        self.fatal = fatal


class _AssistantMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")
    content: str | None = None
    tool_calls: list[ToolCall] | None = None


class _Choice(BaseModel):
    model_config = ConfigDict(extra="ignore")
    message: _AssistantMessage
    finish_reason: str | None = None


class _TokenCounts(BaseModel):
    model_config = ConfigDict(extra="ignore")
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    model_config = ConfigDict(extra="ignore")
    choices: list[_Choice]
    usage: _TokenCounts | None = None


class OpenAIGenerator:
    """The model `model` at `base_url` (with its `/v1`); None takes the first that the endpoint lists."""

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        sampling: SamplingParams | None = None,
        *,
        api_key: str | None = None,
        stop_tags: Sequence[str] = (),
        timeout_s: float = 600.0,
        retries: int = 5,
        extra_body: Mapping[str, Any] | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`extra_body` goes into every request (such as `chat_template_kwargs`); `transport` replaces the network in
        tests."""
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx2.Client(
            base_url=base_url.rstrip("/") + "/", headers=headers, timeout=timeout_s, transport=transport
        )
        self._retries = retries
        self._sampling = sampling or SamplingParams()
        self._stop_tags = tuple(stop_tags)
        self._extra = dict(extra_body or {})
        self._limit = "max_tokens"  # what all endpoints but OpenAI's own newer models take
        self.model = model or self._first_model()

    @property
    def context_tokens(self) -> None:
        """Not known: the endpoint says so when a prompt is too long."""
        return None

    def begin(self, conversations: Sequence[Conversation | None]) -> "ChatBatch":
        return ChatBatch(self, conversations)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def complete(
        self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec], max_tokens: int
    ) -> _Completion | None:
        """One completion; None where the context is full. Raises `EndpointError`."""
        body: dict[str, Any] = {"model": self.model, "messages": messages, self._limit: max_tokens}
        body |= {"temperature": self._sampling.temperature, "top_p": self._sampling.top_p}
        if self._sampling.top_k:
            body["top_k"] = self._sampling.top_k
        if self._sampling.min_p:
            body["min_p"] = self._sampling.min_p
        if self._stop_tags:
            body["stop"] = list(self._stop_tags)
        if tools:
            body["tools"] = [tool.model_dump(mode="json") for tool in tools]
        response = self._request("POST", "chat/completions", body | self._extra)
        if response.status_code == 400 and self._limit != _NEWER_LIMIT and _NEWER_LIMIT in response.text:
            self._limit = _NEWER_LIMIT
            return self.complete(messages, tools, max_tokens)
        if response.status_code == 400 and "context" in response.text.lower():
            return None
        try:
            completion = _Completion.model_validate_json(self._checked(response).content)
        except ValidationError as error:
            raise EndpointError(f"the endpoint's answer is no chat completion: {error}", fatal=False) from error
        if not completion.choices:
            raise EndpointError("the endpoint answered without a choice", fatal=False)
        return completion

    def closed(self, text: str) -> str:
        """Endpoints leave out the stop tag that ended a text: the one whose opening is still open is put back."""
        for tag in self._stop_tags:
            if tag.startswith("</") and text.count(tag.replace("</", "<", 1)) > text.count(tag):
                return text + tag
        return text

    def _first_model(self) -> str:
        listed = self._checked(self._request("GET", "models")).json()
        try:
            return str(listed["data"][0]["id"])
        except (KeyError, IndexError, TypeError) as error:
            raise EndpointError("the endpoint lists no model; name one", fatal=True) from error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        """The answer, after retries of what may pass."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            pause_s = min(0.5 * 2**attempt, 30.0)
            try:
                response = self._http.request(method, path, json=body)
            except httpx2.TransportError as error:
                if last:
                    raise EndpointError(f"the endpoint does not answer: {error!r}", fatal=False) from error
            else:
                if last or response.status_code not in _RETRIED:
                    return response
                pause_s = _retry_after_s(response) or pause_s
            time.sleep(pause_s)
        raise AssertionError("the loop returns or raises at its last attempt")

    def _checked(self, response: httpx2.Response) -> httpx2.Response:
        if response.status_code >= 400:
            fatal = response.status_code not in _RETRIED
            raise EndpointError(f"the endpoint answered {response.status_code}: {response.text[:300]}", fatal=fatal)
        return response


def _retry_after_s(response: httpx2.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return min(float(value), 60.0) if value.replace(".", "", 1).isdigit() else None


class ChatBatch:
    """Conversations as lists of messages."""

    def __init__(self, generator: OpenAIGenerator, conversations: Sequence[Conversation | None]) -> None:
        self._generator = generator
        self._tools = [conversation.tools if conversation else () for conversation in conversations]
        self._messages = [
            [message_dict(message) for message in conversation.messages] if conversation else []
            for conversation in conversations
        ]
        self._used = [Usage(0, 0) for _ in conversations]

    def used(self, row: int) -> Usage:
        """As the endpoint counted; the environment's words count into the next prompt."""
        return self._used[row]

    def generate(self, budgets: Mapping[int, int]) -> dict[int, Turn]:
        return {row: self._turn(row, budget) for row, budget in budgets.items()}

    def reply(self, row: int, messages: Sequence[Message], room: int) -> bool:
        self._messages[row] += [message_dict(message) for message in messages]
        return True

    def trace(self, row: int) -> Trace | None:
        return None

    def close(self) -> None:
        return

    def _turn(self, row: int, budget: int) -> Turn:
        completion = self._generator.complete(self._messages[row], self._tools[row], budget)
        if completion is None:
            return Turn(Message(role="assistant"), "", complete=False, tokens=0, context_full=True)
        choice = completion.choices[0]
        content, calls = choice.message.content or "", tuple(choice.message.tool_calls or ())
        if choice.finish_reason == "stop":
            content = self._generator.closed(content)
        message = Message(role="assistant", content=content, tool_calls=calls or None)
        counts = completion.usage or _TokenCounts()
        self._messages[row].append(message_dict(message))
        self._used[row] = Usage(counts.prompt_tokens, self._used[row].completion + counts.completion_tokens)
        action: Any = content
        if calls:
            action = {"tool_calls": [call.model_dump(mode="json") for call in calls]} | (
                {"content": content} if content else {}
            )
        return Turn(message, action, complete=choice.finish_reason != "length", tokens=counts.completion_tokens)
