"""`rolloutgym eval`: how well a model plays an environment."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rolloutgym.cli.terminal import console, errors, printable

if TYPE_CHECKING:
    from rolloutgym.training.evaluation import EpisodeRecord, Run
    from rolloutgym.training.generators.base import Generator
    from rolloutgym.training.rollouts import Limits
    from rolloutgym.training.sampling import SamplingParams
    from rolloutgym.training.service import RemoteEnvironment
    from rolloutgym.training.summaries import Summary

_GROUP_TAG = {"sql": "hardness", "toolcall": "scenario", "code": "kind"}


class _Model(NamedTuple):
    """A model, ready to play, and how many episodes it plays at once."""

    generator: "Generator"
    name: str
    rows: int
    threads: int


def evaluate(
    model: Annotated[
        str, typer.Option(help="A folder that transformers loads, or the base URL (with /v1) of an endpoint.")
    ],
    env: Annotated[str, typer.Option(help="sql, toolcall or code.")] = "sql",
    split: Annotated[str, typer.Option(help="Split of the environment's tasks.")] = "test",
    samples: Annotated[int, typer.Option(help="Episodes per task.", min=1)] = 1,
    limit: Annotated[int | None, typer.Option(help="Only the first tasks of the split.", min=1)] = None,
    url: Annotated[str | None, typer.Option(help="A running service; without one, one is started.")] = None,
    out: Annotated[Path | None, typer.Option(help="Record file (JSON lines); a stopped run goes on.")] = None,
    baseline: Annotated[list[Path] | None, typer.Option(help="Record file to compare with; may be repeated.")] = None,
    model_name: Annotated[str | None, typer.Option(help="The endpoint's model; by default its first.")] = None,
    temperature: Annotated[float, typer.Option(min=0.0)] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 1.0,
    top_k: Annotated[int, typer.Option(help="0 keeps all tokens.", min=0)] = 0,
    min_p: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.0,
    turn_tokens: Annotated[int, typer.Option(help="Most tokens of one turn.", min=1)] = 512,
    episode_tokens: Annotated[int, typer.Option(help="Most tokens of an episode.", min=1)] = 8192,
    reply_tokens: Annotated[int, typer.Option(help="Room kept for an answer of the environment.", min=0)] = 256,
    max_turns: Annotated[int | None, typer.Option(min=1)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends a turn; may be repeated.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="Reset option, name=value; may be repeated.")] = None,
    at_once: Annotated[int, typer.Option(help="Episodes played at the same time.", min=1)] = 16,
    group_by: Annotated[
        str | None, typer.Option(help="Task tag to group by; by default the environment's own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every task's first sample.", min=0)] = 0,
) -> None:
    """Play a split with a model, keep every episode, and print solve rate, pass@k, returns and why episodes ended.

    The endpoint's key is read from OPENAI_API_KEY, the service's from ROLLOUTGYM_API_KEY.
    """
    from rolloutgym.training.evaluation import EvaluationError, Run, read_records
    from rolloutgym.training.generators.openai import EndpointError
    from rolloutgym.training.rollouts import Limits
    from rolloutgym.training.sampling import SamplingParams

    if top_p == 0:
        raise typer.BadParameter("0 would keep no token", param_hint="--top-p")
    sampling = SamplingParams(temperature, top_k, top_p, min_p)
    limits = Limits(turn_tokens, episode_tokens, reply_tokens, max_turns)
    stop_tags = tuple(stop if stop is not None else ("</code>", "</answer>") if env == "code" else ())
    try:
        with (
            _environment(url, env) as environment,
            _load(model, model_name, sampling, stop_tags, at_once, seed) as player,
        ):
            metadata = environment.ask(lambda handle: handle.metadata())
            run = Run(
                environment=env,
                split=split,
                model=player.name,
                samples=samples,
                limit=limit,
                seed=seed,
                options=_options(option or []),
                sampling={**vars(sampling), "stop_tags": list(stop_tags)},
                limits=vars(limits),
                versions=metadata.model_dump(mode="json", include={"version", "prompt_version", "data_sha256"}),
            )
            path = out or Path("evaluations") / f"{env}-{split}-{Path(player.name).name}.jsonl"
            records = _play(environment, player, run, path, limits)
        others = [read_records(other) for other in baseline or []]
    except (EvaluationError, EndpointError) as error:
        errors.print(f"rolloutgym eval: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    _report(run, records, group_by or _GROUP_TAG.get(env, "source"))
    if others:
        console.print(_comparison(run, records, others))
    console.print(f"episodes: {path}", soft_wrap=True)


@contextmanager
def _environment(url: str | None, name: str) -> "Iterator[RemoteEnvironment]":
    """The service's environment; of a service that is started for it, without a URL."""
    from rolloutgym.cli.service import own_service
    from rolloutgym.training.service import RemoteEnvironment

    with ExitStack() as stack:
        base_url = url or stack.enter_context(own_service())
        key = os.environ.get("ROLLOUTGYM_API_KEY")
        yield stack.enter_context(RemoteEnvironment(base_url, name, api_key=key))


