"""The toolcall environment's tasks: shipped, or read from a user's files.

A row that cannot be played is reported with its id and reason and left out; it is never met in an episode. Rows without
a split get one by hashing their group, so that the variants of one dialogue stay on one side.
"""

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from rolloutgym.models import ToolSpec
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall import backends
from rolloutgym.server.environments.toolcall.importers import bfcl, openai, sharegpt
from rolloutgym.server.environments.toolcall.importers.conversation import (
    Split,
    Unplayable,
    assemble,
    check_playable,
    first_fault,
    strict_json,
    tool_specs,
)
from rolloutgym.server.environments.toolcall.importers.golds import golds_fit
from rolloutgym.server.environments.toolcall.items import Item, ItemProblem

SPLIT_SHARES: tuple[tuple[Split, int], ...] = (("train", 80), ("validation", 10), ("test", 10))
"""Percent of the groups in each split, where the data has none."""

_SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "eval": "test",
}


def load_items(path: Path | None) -> tuple[TaskSet[Item], tuple[ItemProblem, ...]]:
    """The shipped items (`None`), or those of a JSONL file (`.gz` too), or of all of a folder, or of BFCL.

    Each row of a file is an item of ours, a ShareGPT row (`conversations`) or an OpenAI row (`messages`). `bfcl` stands
    for the installed BFCL package, `bfcl:multiple,parallel` for some of its categories. Returns the playable items in
    file order and what was left out; items with a gold that its tool's schema forbids are tagged
    `golds_fit_schema: false`. `FileNotFoundError` without such a file; `ValueError` if no item is left.
    """
    items: dict[str, Item] = {}
    problems: list[ItemProblem] = []
    for place, loaded in _bfcl(path) or _from_files(path):
        if isinstance(loaded, Item) and loaded.id in items:
            loaded = ItemProblem(loaded.id, "the id occurs twice")
        if isinstance(loaded, ItemProblem):
            problems.append(ItemProblem(loaded.id, f"{place}{loaded.reason}"))
        else:
            items[loaded.id] = loaded if golds_fit(loaded) else _marked(loaded)
    if not items:
        raise ValueError(f"no playable dialogue in {path}" + (f": {problems[0].reason}" if problems else ""))
    return TaskSet(items.values()), tuple(problems)


def _marked(item: Item) -> Item:
    return item.model_copy(update={"tags": {**item.tags, "golds_fit_schema": False}})


def split_of(group: str, seed: int = 0) -> Split:
    """The split of a group: a fixed draw by its name."""
    digest = hashlib.sha256(f"{seed}\x1f{group}".encode(errors="surrogatepass")).digest()
    drawn = int.from_bytes(digest[:8], "big") % 100
    for split, share in SPLIT_SHARES:
        if drawn < share:
            return split
        drawn -= share
    raise AssertionError("the shares sum to 100")


_Loaded = tuple[str, Item | ItemProblem]
"""Where a row stands, for a report, and what became of it."""


def _bfcl(path: Path | None) -> Iterator[_Loaded] | None:
    name, _, categories = str(path).partition(":")
    if name != "bfcl" or path is None or path.exists():
        return None
    return (("", loaded) for loaded in bfcl.read(tuple(filter(None, categories.split(",")))))


def _from_files(path: Path | None) -> Iterator[_Loaded]:
    for file in _files(path):
        shared_tools = _shared_tools(file)
        name = file.name.partition(".")[0]
        for number, line in _lines(file):
            place, id = f"{file.name}:{number}: ", f"{name}-{number}"
            try:
                row = _row(line)
                id = _id(row, id)  # for the report, should the row be refused
                yield place, read_row(row, id, shared_tools)
            except Unplayable as error:
                yield place, ItemProblem(id, str(error))
            except ValidationError as error:
                yield place, ItemProblem(id, first_fault(error))


