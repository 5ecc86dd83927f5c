"""Multi-turn function calling: the model must make the calls that the data set expects, turn by turn."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rolloutgym.models import ToolCallAction, ToolCallObservation, ToolSpec
from rolloutgym.server.environments.base import Environment
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall import prompts, rewards
from rolloutgym.server.environments.toolcall.episode import ToolCallEpisode
from rolloutgym.server.environments.toolcall.executed import ExecutedEpisode
from rolloutgym.server.environments.toolcall.items import Item, ItemProblem
from rolloutgym.server.environments.toolcall.matched import MatchedEpisode
from rolloutgym.server.environments.toolcall.options import ToolCallOptions
from rolloutgym.server.environments.toolcall.parsing import MAX_CALLS, MAX_CHARS, MAX_DEPTH
from rolloutgym.server.environments.toolcall.tasks import load_items
from rolloutgym.server.errors import InvalidRequest
from rolloutgym.server.settings import Settings

_MOST_LISTED = 100


class ToolCallEnvironment(Environment[Item, ToolCallOptions, ToolCallAction, ToolCallObservation]):
    name = "toolcall"
    version = "1"
    prompt_version = prompts.PROMPT_VERSION
    description = "Multi-turn function calling with parsed, matched and executed calls."
    action_type = ToolCallAction
    observation_type = ToolCallObservation
    options_type = ToolCallOptions

    def __init__(self, tasks: TaskSet[Item], problems: Sequence[ItemProblem] = (), skipped: int = 0) -> None:
        self.tasks = tasks
        self._problems = tuple(problems)
        self._skipped = skipped

    def episode(self, task: Item, seed: int, options: ToolCallOptions) -> ToolCallEpisode:
        """The seed draws nothing here: items are fixed, and so are back ends."""
        if options.few_shot is not None:
            self._check_example(task, options.few_shot.task_id)
        if not options.execute:
            return MatchedEpisode(task, options)
        if task.backend is None:
            raise InvalidRequest(f"task {task.id!r} has no back end to execute on")
        return ExecutedEpisode(task, options, task.backend)

    def _check_example(self, task: Item, example_id: str) -> None:
        """An example must not show what the task asks for."""
        example = self.tasks.get(example_id)
        if example.id == task.id or example.group == task.group:
            raise InvalidRequest(f"few_shot: task {example_id!r} is not independent of task {task.id!r}")

    def tools(self) -> Sequence[ToolSpec]:
        return ()

    def reward_range(self) -> tuple[float, float]:
        return rewards.return_range(ToolCallOptions().scoring)

    def details(self) -> Mapping[str, Any]:
        return {
            "reward_ranges": {
                preset: rewards.return_range(ToolCallOptions(preset=preset).scoring) for preset in rewards.PRESETS
            },
            "limits": {"max_reply_chars": MAX_CHARS, "max_depth": MAX_DEPTH, "max_calls_per_reply": MAX_CALLS},
            "items_left_out": len(self._problems),
            "first_left_out": [
                {"id": problem.id, "reason": problem.reason} for problem in self._problems[:_MOST_LISTED]
            ],
            "items_skipped": self._skipped,
        }


def from_settings(settings: Settings) -> ToolCallEnvironment:
    tasks, problems = load_items(settings.toolcall_data)
    if settings.toolcall_skip is None:
        return ToolCallEnvironment(tasks, problems)
    every = [item for split in tasks.splits() for item in tasks.of_split(split)]
    kept = list(without_completed(every, read_skip_list(settings.toolcall_skip)))
    return ToolCallEnvironment(TaskSet(kept), problems, skipped=len(every) - len(kept))


def read_skip_list(path: Path) -> frozenset[str]:
    """Completed tasks, one a line: ids or first user messages."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return frozenset(_normal(line) for line in lines if line.strip())


def without_completed(items: Iterable[Item], completed: frozenset[str]) -> Iterable[Item]:
    """The items that the list names neither by id nor by first user message (white space does not matter)."""
    for item in items:
        first = next((message.content for message in item.history if message.role == "user"), "")
        if _normal(item.id) not in completed and _normal(first) not in completed:
            yield item


def _normal(text: str) -> str:
    return " ".join(text.split())
