"""`rolloutgym retool-demo`: our own trainer learns to use the interpreter, three seeds and two comparisons."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutgym.cli.terminal import console

if TYPE_CHECKING:
    from rolloutgym.training.retool.demo import Run

_SHOWS = """\
What this shows: the trainer teaches a model that cannot add to have the interpreter add, from the reward alone; what
becomes of it without the interpreter mask and without the tool, each in one run.
What it does not show: anything about large models or real problems. One run is no measurement of a difference."""


def retool_demo(
    seeds: Annotated[int, typer.Option(help="Runs with the trainer as it is meant.", min=1)] = 3,
    steps: Annotated[int | None, typer.Option(help="GRPO steps of a run.", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Folder for curve.png, metrics.json and samples.txt.")] = Path(
        "retool-demo"
    ),
) -> None:
    """Train a tiny model from scratch on sums that it cannot do alone, with our own GRPO trainer.

    Starts a service of its own; prints the solve rate of held-out sums on the way; minutes on two cores.
    """
    from rolloutgym.cli.service import own_service
    from rolloutgym.training.demo.code_game import CodeGame
    from rolloutgym.training.retool.demo import Plan, demonstrate

    game = CodeGame()
    chosen = tuple(range(seeds))
    plan = Plan(seeds=chosen) if steps is None else Plan(seeds=chosen, steps=steps, evaluate_every=max(1, steps // 3))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rolloutgym-retool-demo-") as scratch:
        settings = game.write(Path(scratch), seed=0)
        with own_service({**os.environ, **settings}) as url:
            runs = demonstrate(url, game, plan, Path(scratch), lambda line: console.print(line, markup=False))
    _write(out, runs)
    console.print()
    for run in runs:
        first, last = run.measurements[0], run.measurements[-1]
        console.print(
            f"{run.name:>8}: held-out solve rate {first.solved:.2f} → {last.solved:.2f}, "
            f"runs code {first.ran_code:.2f} → {last.ran_code:.2f}, {run.seconds:.0f} s"
        )
    console.print(f"\n{_SHOWS}", soft_wrap=True)
    console.print(f"\n{out / 'curve.png'}, {out / 'metrics.json'}, {out / 'samples.txt'}", soft_wrap=True)


def _write(out: Path, runs: Sequence["Run"]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    metrics = {run.name: [asdict(measurement) for measurement in run.measurements] for run in runs}
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    samples = [
        f"--- {run.name}\n" + "\n".join(f"{message.role}: {message.content}" for message in rollout.transcript)
        for run in runs
        for rollout in run.transcripts
    ]
    (out / "samples.txt").write_text("\n\n".join(samples) + "\n", encoding="utf-8", errors="backslashreplace")
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True)
    for run in runs:
        style = "o-" if run.name.startswith("seed") else "x--"
        steps = [measurement.step for measurement in run.measurements]
        panels[0].plot(steps, [measurement.solved for measurement in run.measurements], style, label=run.name)
        panels[1].plot(steps, [measurement.ran_code for measurement in run.measurements], style, label=run.name)
    panels[0].set(xlabel="GRPO step", ylabel="share of held-out sums", ylim=(-0.05, 1.05), title="solved")
    panels[1].set(xlabel="GRPO step", title="ran code")
    panels[0].legend(loc="upper left")
    figure.savefig(out / "curve.png", dpi=120, bbox_inches="tight")
    pyplot.close(figure)
