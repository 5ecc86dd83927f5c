"""`rolloutgym play`: a person takes the model's place."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolloutgym.cli.terminal import components, console, printable

if TYPE_CHECKING:
    from rolloutgym.client import EnvironmentHandle, Episode
    from rolloutgym.models import Message, StepResult


def play(
    environment: Annotated[str, typer.Argument(help="sql, toolcall or code.")],
    url: Annotated[str | None, typer.Option(help="A running service; without it, one is started for you.")] = None,
    api_key: Annotated[str | None, typer.Option(help="Its key.", envvar="ROLLOUTGYM_API_KEY")] = None,
    task_id: Annotated[str | None, typer.Option(help="The task to play.")] = None,
    split: Annotated[str | None, typer.Option(help="The split to take a task from.")] = None,
    index: Annotated[int | None, typer.Option(help="Which task of the split.", min=0)] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses the task where none is named.", min=0)] = None,
) -> None:
    """Play one episode in the terminal.

    You see what a model would see. Type what it would answer, over as many lines as you like; an empty line sends it.
    End of input (Ctrl-D) leaves.
    """
    from rolloutgym.cli.service import own_service
    from rolloutgym.client import Client

    with ExitStack() as stack:
        if url is None:
            console.print("starting a service …")
            url = stack.enter_context(own_service())
        try:
            client = stack.enter_context(Client(url, api_key=api_key))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        handle: EnvironmentHandle[Any, Any] = client.environment(environment)
        episode = stack.enter_context(handle.reset(task_id=task_id, split=split, index=index, seed=seed))
        console.rule(f"{environment}, task {episode.task_id}, seed {episode.seed}")
        _show(episode.messages)
        if _play(episode):
            console.rule(f"return {episode.total_reward:.4g}")
        else:
            console.print("left before the end")


def _play(episode: "Episode[Any, Any]") -> bool:
    """Whether the episode was played to its end."""
    while not episode.done:
        text = _typed()
        if text is None:
            return False
        result: StepResult[Any] = episode.step(text)
        _show(result.observation.messages)
        _score(result)
    return True


def _typed() -> str | None:
    """What the player types, up to an empty line; None at the end of input."""
    lines: list[str] = []
    while True:
        try:
            line = console.input("[bold]>[/] " if not lines else "[dim]…[/] ")
        except EOFError:
            return None
        if line:
            lines.append(line)
        elif lines:
            return "\n".join(lines)


def _show(messages: "tuple[Message, ...]") -> None:
    for message in messages:
        console.print(f"[bold cyan]{message.role}[/]")
        console.print(printable(message.content))


def _score(result: "StepResult[Any]") -> None:
    info = result.observation.info
    left = "" if info.budget_remaining is None else f", {info.budget_remaining} left"
    end = f", {info.stop_reason}, success {info.success}" if result.done else ""
    console.print(f"[dim]reward {result.reward:.4g} ({components(info.reward_components)}){left}{end}[/]")
