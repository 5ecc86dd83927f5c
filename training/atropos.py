"""Groups of rollouts for a trainer that reads from an Atropos API server, and the client that hands them over.

play groups → `scored_group` → `AtroposClient.push`. Atropos checks nothing that it is given, so everything is checked
here: lengths, masks, finite scores, the group's size. A group is only pushed whole and without a fault, and only after
this environment was registered: data that comes before the trainer leaves the server unable to start. Tokens are those
that were sampled, and every turn of the assistant is trained on. `atroposlib` is not needed on this side.
"""

import gzip
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import stamina

from rolloutgym.training.chat import message_dict
from rolloutgym.training.generators.base import Generator
from rolloutgym.training.groups import drop_equal, turn_advantages
from rolloutgym.training.rollouts import Limits, Rollout, Task, TooManyFaults, play_batch
from rolloutgym.training.service import RemoteEnvironment

T = TypeVar("T")

NOT_TRAINED = -100
"""What a mask holds at tokens that the model did not sample; at the others it holds the token id."""

NO_LOGPROB = 1.0
"""What Atropos writes for a log-probability where the model did not sample: the logarithm of no probability."""

_FAULTED_IN_A_ROW = 5


class GroupRefused(ValueError):
    """The group does not fit together: it must not be pushed."""


class GroupUnusable(GroupRefused):
    """The group is sound, and of no use to the trainer: too long, or with nothing to train on."""


class AtroposError(RuntimeError):
    """The API server refused a call or cannot be reached."""


# ---- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredGroup:
    """Atropos' `ScoredDataGroup`: G rollouts of one task; lists of tokens are as long as their rollout."""

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    inference_logprobs: list[list[float]]
    messages: list[list[dict[str, Any]]]
    advantages: list[list[float]] | None = None
    """Per token; the trainer computes them from the scores if there are none."""

    def check(self, group_size: int, max_tokens: int) -> None:
        """Raise `GroupRefused` unless the trainer can use it. `max_tokens`: 0 and less are no limit, as in Atropos."""
        per_token: dict[str, Sequence[Sequence[float]]] = {
            "masks": self.masks,
            "inference_logprobs": self.inference_logprobs,
        }
        if self.advantages is not None:
            per_token["advantages"] = self.advantages
        rows: dict[str, Sequence[Any]] = {
            "tokens": self.tokens,
            "scores": self.scores,
            "messages": self.messages,
            **per_token,
        }
        for name, of_rollouts in rows.items():
            if len(of_rollouts) != group_size:
                raise GroupRefused(f"{name} has {len(of_rollouts)} rows, a group has {group_size}")
        for name, of_tokens in per_token.items():
            if [len(row) for row in of_tokens] != [len(tokens) for tokens in self.tokens]:
                raise GroupRefused(f"{name} and tokens differ in length")
        for tokens, mask in zip(self.tokens, self.masks, strict=True):
            if any(kept not in (NOT_TRAINED, token) for token, kept in zip(tokens, mask, strict=True)):
                raise GroupRefused("a mask holds neither the token nor -100")
            if all(kept == NOT_TRAINED for kept in mask):
                raise GroupUnusable("a rollout has no token to train on")
            if 0 < max_tokens <= len(tokens):
                raise GroupUnusable(f"a rollout has {len(tokens)} tokens, the trainer takes fewer than {max_tokens}")
        numbers = [self.scores, *self.inference_logprobs, *(self.advantages or [])]
        if not all(math.isfinite(number) for row in numbers for number in row):
            raise GroupRefused("a score, log-probability or advantage is not finite")
        if any("content" not in message for conversation in self.messages for message in conversation):
            raise GroupRefused("a message has no content")


