"""Evaluate a model on a split: every task a few times, every episode on record as soon as it is played, resumable.

The record file is JSON lines: first the run (what was evaluated, and how), then one line per episode. A run that
stopped goes on where it was: only episodes that are missing or faulted are played. A file of another run is refused.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from rolloutgym.models import Message, StopReason, TaskInfo
from rolloutgym.training.generators.base import Generator
from rolloutgym.training.generators.openai import EndpointError
from rolloutgym.training.rollouts import Limits, Rollout, Task, play_batch
from rolloutgym.training.service import RemoteEnvironment

_MAX_FAULT_SHARE = 0.1
_MIN_FAULTS = 5


class EvaluationError(Exception):
    """The record file does not fit the run, or too much failed."""


class Run(BaseModel):
    """What was evaluated. Two runs whose fields are equal may share a record file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["run"] = "run"
    environment: str
    split: str
    model: str
    samples: int
    """Episodes per task."""
    limit: int | None
    """Only the first tasks of the split."""
    seed: int
    """Of the first sample of every task; the next samples count up."""
    options: dict[str, JsonValue]
    sampling: dict[str, JsonValue]
    limits: dict[str, JsonValue]
    versions: dict[str, JsonValue]
    """The environment's version, prompt version and data hashes, as the service reports them."""


class EpisodeRecord(BaseModel):
    """One played episode."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["episode"] = "episode"
    task_id: str
    sample: int
    seed: int
    tags: dict[str, str | int | float | bool]
    episode_return: float | None
    success: bool | None
    components: dict[str, float]
    stop_reason: StopReason | None
    turns: int
    invalid_actions: int
    sampled_tokens: int
    fault: str | None
    transcript: list[Message]


@dataclass(frozen=True)
class Job:
    """One episode to play."""

    info: TaskInfo
    sample: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        return self.info.id, self.sample


# ---- playing --------------------------------------------------------------------------------------------------------


def evaluate(
    environment: RemoteEnvironment,
    generator: Generator,
    run: Run,
    path: Path,
    limits: Limits,
    *,
    rows: int = 8,
    threads: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[EpisodeRecord]:
    """Play what `path` does not hold yet, in batches of `rows` from so many threads; all records, old and new.

    Local models play one thread of many rows, endpoints many threads of one row. Raises `EvaluationError`, and
    `EndpointError` and `RolloutGymError` for mistakes that every episode would meet.
    """
    infos = environment.ask(lambda handle: handle.tasks(run.split, 0, run.limit))
    jobs = [Job(info, sample, run.seed + sample) for info in infos for sample in range(run.samples)]
    known = open_records(path, run)
    records = [known[job.key] for job in jobs if job.key in known]
    missing = [job for job in jobs if job.key not in known]
    on_progress(len(records), len(jobs))
    player = _Player(environment, generator, run, replace(limits, max_fault_share=1.0))
    with path.open("a", encoding="utf-8") as file, ThreadPoolExecutor(threads) as pool:
        batches = [missing[start : start + rows] for start in range(0, len(missing), rows)]
        futures = [pool.submit(player.play, batch) for batch in batches]
        try:
            for future in as_completed(futures):
                played = future.result()
                file.writelines(record.model_dump_json() + "\n" for record in played)
                file.flush()
                records += played
                _stop_if_too_much_failed(records)
                on_progress(len(records), len(jobs))
        finally:
            for future in futures:
                future.cancel()
    return records


@dataclass(frozen=True)
class _Player:
    environment: RemoteEnvironment
    generator: Generator
    run: Run
    limits: Limits

    def play(self, jobs: Sequence[Job]) -> list[EpisodeRecord]:
        tasks = [Task(task_id=job.info.id, seed=job.seed, options=self.run.options) for job in jobs]
        try:
            rollouts = play_batch(self.environment, tasks, self.generator, self.limits)
        except EndpointError as error:
            if error.fatal:
                raise
            return [_record(job, None, f"endpoint: {error}") for job in jobs]
        return [_record(job, rollout, None) for job, rollout in zip(jobs, rollouts, strict=True)]


def _record(job: Job, rollout: Rollout | None, fault: str | None) -> EpisodeRecord:
    if rollout and rollout.fault:
        fault = f"{rollout.fault.code}: {rollout.fault.message}"
    return EpisodeRecord(
        task_id=job.info.id,
        sample=job.sample,
        seed=job.seed,
        tags=job.info.tags,
        episode_return=rollout.episode_return if rollout else None,
        success=rollout.success if rollout else None,
        components=rollout.components if rollout else {},
        stop_reason=rollout.stop_reason if rollout else None,
        turns=rollout.turns if rollout else 0,
        invalid_actions=rollout.invalid_actions if rollout else 0,
        sampled_tokens=rollout.sampled_tokens if rollout else 0,
        fault=fault,
        transcript=list(rollout.transcript) if rollout else [],
    )


def _stop_if_too_much_failed(records: Sequence[EpisodeRecord]) -> None:
    faults = [record.fault for record in records if record.fault]
    if len(faults) >= _MIN_FAULTS and len(faults) > _MAX_FAULT_SHARE * len(records):
        raise EvaluationError(f"{len(faults)} of {len(records)} episodes failed; the last: {faults[-1]}")


# ---- records --------------------------------------------------------------------------------------------------------


def open_records(path: Path, run: Run) -> dict[tuple[str, int], EpisodeRecord]:
    """The episodes that `path` already holds, without faulted ones; a new file begins with the run's line.

    `EvaluationError` where the file is of another run. A last line that a crash cut short is dropped.
    """
    if not path.exists() or path.stat().st_size == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(run.model_dump_json() + "\n", encoding="utf-8")
        return {}
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    before, records = read_records(path)
    changed = [name for name in Run.model_fields if getattr(before, name) != getattr(run, name)]
    if changed:
        raise EvaluationError(f"{path} holds another run: {', '.join(changed)} differ; choose another file")
    return {(record.task_id, record.sample): record for record in records if record.fault is None}


def read_records(path: Path) -> tuple[Run, list[EpisodeRecord]]:
    """What a record file holds; of an episode played again after a fault, the last. `EvaluationError` if it is none."""
    with path.open(encoding="utf-8") as file:
        try:
            run = Run.model_validate_json(file.readline())
            records = [EpisodeRecord.model_validate_json(line) for line in file]
        except ValidationError as error:
            raise EvaluationError(f"{path} is no record of an evaluation: {error}") from error
    return run, list({(record.task_id, record.sample): record for record in records}.values())
