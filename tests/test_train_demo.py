"""The demonstration: its tasks, its demonstrations, its loop; and, slowly, that it learns."""

import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rolloutgym.cli.commands import app
from rolloutgym.cli.train_demo import _write
from rolloutgym.models import Message
from rolloutgym.training.chat import ChatEncoder
from rolloutgym.training.demo.code_game import CodeGame
from rolloutgym.training.demo.demonstrations import Demonstration, encode, words_of
from rolloutgym.training.demo.games import Game
from rolloutgym.training.demo.learning import Plan, learn
from rolloutgym.training.demo.sql_game import SqlGame
from rolloutgym.training.demo.toolcall_game import ToolCallGame
from rolloutgym.training.tiny import word_tokenizer

GAMES: dict[str, Callable[[], Game]] = {"sql": SqlGame, "toolcall": ToolCallGame, "code": CodeGame}


def test_the_sql_tasks_have_fresh_databases_and_single_answers(tmp_path: Path) -> None:
    settings = SqlGame().write(tmp_path, seed=0)
    records = [json.loads(line) for line in Path(settings["ROLLOUTGYM_SQL_DATA"]).read_text().splitlines()]
    databases = {split: {r["database"] for r in records if r["split"] == split} for split in ("train", "test")}
    assert not databases["train"] & databases["test"]
    assert len(databases["test"]) == 20
    for record in records[::50]:
        with sqlite3.connect(tmp_path / record["database"]) as connection:
            ((answer,),) = connection.execute(record["gold_sql"]).fetchall()
        connection.close()
        assert isinstance(answer, int)


@pytest.mark.parametrize("name", ["sql", "toolcall", "code"])
def test_tasks_and_demonstrations_follow_the_seed(name: str, tmp_path: Path) -> None:
    def said(folder: str, seed: int) -> list[str]:
        (tmp_path / folder).mkdir()
        game = GAMES[name]()
        settings = game.write(tmp_path / folder, seed)
        (data,) = (value for key, value in settings.items() if key.endswith("_DATA"))
        ids = [json.loads(line)["id"] for line in Path(data).read_text().splitlines()]
        return ids + [next(game.demonstrate(task_id, random.Random(seed))) for task_id in ids[:50]]

    assert said("first", 1) == said("again", 1)
    assert said("third", 1) != said("other", 2)


def test_a_demonstration_is_learned_where_the_demonstrator_speaks() -> None:
    demonstration = Demonstration(
        (Message(role="user", content="ask"),),
        [("look </code>", (Message(role="user", content="seen"),)), ("answer", ())],
        True,
    )
    tokenizer = word_tokenizer(["user", "assistant", *words_of([demonstration])])
    for tags, expected in (
        ((), "look </code><|im_end|>answer<|im_end|>"),
        (("</code>",), "look </code>answer<|im_end|>"),
    ):
        encoded = encode(demonstration, tokenizer, ChatEncoder(tokenizer), tags)
        own = [token for token, learned in zip(encoded.ids, encoded.learned, strict=True) if learned]
        assert str(tokenizer.decode(own)).replace(" ", "") == expected.replace(" ", "")
        assert len(encoded.ids) == len(encoded.learned)


def test_the_loop_runs_and_tells_its_story(tmp_path: Path, service_process: Callable[..., Any]) -> None:
    game = ToolCallGame()
    settings = game.write(tmp_path, seed=0)
    fields = {name.removeprefix("ROLLOUTGYM_").lower(): value for name, value in settings.items()}
    plan = Plan(
        demonstrations=48, warm_steps=3, warm_batch=8, grpo_steps=2, prompts=2, group=2, evaluate_every=1, held_out=4
    )
    lines: list[str] = []
    story = learn(service_process(**fields).url, game, plan, tmp_path / "trainer", lines.append)
    assert [measurement.step for measurement in story.measurements] == [0, 1, 2]
    assert len(story.rewards) == 2
    assert story.waited_ms > 0
    assert 300_000 < story.parameters < 500_000
    assert len(story.transcripts) == 3
    assert any("GRPO step   2" in line for line in lines)
    _write(tmp_path, story, "toolcall")
    assert json.loads((tmp_path / "metrics.json").read_text())["held_out"][-1]["step"] == 2
    assert (tmp_path / "curve.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("env", "before", "after"), [("sql", 0.15, 0.8), ("toolcall", 0.15, 0.9), ("code", 0.2, 0.7)])
def test_it_learns(env: str, before: float, after: float, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train-demo", "--env", env, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    held_out = json.loads((tmp_path / "metrics.json").read_text())["held_out"]
    assert held_out[0]["greedy"] < before
    assert held_out[-1]["greedy"] > after