def scored_group(rollouts: Sequence[Rollout], *, outcome_weight: float | None = None) -> ScoredGroup:
    """The group of these rollouts. The scores are the returns.

    With `outcome_weight` λ it has advantages, at each token its turn's: z(reward of the turn) + λ·z(return) over the
    group (see `groups.turn_advantages`), and 0 where nothing is trained.
    Raises `GroupRefused` for a fault, for rollouts without tokens, and for rollouts of more than one prompt.
    """
    returns_G: list[float] = []
    for rollout in rollouts:
        if rollout.fault is not None or rollout.episode_return is None:
            raise GroupRefused(f"a rollout has a fault: {rollout.fault}")
        if not rollout.prompt_ids:
            raise GroupRefused("a rollout has no tokens: its generator does not show them")
        if rollout.prompt_ids != rollouts[0].prompt_ids:
            raise GroupRefused("the rollouts have different prompts")
        returns_G.append(rollout.episode_return)
    advantages = None
    if outcome_weight is not None:
        turns_GT = [_turn_rewards(rollout) for rollout in rollouts]
        per_turn_GT = turn_advantages(turns_GT, returns_G, outcome_weight)
        advantages = [_per_token(rollout, row_T) for rollout, row_T in zip(rollouts, per_turn_GT, strict=True)]
    return ScoredGroup(
        tokens=[rollout.prompt_ids + rollout.completion_ids for rollout in rollouts],
        masks=[_along(rollout, rollout.completion_ids, NOT_TRAINED) for rollout in rollouts],
        scores=returns_G,
        inference_logprobs=[_along(rollout, rollout.logprobs, NO_LOGPROB) for rollout in rollouts],
        messages=[[message_dict(message) for message in rollout.transcript] for rollout in rollouts],
        advantages=advantages,
    )


def _along(rollout: Rollout, sampled: Sequence[T], otherwise: T) -> list[T]:
    """`sampled` where the model sampled the token, `otherwise` at the prompt and at the environment's tokens."""
    completion = (value if own else otherwise for value, own in zip(sampled, rollout.env_mask, strict=True))
    return [otherwise] * len(rollout.prompt_ids) + list(completion)


def _turn_rewards(rollout: Rollout) -> list[float]:
    """One reward for every turn that the model sampled. What a limit's ending was worth counts for the last of them."""
    turns = sum(own for own, _ in groupby(rollout.env_mask))
    rewards_T = list(rollout.turn_rewards)
    if len(rewards_T) == turns + 1 and turns:
        rewards_T[-2:] = [rewards_T[-2] + rewards_T[-1]]
    if len(rewards_T) != turns:
        raise GroupRefused(f"{len(rewards_T)} rewards cannot be told apart over {turns} turns")
    return rewards_T


def _per_token(rollout: Rollout, advantages_T: Sequence[float]) -> list[float]:
    row = [0.0] * len(rollout.prompt_ids)
    turns = iter(advantages_T)
    for own, tokens in groupby(rollout.env_mask):
        row += [next(turns) if own else 0.0] * len(list(tokens))
    return row


# ---- the API server -------------------------------------------------------------------------------------------------


class AtroposClient:
    """One environment's side of an Atropos API server: `register`, then `push`. Use it as a context manager."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 60.0,
        retries: int = 3,
        patience_s: float = 3600.0,
        poll_s: float = 1.0,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        """`patience_s`: longest wait for the trainer, to start or to take what is queued."""
        self._http = httpx2.Client(base_url=url, timeout=timeout_s, transport=transport)
        self._attempts = retries + 1
        self._patience_s = patience_s
        self._poll_s = poll_s
        self._env_id: int | None = None
        self._group_size = self._max_tokens = self._room = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def group_size(self) -> int:
        """Raises `RuntimeError` before `register`."""
        if self._env_id is None:
            raise RuntimeError("register first: data that comes before the trainer leaves the server unable to start")
        return self._group_size

    def register(
        self, name: str, *, group_size: int, max_tokens: int, weight: float = 1.0, batches_ahead: int = 3
    ) -> int:
        """Wait until the trainer has registered and asked for its first batch, then join; the environment's id.

        `max_tokens`: longest rollout that will come. `batches_ahead`: how much may be queued before `push` waits.
        """
        body = {"max_token_length": max_tokens, "desired_name": name, "weight": weight, "group_size": group_size}
        answer = self._until(
            lambda: self._call("POST", "/register-env", body), lambda answer: answer["status"] == "success"
        )
        self._env_id = int(answer["env_id"])
        info = self._call("GET", "/info")
        batch_size = int(info["batch_size"])
        if group_size < 2 or batch_size % group_size:
            raise ValueError(f"groups of {group_size} never fill the trainer's batch of {batch_size}")
        self._group_size = group_size
        self._max_tokens = int(info["max_token_len"])
        self._room = batches_ahead * batch_size // group_size
        return self._env_id

    def push(self, group: ScoredGroup) -> None:
        """Check the group, wait until the queue has room, and hand it over. Raises `GroupRefused`, `TimeoutError`."""
        group.check(self.group_size, self._max_tokens)
        # Also finds a server that has forgotten us, which must not be sent data either.
        self._until(
            lambda: self._call("GET", "/status-env", {"env_id": self._env_id}),
            lambda status: status["queue_size"] < self._room,
        )
        answer = self._call("POST", "/scored_data", {**asdict(group), "env_id": self._env_id})
        if answer["status"] != "received":
            raise AtroposError(f"the server did not queue the group: {answer}")

    def close(self) -> None:
        """Leave, so that the server shares its batches among the others."""
        try:
            if self._env_id is not None:
                self._http.post("/disconnect-env", json={"env_id": self._env_id})
                self._env_id = None
        except httpx2.TransportError:
            pass  # a server that has gone needs no goodbye
        finally:
            self._http.close()

    def _until(self, ask: Callable[[], Any], suits: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + self._patience_s
        while not suits(answer := ask()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the trainer did not go on within {self._patience_s:g} s; the server says {answer}")
            time.sleep(self._poll_s)
        return answer

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One call; tried again if the server cannot be reached or fails, and not if it refuses."""
        content = b"" if body is None else gzip.compress(json.dumps(body, allow_nan=False).encode(), compresslevel=6)
        headers = {"content-type": "application/json", "content-encoding": "gzip"} if body is not None else {}
        try:
            for attempt in stamina.retry_context(on=_may_pass, attempts=self._attempts, timeout=None):
                with attempt:
                    response = self._http.request(method, path, content=content, headers=headers)
                    response.raise_for_status()
            return response.json()
        except httpx2.HTTPStatusError as error:
            raise AtroposError(f"{method} {path}: {error.response.status_code} {error.response.text[:300]}") from error
        except httpx2.TransportError as error:
            raise AtroposError(f"{method} {path}: {error!r}") from error


