"""The Open Reward Standard: what its clients send and read, after the `openreward` SDK. Data and text, no sessions.

A tool call is answered by a stream of events whose first one names the call, so that a client whose connection drops
can ask for the same answer again. Here that name is the number of the step: the episode's record is all that it takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import from_json, to_json

from rolloutgym.models import JsonObject, Message, Request, ResetRequest, Seed, StepNumber, ToolSpec

Json = dict[str, Any]

_CHUNK = 4096
"""Characters of data in one event: clients read line by line, with a limit."""
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""What JSON allows in a text and many readers take for the end of a line."""


class TaskSpec(BaseModel):
    """A task as `tasks` listed it; a trainer may add a seed and options."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    seed: Seed | None = None
    options: JsonObject = Field(default_factory=dict)


class SessionRequest(Request):
    """No session can be had with settings of its own."""


class CreateRequest(Request):
    env_name: str | None = None
    task_spec: TaskSpec | None = None
    split: str | None = None
    index: Annotated[int, Field(ge=0)] | None = None
    toolset_name: None = None
    """There are no tools but the environment's."""

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        by_place = (self.split is not None, self.index is not None)
        if by_place not in ((True, True), (False, False)) or (self.task_spec is None) != all(by_place):
            raise ValueError("give either task_spec, or split and index")
        return self

    def reset(self, session: str, options: Mapping[str, JsonValue]) -> ResetRequest:
        """The reset that it asks for; `options` hold where it gives none."""
        task = self.task_spec
        if task is None:
            return ResetRequest(episode_id=session, split=self.split, index=self.index, options=dict(options))
        return ResetRequest(episode_id=session, task_id=task.id, seed=task.seed, options={**options, **task.options})


class CallRequest(Request):
    name: str
    input: JsonObject
    task_id: StepNumber | None = None
    """What the stream of an earlier try was named; numbers come as text."""


Mistake = Literal["not_found", "input_validation", "episode_finished"]


def listed(tools: Sequence[ToolSpec]) -> Json:
    functions = [tool.function for tool in tools]
    return {
        "tools": [
            {"name": one.name, "description": one.description, "input_schema": one.parameters or None}
            for one in functions
        ],
        "terminal_tool": None,
        "supports_score_group": False,
        "message_block_types": ["text", "image", "reasoning", "tool_call", "tool_result"],
    }


def prompt(first: bytes) -> list[Json]:
    """A first answer's messages as blocks of one prompt, whoever is to have said them."""
    return [_text(message.content) for message in _messages(first) if message.content]


def conversation(first: bytes) -> list[Json]:
    """A first answer's messages, each in its role; what a tool said belongs to the user's turn."""
    return [_turn(message) for message in _messages(first)]


def output(answer: bytes) -> bytes:
    """A step result as a tool's output: what was said for the model, the reward and the numbers beside it."""
    result = from_json(answer)
    said = [message["content"] for message in result["observation"]["messages"] if message["content"]]
    metadata = {key: result[key] for key in ("episode_id", "step_count", "truncated")}
    return to_json(
        {
            "ok": True,
            "output": {
                "blocks": [_text(text) for text in said],
                "metadata": metadata | {"info": result["observation"]["info"]},
                "reward": result["reward"],
                "finished": result["done"],
            },
        }
    )


def mistake(message: str, reason: Mistake) -> bytes:
    """A call that could not be one: the model reads it and may try again."""
    return to_json({"ok": False, "error": message, "reason": reason})


def event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


def result_events(result: bytes) -> Iterator[bytes]:
    """JSON in pieces. What clients strip, a piece's leading space, is escaped, and what they take for a line's end: in
    compact JSON both are part of a text."""
    text = result.decode().translate(_LINE_ENDS)
    for start in range(0, len(text), _CHUNK):
        piece = text[start : start + _CHUNK]
        if piece[0].isspace():
            piece = f"\\u{ord(piece[0]):04x}{piece[1:]}"
        yield event("end" if start + _CHUNK >= len(text) else "chunk", piece)


def _messages(first: bytes) -> list[Message]:
    return [Message.model_validate(one) for one in from_json(first)["observation"]["messages"]]


def _text(text: str) -> Json:
    return {"type": "text", "text": text, "detail": None}


def _turn(message: Message) -> Json:
    if message.role == "tool":
        said = {"type": "tool_result", "tool_call_id": message.tool_call_id or "", "is_error": False, "detail": None}
        return {"role": "user", "blocks": [said | {"blocks": [_text(message.content)]}], "detail": None}
    blocks = [_text(message.content)] if message.content else []
    for call in message.tool_calls or ():
        arguments = call.function.arguments
        read = (from_json(arguments) if arguments else {}) if isinstance(arguments, str) else arguments
        blocks.append({"type": "tool_call", "id": call.id, "name": call.function.name, "input": read, "detail": None})
    return {"role": message.role, "blocks": blocks, "detail": None}
