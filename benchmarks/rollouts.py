"""Lockstep generation with one cache against the same model played row by row, and with a prefill at every turn.

All three play the same conversations: a prompt, then turns of fixed length with an environment's reply after each, so
that they sample the same number of tokens. The figures are tokens sampled per second, best and median of several runs,
and the ratio of the bests. A last part plays 64 real episodes whose tool takes 0.25 s, over HTTP.

    python benchmarks/rollouts.py
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import torch
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rolloutgym.client import AsyncClient
from rolloutgym.models import Message
from rolloutgym.training.generators.base import Conversation
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Task, play_batch
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.service import RemoteEnvironment
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

TURNS, TURN_TOKENS, ROWS = 4, 32, 8
PROMPT = "x" * 200
REPLY = Message(role="user", content="y" * 40)


def played(generator: TransformersGenerator, rows: int) -> int:
    """Tokens sampled by the engine in one multi-turn batch."""
    batch = generator.begin([Conversation((Message(role="user", content=PROMPT),))] * rows)
    tokens = 0
    for turn in range(TURNS):
        said = batch.generate(dict.fromkeys(range(rows), TURN_TOKENS))
        tokens += sum(one.tokens for one in said.values())
        if turn < TURNS - 1:
            for row in range(rows):
                batch.reply(row, [REPLY], room=10_000)
    return tokens


def row_by_row(generator: TransformersGenerator) -> int:
    return sum(played(generator, 1) for _ in range(ROWS))


def prefilled(generator: TransformersGenerator) -> int:
    """The whole conversation through `generate` at every turn, all rows in one batch."""
    model, encoder = generator.model, generator.encoder
    ids = torch.tensor([encoder.prompt([Message(role="user", content=PROMPT)], [])] * ROWS)
    tokens = 0
    for turn in range(TURNS):
        ids = model.generate(  # type: ignore[operator]
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=TURN_TOKENS,
            max_new_tokens=TURN_TOKENS,
            pad_token_id=generator.tokenizer.pad_token_id,
        )
        tokens += ROWS * TURN_TOKENS
        if turn < TURNS - 1:
            reply = encoder.continuation([REPLY], closed_by=None)
            ids = torch.cat([ids, torch.tensor([reply] * ROWS)], dim=1)
    return tokens


def rates(plays: Mapping[str, Callable[[], int]], runs: int) -> dict[str, list[float]]:
    """Tokens per second of each run, after one to warm up; in turns, so that all meet the same load."""
    found: dict[str, list[float]] = {name: [] for name in plays}
    for run in range(runs + 1):
        for name, play in plays.items():
            started = time.perf_counter()
            tokens = play()
            if run:
                found[name].append(tokens / (time.perf_counter() - started))
    return found


def without_end_of_turn(model: PreTrainedModel, eos: int) -> None:
    """Turns then have the same length in all three."""

    def never(module: Any, args: Any, logits: torch.Tensor) -> torch.Tensor:
        logits[..., eos] = -1e9
        return logits

    head: Any = model.get_submodule("lm_head")
    head.register_forward_hook(never)


# ---- waiting for a slow tool ----------------------------------------------------------------------------------------


async def slow_tool(request: httpx2.Request) -> httpx2.Response:
    """A service whose every action takes 0.25 s."""
    if request.method == "DELETE":
        return httpx2.Response(200, json={})
    body = json.loads(request.content)
    reset = request.url.path.endswith("/reset")
    if not reset:
        await asyncio.sleep(0.25)
    info: dict[str, Any] = {
        "terminated": not reset,
        "stop_reason": None if reset else "answered",
        "reward_components": {},
    }
    messages = [{"role": "user", "content": "go"}] if reset else []
    answer = {
        "observation": {"messages": messages, "info": info},
        "reward": None if reset else 0.0,
        "done": not reset,
        "episode_id": body["episode_id"],
        "step_count": 0 if reset else 1,
        "task_id": "t",
        "seed": 0,
    }
    return httpx2.Response(200, json=answer)


def slow_turn(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[float, float]:
    """Seconds that 64 episodes of one slow action take, and how many of them were spent waiting."""
    client = AsyncClient(http_transport=httpx2.MockTransport(slow_tool))
    generator = TransformersGenerator(model, tokenizer, stop_tags=tuple("abcdefghijklmnopqrstuvwxyz \n"))
    with RemoteEnvironment(client, "scripted") as environment:
        started = time.perf_counter()
        play_batch(environment, [Task(task_id="t")] * 64, generator, Limits(turn_tokens=64))
        return time.perf_counter() - started, environment.waited_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="of torch; more need cores that are idle")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console()
    tokenizer = byte_tokenizer()
    model = tiny_llama(tokenizer, hidden=arguments.hidden, layers=arguments.layers, heads=6)
    without_end_of_turn(model, int(tokenizer.eos_token_id))
    generator = TransformersGenerator(model, tokenizer, SamplingParams())
    with evaluation_mode(model), torch.no_grad():
        found = rates(
            {
                f"lockstep, {ROWS} rows, one cache": lambda: played(generator, ROWS),
                f"generate, {ROWS} rows, prefills": lambda: prefilled(generator),
                "row by row": lambda: row_by_row(generator),
            },
            arguments.runs,
        )
        seconds, waited = slow_turn(model, tokenizer)
    best = max(next(iter(found.values())))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    table = Table("", "best tok/s", "median tok/s", "lockstep is", title=f"{parameters / 1e6:.1f} M parameters, fp32")
    for name, values in found.items():
        table.add_row(name, f"{max(values):.0f}", f"{statistics.median(values):.0f}", f"{best / max(values):.2f} ×")
    console.print(table)
    console.print(
        f"64 episodes, a tool of 0.25 s each: {seconds:.2f} s in all, {waited:.2f} s of it waiting "
        f"(one after the other: 16 s)"
    )


if __name__ == "__main__":
    main()
