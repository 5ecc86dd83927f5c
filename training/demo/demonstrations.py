"""Record demonstrations from the service, and teach a model to talk like them.

The transcripts are encoded as rollouts are: the prompt, then turn by turn the demonstrator's words, with the end of the
turn, and the environment's, which are not learned. Suffixes: B = episodes, T = tokens.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rolloutgym.models import Message
from rolloutgym.training.chat import ChatEncoder
from rolloutgym.training.demo.games import Game
from rolloutgym.training.rollouts import Task
from rolloutgym.training.service import Fault, Handle, RemoteEnvironment

_AT_ONCE = 128


class Demonstration(NamedTuple):
    prompt: tuple[Message, ...]
    turns: list[tuple[str, tuple[Message, ...]]]
    """What the demonstrator said, and what the environment answered."""
    success: bool


def record(
    environment: RemoteEnvironment, game: Game, tasks: Sequence[Task], draws: random.Random
) -> list[Demonstration]:
    """One demonstration for every task, played on the service."""
    recorded: list[Demonstration] = []
    for start in range(0, len(tasks), _AT_ONCE):
        plays = [
            partial(_demonstrate, game=game, task=task, draws=random.Random(draws.random()))
            for task in tasks[start : start + _AT_ONCE]
        ]
        for played in environment.gather(plays):
            if isinstance(played, Fault):
                raise RuntimeError(f"a demonstration failed: {played.message}")
            recorded.append(played)
    return recorded


async def _demonstrate(handle: Handle, game: Game, task: Task, draws: random.Random) -> Demonstration:
    async with await handle.reset(task_id=task.task_id, seed=task.seed, options=task.options) as episode:
        prompt, turns = episode.messages, []
        assert episode.task_id is not None
        speaker = game.demonstrate(episode.task_id, draws)
        text = next(speaker)
        while True:
            result = await episode.step(text)
            messages = result.observation.messages
            turns.append((text, messages))
            if episode.done:
                return Demonstration(prompt, turns, bool(result.observation.info.success))
            text = speaker.send("\n".join(message.content for message in messages))


def words_of(demonstrations: Sequence[Demonstration]) -> list[str]:
    """Every word between spaces that occurs, in order of appearance."""
    texts = (
        text
        for one in demonstrations
        for text in (
            *(message.content for message in one.prompt),
            *(part for said, heard in one.turns for part in (said, *(message.content for message in heard))),
        )
    )
    return list(dict.fromkeys(word for text in texts for word in text.split()))


class Encoded(NamedTuple):
    ids: list[int]
    learned: list[bool]
    """The demonstrator's own tokens."""


def encode(
    demonstration: Demonstration,
    tokenizer: PreTrainedTokenizerBase,
    encoder: ChatEncoder,
    stop_tags: tuple[str, ...] = (),
) -> Encoded:
    """A turn that ends with a stop tag is not closed by an end-of-turn token: none will be sampled there either."""
    ids = encoder.prompt(demonstration.prompt, [])
    learned = [False] * len(ids)
    for number, (said, heard) in enumerate(demonstration.turns):
        own = list(tokenizer.encode(said, add_special_tokens=False))
        closed = not said.endswith(stop_tags) if stop_tags else True
        if closed:
            own.append(tokenizer.eos_token_id)
        last = number == len(demonstration.turns) - 1
        shown = [] if last else encoder.continuation(heard, tokenizer.eos_token_id if closed else None)
        ids += own + shown
        learned += [True] * len(own) + [False] * len(shown)
    return Encoded(ids, learned)


def imitate(
    model: PreTrainedModel,
    examples: Sequence[Encoded],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    pad_id: int,
    draws: random.Random,
    on_step: Callable[[int, float], None],
) -> None:
    """Supervised steps on the demonstrator's tokens; `on_step` gets the step's number and loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    warm_up = max(steps // 10, 1)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / warm_up) * (1 - 0.9 * step / steps)
        some = draws.sample(examples, batch_size)
        width = max(len(example.ids) for example in some)
        ids_BT = torch.tensor([example.ids + [pad_id] * (width - len(example.ids)) for example in some])
        real_BT = torch.tensor([[1] * len(example.ids) + [0] * (width - len(example.ids)) for example in some])
        learned_BT = torch.tensor([example.learned + [False] * (width - len(example.ids)) for example in some])
        logits_BTV = model(input_ids=ids_BT, attention_mask=real_BT).logits[:, :-1]
        wanted_BT = learned_BT[:, 1:]
        loss = functional.cross_entropy(logits_BTV[wanted_BT], ids_BT[:, 1:][wanted_BT])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        on_step(step, loss.item())