def _files(path: Path | None) -> Iterable[Path]:
    if path is None:
        return [Path(str(files("rolloutgym.server.environments.toolcall") / "data" / "items.jsonl"))]
    if path.is_dir():
        found = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
        if not found:
            raise FileNotFoundError(f"no *.jsonl or *.jsonl.gz file in {path}")
        return found
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    return [path]


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The rows of a file that are not empty, as bytes: one that is not UTF-8 spoils no other, and only \\n ends one."""
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line


def _shared_tools(file: Path) -> Mapping[str, ToolSpec]:
    """Tools that rows of `file` name instead of repeating them: `tools.json` beside it."""
    shared = file.with_name("tools.json")
    if not shared.is_file():
        return {}
    return {tool.function.name: tool for tool in tool_specs(shared.read_text(encoding="utf-8"))}


def _row(line: bytes) -> dict[str, Any]:
    row = strict_json(line)
    if not isinstance(row, dict):
        raise Unplayable("the line is not an object")
    return row


def read_row(row: Mapping[str, Any], id: str, shared_tools: Mapping[str, ToolSpec] = MappingProxyType({})) -> Item:
    """The item of a row in any of the three forms; `id` is for rows that have none. `Unplayable` or pydantic's
    `ValidationError` if it cannot be played."""
    id = _id(row, id)
    if row.get("steps") is not None:
        item = Item.model_validate({**row, "tools": list(_named_tools(row.get("tools", ()), shared_tools))})
        check_playable(item)
        _check_backend(item)
        return item
    spoken = row.get("conversations")
    if isinstance(spoken, list) and spoken and isinstance(spoken[0], Mapping) and "role" in spoken[0]:
        conversation, tools = openai.read_row({**row, "messages": spoken})
    elif spoken is not None:
        conversation, tools = sharegpt.read_row(row)
    elif row.get("messages") is not None:
        conversation, tools = openai.read_row(row)
    else:
        raise Unplayable("the row has neither steps, conversations nor messages")
    group = str(row.get("group") or next((m.content.casefold().strip() for m in conversation if m.role == "user"), id))
    return assemble(
        conversation,
        id=id,
        group=group,
        split=_declared_split(row) or split_of(group),
        tools=tools,
        later_tools=tool_specs(row.get("later_tools") or ()),
        license=str(row.get("license") or ""),
        tags=_tags(row),
    )


def _id(row: Mapping[str, Any], id: str) -> str:
    """The row's own id, a text or a number, or else `id`."""
    own = row.get("id")
    return id if own is None or own == "" else str(own)


def _check_backend(item: Item) -> None:
    """`Unplayable` unless the expected calls run on the item's back end and show all that must be shown."""
    if item.backend is None:
        return
    try:
        backend = backends.make(item.backend)
    except ValueError as error:
        raise Unplayable(str(error)) from None
    calls = [call for turn in item.steps for call in turn.calls]
    answers = [backends.answer_text(backend.call(call.name, call.arguments)) for call in calls]
    shown = [*answers, *(turn.reply for turn in item.steps)]
    for output in item.backend.required_outputs:
        if not any(output in text for text in shown):
            raise Unplayable(f"the expected calls do not bring {output!r} to light")


def _named_tools(tools: object, shared: Mapping[str, ToolSpec]) -> Iterator[Any]:
    if not isinstance(tools, list):
        raise Unplayable("tools are not a list")
    for tool in tools:
        if not isinstance(tool, str):
            yield tool
        elif tool in shared:
            yield shared[tool]
        else:
            raise Unplayable(f"tool {tool!r} is not in tools.json")


def _declared_split(row: Mapping[str, Any]) -> Split | None:
    declared = row.get("split")
    if declared is None:
        return None
    try:
        return _SPLIT_NAMES[str(declared).lower()]
    except KeyError:
        raise Unplayable(f"unknown split {declared!r}") from None


def _tags(row: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    tags = dict(row.get("tags") or {}) if isinstance(row.get("tags"), Mapping | None) else {}
    if source := row.get("source"):
        tags["source"] = str(source)
    return tags
