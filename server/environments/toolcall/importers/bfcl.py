"""The Berkeley Function Calling Leaderboard, version 4, from the installed `bfcl-eval` package (Apache-2.0; optional).

Its categories become items of the `test` split: it is an evaluation set, and training on it spoils what it measures.
Single-turn golds keep BFCL's acceptable values as `possible`. Multi-turn golds are run on BFCL's own back ends to get
the tool responses: a call is text there, read as Python syntax with literal arguments and made on a method that the
category's documents name. Nothing is evaluated. Nobody narrates in BFCL: `Done.` stands in as narration.

Left out: Java and JavaScript (their arguments are not JSON), web search and memory (no gold calls), live_relevance
(any call would do).
"""

import ast
import copy
import decimal
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

from pydantic import JsonValue, ValidationError

from rolloutgym.models import FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from rolloutgym.server.environments.toolcall.importers.conversation import Unplayable, check_playable, first_fault
from rolloutgym.server.environments.toolcall.items import ExpectedCall, Item, ItemProblem, Turn
from rolloutgym.server.environments.toolcall.scenarios import classify

SINGLE = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
IRRELEVANCE = ("irrelevance", "live_irrelevance")
MULTI_TURN = ("multi_turn_base", "multi_turn_long_context", "multi_turn_miss_func", "multi_turn_miss_param")
FIRST_TURNS = "multi_turn_first_turns"
"""The first user turns of the multi-turn categories that need two or more calls, each once."""
CATEGORIES = (*SINGLE, *IRRELEVANCE, FIRST_TURNS, *MULTI_TURN)

_P = ParamSpec("_P")

_NARRATION = "Done."
_REFUSAL = "I cannot do that with the functions and details that I have."


def read(categories: Sequence[str] = ()) -> Iterator[Item | ItemProblem]:
    """The items of these categories (none means all), and what cannot be played.

    `ValueError` for an unknown category, or if the package is not installed.
    """
    unknown = sorted(set(categories) - set(CATEGORIES))
    if unknown:
        raise ValueError(f"unknown BFCL category {', '.join(unknown)}; there are {', '.join(CATEGORIES)}")
    if find_spec("bfcl_eval") is None:
        raise ValueError("BFCL needs its package: pip install --no-deps bfcl-eval==2026.3.23 mpmath")
    for category in categories or CATEGORIES:
        if category in SINGLE:
            yield from _single(category)
        elif category in IRRELEVANCE:
            yield from _irrelevance(category)
        elif category == FIRST_TURNS:
            yield from _first_turns()
        else:
            for entry in _entries(category):
                yield _playable(entry["id"], _multi_turn, category, entry)


# ---- one user turn --------------------------------------------------------------------------------------------------


def _single(category: str) -> Iterator[Item | ItemProblem]:
    golds = _golds(category)
    for entry in _entries(category):
        yield _playable(entry["id"], _single_item, category, entry, golds[entry["id"]])


def _single_item(category: str, entry: Mapping[str, Any], gold: Sequence[Mapping[str, Any]]) -> Item:
    schemas = {function["name"]: function["parameters"] for function in entry["function"]}
    calls = tuple(expected_call(name, possible, schemas[name]) for call in gold for name, possible in call.items())
    return _item(
        category, entry["id"], entry["id"], _tools(entry), _messages(entry), [Turn(expect="calls", calls=calls)]
    )


def _irrelevance(category: str) -> Iterator[Item | ItemProblem]:
    steps = [Turn(expect="none", reply=_REFUSAL)]
    for entry in _entries(category):
        id = entry["id"]
        yield _playable(id, _item, category, id, id, _tools(entry), _messages(entry), steps)


