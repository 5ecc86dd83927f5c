"""`rolloutgym demo`: the whole product in one go, from the service's start to its stop."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rolloutgym.cli.local import build, read_settings
from rolloutgym.cli.terminal import components, console, printable

if TYPE_CHECKING:
    from rolloutgym.cli.playing import Played


def demo(
    seed: Annotated[int, typer.Option(help="Chooses the tasks.", min=0)] = 0,
    episodes: Annotated[int, typer.Option(help="Episodes in each environment.", min=1)] = 1,
) -> None:
    """Start a service, let the reference policy play every environment over HTTP, and print how it went.

    Fails unless every episode is solved.
    """
    from rolloutgym.cli.playing import oracle, play_episode
    from rolloutgym.cli.service import own_service
    from rolloutgym.client import Client

    settings = read_settings()
    api_key = settings.api_key.get_secret_value() if settings.api_key else None
    local = build(settings)
    with own_service() as url, Client(url, api_key=api_key) as client:
        console.print(f"service at {url}: {', '.join(client.list_environments())}")
        played = [
            play_episode(client.environment(name), environment, oracle(name), seed=seed + episode)
            for name, environment in local.items()
            for episode in range(episodes)
        ]
    console.print(_table(played))
    if not all(one.success for one in played):
        raise typer.Exit(1)


def _table(played: "list[Played]") -> Table:
    table = Table()
    for heading in ("environment", "task", "turns", "return", "success", "stop reason", "components"):
        table.add_column(heading, no_wrap=heading == "environment", overflow="fold")
    for one in played:
        table.add_row(
            one.environment,
            printable(one.task_id),
            str(one.turns),
            f"{one.total_reward:.3g}",
            {True: "yes", False: "no", None: "unknown"}[one.success],
            one.stop_reason or "-",
            "\n".join(components(one.components).split(", ")),
        )
    return table
