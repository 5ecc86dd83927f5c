"""`rolloutgym train-demo`: watch a model of 400 000 parameters learn from an environment's reward, on two cores."""

import json
import os
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rolloutgym.cli.terminal import console, printable

if TYPE_CHECKING:
    from rolloutgym.training.demo.games import Game
    from rolloutgym.training.demo.learning import Story

_SHOWS = """\
What this shows: rollouts over HTTP, exact tokens and masks, rewards and TRL's GRPO fit together, and a policy improves
on held-out tasks from reward alone.
What it does not show: that a large model would learn as fast, or anything about real questions. The tasks are few
sentences over a vocabulary of some hundred words, and the warm start has taught every word of a right solution."""


def train_demo(
    env: Annotated[str, typer.Option(help="sql, toolcall or code.")] = "sql",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    steps: Annotated[int | None, typer.Option(help="GRPO steps.", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Folder for curve.png and metrics.json.")] = Path("train-demo"),
) -> None:
    """Make a tiny model, let it imitate careless demonstrations, then train it by GRPO against a service started here.

    Prints the solve rate of held-out tasks on the way; minutes on two cores.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # TRL's use of an older name
    from rolloutgym.cli.service import own_service
    from rolloutgym.training.demo.learning import Plan, learn

    game = _game(env)
    plan = Plan(seed=seed) if steps is None else Plan(seed=seed, grpo_steps=steps)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rolloutgym-train-demo-") as scratch:
        settings = game.write(Path(scratch), seed)
        with own_service({**os.environ, **settings}) as url:
            story = learn(url, game, plan, Path(scratch) / "trainer", lambda line: console.print(line, markup=False))
    _write(out, story, env)
    for rollout in story.transcripts:
        console.print()
        for message in rollout.transcript:
            if message.role != "system":
                console.print(printable(f"{message.role:>9}: {message.content}"))
    first, last = story.measurements[0], story.measurements[-1]
    console.print(
        f"\nheld-out solve rate, greedy {first.greedy:.3f} → {last.greedy:.3f}, sampled {first.sampled:.3f} → "
        f"{last.sampled:.3f}, in {last.seconds:.0f} s; "
        f"an episode cost {story.waited_ms:.1f} ms of waiting for the service\n",
        soft_wrap=True,
    )
    console.print(_SHOWS, soft_wrap=True)
    console.print(f"\n{out / 'curve.png'}, {out / 'metrics.json'}", soft_wrap=True)


def _game(env: str) -> "Game":
    if env == "sql":
        from rolloutgym.training.demo.sql_game import SqlGame

        return SqlGame()
    if env == "toolcall":
        from rolloutgym.training.demo.toolcall_game import ToolCallGame

        return ToolCallGame()
    if env == "code":
        from rolloutgym.training.demo.code_game import CodeGame

        return CodeGame()
    raise typer.BadParameter(f"{env!r} is not sql, toolcall or code", param_hint="--env")


def _write(out: Path, story: "Story", env: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    metrics = {
        "environment": env,
        "parameters": story.parameters,
        "demonstration_success": story.demonstration_success,
        "held_out": [asdict(measurement) for measurement in story.measurements],
        "rewards": story.rewards,
        "waited_ms": story.waited_ms,
    }
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    steps = [measurement.step for measurement in story.measurements]
    axes.plot(range(1, len(story.rewards) + 1), story.rewards, color="0.8", label="return of the step's episodes")
    axes.plot(steps, [measurement.greedy for measurement in story.measurements], "o-", label="held out, greedy")
    axes.plot(steps, [measurement.sampled for measurement in story.measurements], "s-", label="held out, sampled")
    axes.plot(steps, [measurement.looked for measurement in story.measurements], ":", label=story.look)
    low, high = min(0.0, *story.rewards), max(1.0, *story.rewards)
    axes.set(xlabel="GRPO step", ylabel="share of tasks, or return", ylim=(low - 0.05, high + 0.05))
    axes.set_title(f"{env}: {story.parameters:,} parameters")
    axes.legend(loc="lower right")
    figure.savefig(out / "curve.png", dpi=120, bbox_inches="tight")
    pyplot.close(figure)
