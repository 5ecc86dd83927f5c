"""The shipped dialogues and how they are made: scripts in our own words, played against the back ends.

`generate` writes the data files byte for byte as they are shipped. A script belongs to one split, so the splits share
neither scenario nor wording.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rolloutgym.server.environments.toolcall.backends import DOMAINS, tool_specs
from rolloutgym.server.environments.toolcall.generator import (  # noqa: F401 (importing registers the scripts)
    chained_calls,
    conversations,
    no_calls,
    parallel_calls,
    single_calls,
)
from rolloutgym.server.environments.toolcall.generator.draft import Dialogue, dialogue
from rolloutgym.server.environments.toolcall.generator.scripts import SCRIPTS

SEED = 20260


def dialogues() -> Iterator[Dialogue]:
    """All shipped dialogues, in order."""
    for script in SCRIPTS.values():
        for variant in range(script.variants):
            yield dialogue(script, variant, SEED)


def generate(out_dir: Path) -> None:
    """Write `items.jsonl`, and `tools.json` with the tools that its rows name."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tools = [spec.model_dump(mode="json") for spec in tool_specs(DOMAINS)]
    _write(out_dir / "tools.json", json.dumps(tools, ensure_ascii=False, indent=1) + "\n")
    _write(out_dir / "items.jsonl", "".join(_dumps(_row(made)) + "\n" for made in dialogues()))


def _row(made: Dialogue) -> dict[str, Any]:
    row = made.item.model_dump(mode="json", exclude_defaults=True)
    return {**row, "tools": [tool.function.name for tool in made.item.tools]}


def _dumps(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
