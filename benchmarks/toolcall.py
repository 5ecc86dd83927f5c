"""What judging a tool call costs: parsing and matching per reply, and a whole turn over HTTP.

    python benchmarks/toolcall.py [--repeats 5] [--turns 400]

Replies are the expected calls of the data set, written as Hermes text after some reasoning. The reference beside each
figure is what a parser of tags and `json.loads` takes for the same text (no reasoning split, no checks, no matching);
over HTTP it is a request that does nothing, `GET /health`.
"""

import argparse
import json
import multiprocessing
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rolloutgym.client import Client
from rolloutgym.server.app import create_app
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.environments.toolcall.environment import ToolCallEnvironment
from rolloutgym.server.environments.toolcall.items import Item, Turn
from rolloutgym.server.environments.toolcall.parsing import MAX_CHARS, Schemas, parse
from rolloutgym.server.environments.toolcall.rewards import PRESETS, Scoring, score_turn
from rolloutgym.server.environments.toolcall.tasks import load_items
from rolloutgym.server.serving import server_of
from rolloutgym.server.settings import Settings

API_BANK = Path(__file__).resolve().parents[2] / "shared" / "data" / "toolcall" / "apibank.jsonl"
WANTED_US = 50.0
"""Most that parsing and matching a reply may take, median."""

_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Work(NamedTuple):
    text: str
    turn: Turn
    schemas: Schemas


class Quantiles(NamedTuple):
    p50: float
    p99: float


def items() -> list[Item]:
    """Real dialogues where there are some, else the shipped ones."""
    tasks, _ = load_items(API_BANK if API_BANK.is_file() else None)
    return [item for split in tasks.splits() for item in tasks.of_split(split)]


def hermes(turn: Turn) -> str:
    calls = (json.dumps({"name": call.name, "arguments": call.arguments}) for call in turn.calls)
    thought = "The user wants something that a function can do; its arguments are all in the conversation. " * 5
    return f"<think>\n{thought}\n</think>\n" + "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def replies() -> list[Work]:
    work = []
    for item in items():
        schemas = {tool.function.name: tool.function.parameters for tool in item.tools}
        work += [Work(hermes(turn), turn, schemas) for turn in item.steps if turn.calls]
    return work


def quantiles(one: Callable[[Work], object], work: Sequence[Work], repeats: int) -> Quantiles:
    """Microseconds per reply."""
    times = []
    for _ in range(repeats):
        for reply in work:
            began = perf_counter()
            one(reply)
            times.append((perf_counter() - began) * 1e6)
    times.sort()
    return Quantiles(statistics.median(times), times[int(len(times) * 0.99)])


def measure_replies(repeats: int) -> tuple[Table, bool]:
    work = replies()
    table = Table("per reply", "p50 µs", "p99 µs", "× reference", title=f"{len(work)} replies, {repeats} times")
    reference = quantiles(lambda w: [json.loads(block) for block in _BLOCK.findall(w.text)], work, repeats)
    table.add_row("tags and json.loads", f"{reference.p50:.1f}", f"{reference.p99:.1f}", "1.0")
    parsed = quantiles(lambda w: parse(w.text, w.schemas), work, repeats)
    table.add_row("parse", f"{parsed.p50:.1f}", f"{parsed.p99:.1f}", f"{parsed.p50 / reference.p50:.1f}")
    fast = True
    for preset in PRESETS:
        scoring = Scoring(preset=preset)
        judged = quantiles(lambda w: score_turn(parse(w.text, w.schemas), w.turn, w.schemas, scoring), work, repeats)  # noqa: B023
        table.add_row(
            f"parse and match: {preset}", f"{judged.p50:.1f}", f"{judged.p99:.1f}", f"{judged.p50 / reference.p50:.1f}"
        )
        fast = fast and judged.p50 <= WANTED_US
    return table, fast


HOSTILE = (
    "<tool_call>",
    '<tool_call>[",',
    "<function=f><parameter=a>",
    "[f(a='",
    "<|tool_call_begin|>f ",
    "[TOOL_CALLS]f[ARGS]{",
    "<start_function_call>call:",
)


def measure_hostile() -> Table:
    """Text of the greatest length that is read, made to be scanned again and again."""
    table = Table("hostile megabyte", "ms", title="beginnings of calls without end")
    for unit in HOSTILE:
        text = unit * (MAX_CHARS // len(unit))
        began = perf_counter()
        parse(text, {})
        table.add_row(escape(unit), f"{(perf_counter() - began) * 1e3:.0f}")
    return table


# ---- over HTTP ------------------------------------------------------------------------------------------------------


def _serve(port: Connection) -> None:
    settings = Settings(host="127.0.0.1", port=0, log_level="error", default_env="toolcall")
    app = create_app(settings, {"toolcall": ToolCallEnvironment(TaskSet(items()))})

    def listening() -> None:
        port.send(server.servers[0].sockets[0].getsockname()[1])

    server = server_of(app, settings, listening)
    server.run()


@contextmanager
def service() -> Iterator[str]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs,))
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def measure_turns(turns: int) -> Table:
    table = Table("over HTTP", "p50 ms", "p99 ms", "× reference", title=f"{turns} turns, one after the other")
    played = [item for item in items() if item.steps[0].calls][:turns]
    with service() as url:
        for transport in ("rest", "websocket"):
            times: dict[str, list[float]] = {"GET /health": [], f"{transport}: reset": [], f"{transport}: step": []}
            with Client(url, transport=transport) as client:
                for item in played:
                    _timed(client.health, times["GET /health"])
                    began = perf_counter()
                    episode = client.toolcall.reset(task_id=item.id)
                    times[f"{transport}: reset"].append(perf_counter() - began)
                    text = hermes(item.steps[0])
                    _timed(lambda: episode.step(text), times[f"{transport}: step"])  # noqa: B023
                    episode.close()
            reference = statistics.median(times["GET /health"])
            for name, taken in times.items():
                taken.sort()
                p50, p99 = statistics.median(taken), taken[int(len(taken) * 0.99)]
                table.add_row(name, f"{p50 * 1e3:.2f}", f"{p99 * 1e3:.2f}", f"{p50 / reference:.1f}")
    return table


def _timed(one: Callable[[], object], into: list[float]) -> None:
    began = perf_counter()
    one()
    into.append(perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--turns", type=int, default=400)
    options = parser.parse_args()
    console = Console()
    table, fast = measure_replies(options.repeats)
    console.print(table)
    console.print(f"every preset's median within {WANTED_US:.0f} µs: {'yes' if fast else 'NO'}")
    console.print(measure_hostile())
    console.print(measure_turns(options.turns))


if __name__ == "__main__":
    main()
