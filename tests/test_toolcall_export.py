import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rolloutgym.models import Message
from rolloutgym.server.environments.toolcall.importers.sharegpt import export_row
from rolloutgym.server.environments.toolcall.items import Item, Turn
from rolloutgym.server.environments.toolcall.tasks import load_items, read_row

APIBANK = Path(__file__).parents[2] / "shared" / "data" / "toolcall" / "apibank.jsonl"


def every(path: Path | None) -> Iterator[Item]:
    tasks, _ = load_items(path)
    return (item for split in tasks.splits() for item in tasks.of_split(split))


def exported_and_read(item: Item) -> Item:
    return read_row(json.loads(json.dumps(export_row(item))), "row")


@pytest.mark.skipif(not APIBANK.is_file(), reason="needs ../shared/data/toolcall")
def test_real_dialogues_come_back_unchanged() -> None:
    for item in every(APIBANK):
        assert exported_and_read(item) == item


def test_shipped_dialogues_come_back_but_for_what_the_form_cannot_say() -> None:
    kept = 0
    for item in every(None):
        if any(turn.expect == "none" and not turn.narration for turn in item.steps):
            continue  # which turns without a call are judged is lost
        assert exported_and_read(item) == item.model_copy(update={"backend": None})
        kept += 1
    assert kept > 300


def test_exported_row_begins_with_system_and_human() -> None:
    for item in every(None):
        speakers = [message["from"] for message in export_row(item)["conversations"]]
        assert speakers[:2] == ["system", "human"]
        assert set(speakers) <= {"system", "human", "gpt", "tool"}


def test_parallel_responses_share_a_message() -> None:
    item = next(item for item in every(None) if item.id.startswith("two-orders"))
    row = export_row(item)
    assert [message["from"] for message in row["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    assert row["conversations"][3]["value"].count("<tool_response>") == 2


def test_awkward_texts_survive() -> None:
    base = next(every(None))
    awkward = 'He said "</tool_call>" and <b>\n{"a": 1}\u2028\\u00e9 é 😀'
    item = base.model_copy(
        update={
            "history": (Message(role="system", content="Be kind."), Message(role="user", content=awkward)),
            "steps": (
                Turn(
                    expect="calls",
                    calls=(
                        base.steps[0].calls[0].model_copy(update={"arguments": {"name": awkward, "n": [1.5, None]}}),
                    ),
                    then=(Message(role="tool", name=base.steps[0].calls[0].name, content=awkward),),
                ),
                Turn(expect="none", narration=True, reply="Done."),
            ),
            "scenario": "single",
            "backend": None,
        }
    )
    assert exported_and_read(item) == item