def expected_call(name: str, possible: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> ExpectedCall:
    """The call with one acceptable value for each argument; what may be left out is left out."""
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    chosen = {
        argument: _chosen(options, properties.get(argument, {}))
        for argument, options in possible.items()
        if argument in required or "" not in options
    }
    return ExpectedCall(name=name, arguments=chosen, possible={key: tuple(value) for key, value in possible.items()})


def _chosen(options: Sequence[Any], schema: Mapping[str, Any]) -> JsonValue:
    """The first acceptable value that is not the empty text, which stands for leaving the argument out."""
    return next((_spelt_out(option, schema) for option in options if option != ""), "")


def _spelt_out(value: Any, schema: Mapping[str, Any]) -> JsonValue:
    """An acceptable value as one value: in an object each member has acceptable values of its own."""
    if isinstance(value, dict):
        members = schema.get("properties") or {}
        return {
            key: _chosen(options, members.get(key, {})) if isinstance(options, list) else options
            for key, options in value.items()
            if not (isinstance(options, list) and "" in options)
        }
    if isinstance(value, list) and (schema.get("items") or {}).get("type") in ("dict", "object"):
        return [_spelt_out(element, schema["items"]) for element in value]
    return value  # type: ignore[no-any-return]


# ---- several user turns ---------------------------------------------------------------------------------------------


class _Said(NamedTuple):
    """What happens in one user turn."""

    messages: tuple[Message, ...]
    calls: tuple[ExpectedCall, ...]
    responses: tuple[Message, ...]


def _multi_turn(category: str, entry: Mapping[str, Any]) -> Item:
    documents = _documents(entry["involved_classes"])
    said = _played(category, entry, documents)
    return _item(
        category,
        entry["id"],
        _scenario_of(entry["id"]),
        _first_tools(entry, documents),
        said[0].messages,
        list(_turns(said)),
        later_tools=[_tool(documents[name]) for name in _held_back(entry)],
    )


def _held_back(entry: Mapping[str, Any]) -> list[str]:
    """The functions that arrive in the course of the conversation."""
    return [name for names in entry.get("missed_function", {}).values() for name in names]


def _first_tools(entry: Mapping[str, Any], documents: Mapping[str, Any]) -> list[ToolSpec]:
    held_back = _held_back(entry)
    return [_tool(function) for name, function in documents.items() if name not in held_back]


def _first_turns() -> Iterator[Item | ItemProblem]:
    seen: set[tuple[tuple[Message, ...], tuple[Message, ...]]] = set()
    for category in MULTI_TURN:
        for entry in _entries(category):
            documents = _documents(entry["involved_classes"])
            first = _played(category, entry, documents, turns=1)[0]
            if len(first.calls) < 2 or (first.messages, first.responses) in seen:
                continue
            seen.add((first.messages, first.responses))
            id, group, tools = f"{entry['id']}-first-turn", _scenario_of(entry["id"]), _first_tools(entry, documents)
            yield _playable(id, _item, FIRST_TURNS, id, group, tools, first.messages, list(_turns([first])))


def _turns(said: Sequence[_Said]) -> Iterator[Turn]:
    """One turn for each call, as BFCL's golds are flat lists, and one without a call before the user speaks again."""
    for number, now in enumerate(said):
        following = said[number + 1].messages if number + 1 < len(said) else ()
        for call, response in zip(now.calls, now.responses, strict=True):
            yield Turn(expect="calls", calls=(call,), then=(response,))
        if now.calls:
            yield Turn(expect="none", narration=True, reply=_NARRATION, then=following)
        else:
            yield Turn(expect="none", reply=_REFUSAL, then=following)


def _played(
    category: str, entry: Mapping[str, Any], documents: Mapping[str, Any], turns: int | None = None
) -> list[_Said]:
    """The user turns with their gold calls and what BFCL's back ends answer to them."""
    arrivals = entry.get("missed_function", {})
    golds = _golds(category)[entry["id"]]
    said: list[_Said] = []
    # Some of the back ends set the precision of numbers for the whole process.
    with import_module("mpmath").workdps(15), decimal.localcontext():
        backend = _Backend(entry, documents, long_context="long_context" in category)
        for number, (spoken, gold) in enumerate(zip(entry["question"], golds, strict=True)):
            if turns is not None and number >= turns:
                break
            messages = [Message(role=message["role"], content=message["content"]) for message in spoken]
            if arrived := arrivals.get(str(number)):
                messages.insert(0, _announcement([_tool(documents[name]) for name in arrived]))
            calls = tuple(read_call(text, documents) for text in gold)
            responses = tuple(
                Message(role="tool", name=call.name, content=backend.call(call.name, call.arguments)) for call in calls
            )
            said.append(_Said(tuple(messages), calls, responses))
    return said


def read_call(text: str, documents: Mapping[str, Any]) -> ExpectedCall:
    """A gold call, `name(value, key=value)`: Python syntax with literal arguments, named by the function's document."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise Unplayable(f"gold is not a call: {text!r}")
        if call.func.id not in documents:
            raise Unplayable(f"gold calls an unknown function: {text!r}")
        names = list(documents[call.func.id]["parameters"]["properties"])
        if len(call.args) > len(names) or any(keyword.arg not in names for keyword in call.keywords):
            raise Unplayable(f"gold gives an unknown argument: {text!r}")
        arguments = {name: ast.literal_eval(value) for name, value in zip(names, call.args, strict=False)}
        arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise Unplayable(f"gold cannot be read: {text!r}: {error}") from None
    return ExpectedCall(name=call.func.id, arguments=arguments)


class _Backend:
    """BFCL's live objects of one episode, and the methods that may be called: public ones that have a document."""

    def __init__(self, entry: Mapping[str, Any], documents: Mapping[str, Any], *, long_context: bool) -> None:
        config = import_module("bfcl_eval.constants.executable_backend_config")
        self._methods: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            instance = getattr(import_module(config.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in config.STATELESS_CLASSES:
                state = copy.deepcopy(entry["initial_config"].get(name, {}))
                instance._load_scenario(state, long_context=long_context)
            for function in documents:
                if not function.startswith("_") and hasattr(instance, function):
                    self._methods[function] = getattr(instance, function)

    def call(self, name: str, arguments: Mapping[str, JsonValue]) -> str:
        """The answer as BFCL writes it."""
        answer = self._methods[name](**copy.deepcopy(dict(arguments)))  # which it may keep and change
        if isinstance(answer, str):
            return answer
        if isinstance(answer, dict):
            try:
                return json.dumps(answer)
            except TypeError:  # a number of mpmath's
                return str(answer)
        return str(answer)


def _announcement(tools: Sequence[ToolSpec]) -> Message:
    listed = "\n".join(json.dumps(tool.model_dump(mode="json"), ensure_ascii=False) for tool in tools)
    return Message(role="user", content=f"Here are more functions that you can call:\n{listed}\nTry it with them.")


def _scenario_of(id: str) -> str:
    """Categories share their scenarios: number 7 is the same story in all of them."""
    return f"multi_turn_{id.rpartition('_')[2]}"


# ---- files ----------------------------------------------------------------------------------------------------------


def read_lines(name: str) -> list[Any]:
    """The objects of one of the package's data files."""
    path = Path(str(import_module("bfcl_eval").__file__)).parent / "data" / name
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def _entries(category: str) -> list[Any]:
    return read_lines(f"BFCL_v4_{category}.json")


@cache
def _golds(category: str) -> dict[str, Any]:
    return {entry["id"]: entry["ground_truth"] for entry in read_lines(f"possible_answer/BFCL_v4_{category}.json")}


@cache
def _class_documents(name: str) -> dict[str, Any]:
    config = import_module("bfcl_eval.constants.executable_backend_config")
    file = config.MULTI_TURN_FUNC_DOC_FILE_MAPPING[name]
    return {function["name"]: function for function in read_lines(f"multi_turn_func_doc/{file}")}


def _documents(classes: Sequence[str]) -> dict[str, Any]:
    return {name: function for each in classes for name, function in _class_documents(each).items()}


# ---- forms ----------------------------------------------------------------------------------------------------------

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def _schema(value: Any) -> Any:
    """BFCL's schema as JSON Schema. Where the type's name says more than JSON Schema can, it stays as `x-bfcl-type`."""
    if not isinstance(value, dict):
        return value
    converted: dict[str, Any] = {}
    for key, member in value.items():
        if key == "type" and isinstance(member, str):
            if member != "any":
                converted["type"] = _TYPES.get(member, member)
            if member in ("any", "tuple", "float"):
                converted["x-bfcl-type"] = member
        elif key == "properties":
            converted[key] = {name: _schema(parameter) for name, parameter in member.items()}
        elif key in ("items", "additionalProperties"):
            converted[key] = _schema(member)
        else:
            converted[key] = member
    return converted


def _tool(function: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        function=FunctionSpec(
            name=function["name"],
            description=function.get("description", ""),
            parameters=_schema(function["parameters"]),
        )
    )


def _tools(entry: Mapping[str, Any]) -> list[ToolSpec]:
    return [_tool(function) for function in entry["function"]]


def _messages(entry: Mapping[str, Any]) -> tuple[Message, ...]:
    return tuple(Message(role=message["role"], content=message["content"]) for message in entry["question"][0])


def _item(
    category: str,
    id: str,
    group: str,
    tools: Sequence[ToolSpec],
    history: Sequence[Message],
    steps: Sequence[Turn],
    later_tools: Sequence[ToolSpec] = (),
) -> Item:
    item = Item(
        id=id,
        group=f"bfcl/{group}",
        split="test",
        license="Apache-2.0",
        tools=tuple(tools),
        later_tools=tuple(later_tools),
        history=tuple(history),
        steps=tuple(steps),
        scenario=classify([*history, *(message for turn in steps for message in _as_spoken(turn))]),
        tags={"source": f"bfcl_v4/{category}", "parallel": any(len(turn.calls) > 1 for turn in steps)},
    )
    check_playable(item)
    return item


def _as_spoken(turn: Turn) -> tuple[Message, ...]:
    calls = tuple(ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in turn.calls)
    return (Message(role="assistant", content=turn.reply, tool_calls=calls or None), *turn.then)


def _playable(id: str, make: Callable[_P, Item], *args: _P.args, **kwargs: _P.kwargs) -> Item | ItemProblem:
    try:
        return make(*args, **kwargs)
    except Unplayable as error:
        return ItemProblem(id, str(error))
    except ValidationError as error:
        return ItemProblem(id, first_fault(error))
