"""Reference policies of the code environment. They read the true answer from the data set, never from the wire."""

from collections.abc import Callable

from rolloutgym.models import CodeAction, Observation
from rolloutgym.server.environments.code.tasks import CodeTask
from rolloutgym.server.environments.seeding import seeded_random


class _Script:
    """Plays actions made from the task, one a turn; the last one is repeated."""

    def __init__(self, actions_of: Callable[[CodeTask], list[CodeAction]]) -> None:
        self._actions_of = actions_of
        self._actions: list[CodeAction] = []

    def start(self, task: CodeTask, observation: Observation) -> None:
        self._actions = self._actions_of(task)

    def act(self, observation: Observation) -> CodeAction:
        return self._actions.pop(0) if len(self._actions) > 1 else self._actions[0]


def oracle() -> _Script:
    """Looks once, then gives the true answer."""
    return _Script(_oracle_actions)


def do_nothing() -> _Script:
    """Runs empty code until its turns are over."""
    return _Script(lambda task: [CodeAction(text="<code></code>")])


def random(seed: int) -> _Script:
    """Guesses a small number, or a function that returns nothing."""

    def actions(task: CodeTask) -> list[CodeAction]:
        guess = seeded_random(seed, task.id).randrange(100)
        if task.tests is not None:
            program = f"def {task.tests.entry_point}(*args):\n    return {guess}"
            return [CodeAction(text=f"<answer>\n{program}\n</answer>")]
        return [CodeAction(text=f"My guess is \\boxed{{{guess}}}.")]

    return _Script(actions)


def _oracle_actions(task: CodeTask) -> list[CodeAction]:
    look = CodeAction(text="Let me look.\n<code>\nsum(range(10))\n</code>")
    if task.is_program:
        return [look, CodeAction(text=f"<answer>\n```python\n{task.answer}\n```\n</answer>")]
    return [look, CodeAction(text=f"So the answer is \\boxed{{{task.answer}}}.")]