def _play(
    environment: "RemoteEnvironment", player: _Model, run: "Run", path: Path, limits: "Limits"
) -> "list[EpisodeRecord]":
    """All episodes of the run, under a progress bar."""
    from rolloutgym.training.evaluation import evaluate as play

    with _progress() as progress:
        bar = progress.add_task(f"{run.environment} {run.split}", total=None)
        return play(
            environment,
            player.generator,
            run,
            path,
            limits,
            rows=player.rows,
            threads=player.threads,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )


@contextmanager
def _load(
    model: str, name: str | None, sampling: "SamplingParams", stop_tags: tuple[str, ...], at_once: int, seed: int
) -> Iterator[_Model]:
    if model.startswith(("http://", "https://")):
        from rolloutgym.training.generators.openai import OpenAIGenerator

        key = os.environ.get("OPENAI_API_KEY")
        with OpenAIGenerator(model, name, sampling, api_key=key, stop_tags=stop_tags) as endpoint:
            yield _Model(endpoint, endpoint.model, rows=1, threads=at_once)
        return

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode

    if not Path(model).is_dir():
        raise typer.BadParameter(f"{model!r} is neither a folder nor a URL", param_hint="--model")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    load: Any = AutoModelForCausalLM.from_pretrained
    weights = load(model, dtype="auto" if device == "cuda" else torch.float32).to(device)
    with evaluation_mode(weights):
        generator = TransformersGenerator(weights, tokenizer, sampling, stop_tags=stop_tags, seed=seed)
        yield _Model(generator, model, rows=at_once, threads=1)


def _options(pairs: list[str]) -> dict[str, Any]:
    """`name=value`, the value as JSON where it is JSON and as text where it is not."""
    import json

    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not name=value", param_hint="--option")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=errors, transient=True,
    )  # fmt: skip


# ---- report ---------------------------------------------------------------------------------------------------------


def _report(run: "Run", records: "list[EpisodeRecord]", tag: str) -> None:
    from rolloutgym.training.summaries import summarise, summarise_groups

    summary = summarise(records)
    console.print(_summary_table(run, summary))
    groups = summarise_groups(records, tag)
    if len(groups) > 1:
        table = Table(tag, "tasks", "episodes", "solve rate", "95 %", "mean return", "turns", "tokens")
        for name, group in groups.items():
            table.add_row(
                printable(name),
                str(group.tasks),
                str(group.episodes),
                f"{group.solve_rate:.3f}",
                _interval(group.interval),
                f"{group.mean_return:.3f}",
                f"{group.turns:.1f}",
                f"{group.sampled_tokens:.0f}",
            )
        console.print(table)


def _summary_table(run: "Run", summary: "Summary") -> Table:
    table = Table("measure", "value", title=printable(f"{run.environment} {run.split}: {run.model}"))
    rows = {
        "tasks × samples": f"{summary.tasks} × {run.samples}",
        "solve rate": f"{summary.solve_rate:.3f}  (95 %: {_interval(summary.interval)})",
        **{f"pass@{k}": f"{value:.3f}" for k, value in summary.pass_at_k.items()},
        "mean return": f"{summary.mean_return:.3f}",
        **{f"  {name}": f"{value:+.3f}" for name, value in summary.components.items()},
        "invalid actions": f"{summary.invalid_action_rate:.1%}",
        "turns per episode": f"{summary.turns:.1f}",
        "tokens per episode": f"{summary.sampled_tokens:.0f}",
        **{f"ended: {reason}": f"{share:.1%}" for reason, share in summary.stop_reasons.items()},
        "faults (left out)": str(summary.faults),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _comparison(run: "Run", records: "list[EpisodeRecord]", others: "list[tuple[Run, list[EpisodeRecord]]]") -> Table:
    from rolloutgym.training.summaries import compare, summarise

    table = Table("run", "solve rate", "95 %", "mean return", "this − that", "95 %", "shared tasks", "better", "worse")
    own = summarise(records)
    table.add_row(printable(run.model), f"{own.solve_rate:.3f}", _interval(own.interval), f"{own.mean_return:.3f}")
    for other_run, other_records in others:
        other, gap = summarise(other_records), compare(other_records, records)
        table.add_row(
            printable(other_run.model),
            f"{other.solve_rate:.3f}",
            _interval(other.interval),
            f"{other.mean_return:.3f}",
            f"{gap.mean:+.3f}",
            _interval(gap.interval),
            str(gap.tasks),
            str(gap.better),
            str(gap.worse),
        )
    return table


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}"
