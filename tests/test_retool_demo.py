"""The demonstration of our own trainer: its loop, and, slowly, that it learns."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rolloutgym.cli.commands import app
from rolloutgym.cli.retool_demo import _write
from rolloutgym.cli.service import own_service
from rolloutgym.training.demo.code_game import CodeGame
from rolloutgym.training.retool.demo import Plan, demonstrate


def test_all_runs_are_played_and_written(tmp_path: Path) -> None:
    game = CodeGame()
    plan = Plan(seeds=(0,), demonstrations=20, warm_steps=2, steps=1, prompts=1, group=2, evaluate_every=1, held_out=2)
    settings = game.write(tmp_path, seed=0)
    told: list[str] = []
    with own_service({**os.environ, **settings}) as url:
        runs = demonstrate(url, game, plan, tmp_path / "runs", told.append)
    assert [run.name for run in runs] == ["seed 0", "no mask", "no tool"]
    assert [[one.step for one in run.measurements] for run in runs] == [[0, 1]] * 3
    assert all(rollout.turns <= 1 for rollout in runs[2].transcripts)
    assert (tmp_path / "runs" / "no-mask" / "metrics.jsonl").exists()
    _write(tmp_path, runs)
    assert json.loads((tmp_path / "metrics.json").read_text()).keys() == {"seed 0", "no mask", "no tool"}
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "--- no tool" in (tmp_path / "samples.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_learns_to_use_the_interpreter(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["retool-demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    runs = json.loads((tmp_path / "metrics.json").read_text())
    for name in ("seed 0", "seed 1", "seed 2"):
        first, last = runs[name][0], runs[name][-1]
        assert last["ran_code"] > max(0.9, first["ran_code"])
        assert last["solved"] > first["solved"] + 0.3