def _may_pass(error: Exception) -> bool:
    """Whether trying again can help and sends nothing twice that has been taken."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, httpx2.ConnectError)


# ---- play and push --------------------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What became of the groups that were played."""

    pushed: int = 0
    equal: int = 0
    """Dropped: all returns are the same, so there is nothing to learn from."""
    faulted: int = 0
    """Dropped: an infrastructure fault remained after playing again."""
    unusable: int = 0
    """Dropped: longer than the trainer takes, or with nothing to train on."""
    replayed: int = 0
    """Rollouts played again for a fault."""


def play_group(
    environment: RemoteEnvironment,
    task: Task,
    generator: Generator,
    group_size: int,
    limits: Limits | None = None,
    *,
    replays: int = 1,
) -> tuple[list[Rollout], int]:
    """Play the task `group_size` times under one prompt; the rollouts, and how many were played again for a fault.

    A faulted rollout is played again up to `replays` times; what then has a fault still has it in the answer.
    """
    if task.seed is None:
        raise ValueError("a group shares one seed, as without one every reset draws its own: give the task a seed")
    limits = replace(limits or Limits(), max_fault_share=1.0)  # faults are the caller's to count
    rollouts = play_batch(environment, [task] * group_size, generator, limits)
    replayed = 0
    for _ in range(replays):
        faulted = [row for row, rollout in enumerate(rollouts) if rollout.fault]
        if not faulted:
            break
        replayed += len(faulted)
        for row, again in zip(faulted, play_batch(environment, [task] * len(faulted), generator, limits), strict=True):
            rollouts[row] = again
    return rollouts, replayed


def play_and_push(
    environment: RemoteEnvironment,
    tasks: Iterable[Task],
    generator: Generator,
    atropos: AtroposClient,
    limits: Limits | None = None,
    *,
    groups: int | None = None,
    outcome_weight: float | None = None,
) -> Counts:
    """Play a group of every task, until the tasks or `groups` of them are through, and push those that teach something.

    Raises `TooManyFaults` when five groups in a row were lost to faults.
    """
    counts = Counts()
    lost_in_a_row = 0
    for task in islice(tasks, groups):
        rollouts, replayed = play_group(environment, task, generator, atropos.group_size, limits)
        counts.replayed += replayed
        if faults := [rollout.fault for rollout in rollouts if rollout.fault]:
            counts.faulted += 1
            lost_in_a_row += 1
            if lost_in_a_row == _FAULTED_IN_A_ROW:
                raise TooManyFaults(f"{lost_in_a_row} groups in a row were lost to faults; the last: {faults[0]}")
            continue
        lost_in_a_row = 0
        group = scored_group(rollouts, outcome_weight=outcome_weight)
        if drop_equal([(group, group.scores)]).dropped:
            counts.equal += 1
            continue
        try:
            atropos.push(group)
        except GroupUnusable:
            counts.unusable += 1
        else:
            counts.pushed += 1
    return counts
