"""The Atropos bridge: what a group is, what is never pushed, and how the client treats the API server."""

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
import stamina

from rolloutgym.models import Message
from rolloutgym.training.atropos import (
    AtroposClient,
    AtroposError,
    GroupRefused,
    GroupUnusable,
    ScoredGroup,
    play_and_push,
    play_group,
    scored_group,
)
from rolloutgym.training.generators.transformers import TransformersGenerator, evaluation_mode
from rolloutgym.training.rollouts import Limits, Rollout, Task, TooManyFaults
from rolloutgym.training.service import Fault, RemoteEnvironment
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

FAULT = Fault("worker_lost", "sandbox", "gone")


def rollout(score: float = 1.0, turn_rewards: tuple[float, ...] | None = None) -> Rollout:
    """Two turns of the model, 7 8 and 9, with the environment's 5 6 between them, after the prompt 1 2 3."""
    return Rollout(
        task_id="a",
        seed=0,
        episode_id="e",
        prompt_ids=[1, 2, 3],
        completion_ids=[7, 8, 5, 6, 9],
        env_mask=[1, 1, 0, 0, 1],
        logprobs=[-0.1, -0.2, 0.0, 0.0, -0.3],
        episode_return=score,
        components={"r": score},
        stop_reason=None,
        success=None,
        turns=2,
        invalid_actions=0,
        sampled_tokens=3,
        transcript=(Message(role="user", content="q"), Message(role="assistant", content="", tool_calls=())),
        turn_rewards=(0.0, score) if turn_rewards is None else turn_rewards,
    )


# ---- groups ---------------------------------------------------------------------------------------------------------


def test_a_group_by_hand() -> None:
    group = scored_group([rollout(1.0), rollout(0.0)])
    assert group.tokens[0] == [1, 2, 3, 7, 8, 5, 6, 9]
    assert group.masks[0] == [-100, -100, -100, 7, 8, -100, -100, 9]
    assert group.inference_logprobs[0] == [1.0, 1.0, 1.0, -0.1, -0.2, 1.0, 1.0, -0.3]
    assert group.scores == [1.0, 0.0]
    assert group.advantages is None
    assert all("content" in message for message in group.messages[0])
    group.check(2, 9)


def test_advantages_are_those_of_a_tokens_turn() -> None:
    """Turn rewards 1, 1 and 0, 1; returns 2 and 1. z is ±1, or 0 where nothing differs; λ = 0.5."""
    group = scored_group([rollout(2.0, (1.0, 1.0)), rollout(1.0, (0.0, 1.0))], outcome_weight=0.5)
    assert group.advantages == [[0, 0, 0, 1.5, 1.5, 0, 0, 0.5], [0, 0, 0, -1.5, -1.5, 0, 0, -0.5]]


def test_what_a_limits_ending_is_worth_counts_for_the_last_turn() -> None:
    group = scored_group([rollout(2.0, (0.0, 1.0, 1.0)), rollout(1.0, (0.0, 1.0))], outcome_weight=0.0)
    assert group.advantages == [[0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, -1]]
    with pytest.raises(GroupRefused, match="told apart"):
        scored_group([rollout(1.0, (1.0,)), rollout()], outcome_weight=0.0)


@pytest.mark.parametrize(
    ("broken", "match"),
    [
        (replace(rollout(), fault=FAULT, episode_return=None), "fault"),
        (replace(rollout(), prompt_ids=[]), "no tokens"),
        (replace(rollout(), prompt_ids=[1, 2, 4]), "different prompts"),
    ],
)
def test_rollouts_that_make_no_group(broken: Rollout, match: str) -> None:
    with pytest.raises(GroupRefused, match=match):
        scored_group([rollout(), broken])


GROUP = scored_group([rollout(1.0), rollout(0.0)], outcome_weight=1.0)
SECOND_ROW = {
    "tokens": [1, 2, 3, 7, 8, 5, 6],
    "masks": [-100] * 3,
    "inference_logprobs": [1.0] * 9,
    "advantages": [0.0],
}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        *(
            ({name: [getattr(GROUP, name)[0], row]}, GroupRefused, "differ in length")
            for name, row in SECOND_ROW.items()
        ),
        *(({name: getattr(GROUP, name)[:1]}, GroupRefused, f"{name} has 1 rows") for name in (*SECOND_ROW, "scores")),
        ({"messages": []}, GroupRefused, "messages has 0 rows"),
        ({"scores": [1.0, math.nan]}, GroupRefused, "finite"),
        ({"scores": [1.0, math.inf]}, GroupRefused, "finite"),
        ({"inference_logprobs": [[math.nan] * 8] * 2}, GroupRefused, "finite"),
        ({"advantages": [[-math.inf] * 8] * 2}, GroupRefused, "finite"),
        ({"masks": [GROUP.masks[0], [1] * 8]}, GroupRefused, "neither the token"),
        ({"masks": [GROUP.masks[0], [-100] * 8]}, GroupUnusable, "no token to train on"),
        ({"messages": [[{"role": "user"}]] * 2}, GroupRefused, "no content"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], error: type[GroupRefused], match: str) -> None:
    GROUP.check(2, 0)
    with pytest.raises(error, match=match):
        replace(GROUP, **change).check(2, 0)


def test_a_rollout_is_shorter_than_the_trainers_longest() -> None:
    GROUP.check(2, 9)
    with pytest.raises(GroupUnusable, match="fewer than 8"):
        GROUP.check(2, 8)


# ---- the client -----------------------------------------------------------------------------------------------------


@dataclass
class FakeServer:
    """As Atropos answers; the real one is used in the slow test below."""

    batch_size: int = 4
    started_after: int = 2
    queue_sizes: list[int] = field(default_factory=list)
    """What `/status-env` says, one after the other; then 0."""
    failures: list[int] = field(default_factory=list)
    """Statuses of the next pushes before one is taken."""
    calls: list[tuple[str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(gzip.decompress(request.read())) if "content-encoding" in request.headers else None
        path = request.url.path
        self.calls.append((path, body))
        if path == "/register-env":
            self.started_after -= 1
            answer = {"status": "wait for trainer to start"} if self.started_after >= 0 else {"status": "success"}
            return httpx2.Response(200, json=answer | {"env_id": 3})
        if path == "/info":
            return httpx2.Response(200, json={"batch_size": self.batch_size, "max_token_len": 64})
        if path == "/status-env":
            return httpx2.Response(200, json={"queue_size": self.queue_sizes.pop(0) if self.queue_sizes else 0})
        if path == "/scored_data" and self.failures:
            return httpx2.Response(self.failures.pop(0), text="failed")
        return httpx2.Response(200, json={"status": "received"})

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]


@pytest.fixture
def quick() -> Iterator[None]:
    with stamina.set_testing(True, attempts=4, cap=True):
        yield


def connect(server: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> AtroposClient:
    return AtroposClient(
        "http://atropos", transport=httpx2.MockTransport(server), poll_s=0.0, **{"patience_s": 60.0} | options
    )


def test_registers_before_it_pushes_and_leaves() -> None:
    server = FakeServer()
    with connect(server) as client:
        with pytest.raises(RuntimeError, match="register first"):
            client.push(GROUP)
        assert server.calls == []
        assert client.register("sql", group_size=2, max_tokens=64, weight=2.0) == 3
        client.push(GROUP)
    assert server.paths() == [*["/register-env"] * 3, "/info", "/status-env", "/scored_data", "/disconnect-env"]
    wanted = {"max_token_length": 64, "desired_name": "sql", "weight": 2.0, "group_size": 2}
    assert server.calls[0][1] == wanted
    pushed = server.calls[-2][1]
    assert pushed["env_id"] == 3
    assert pushed["masks"] == GROUP.masks
    assert pushed["advantages"] == GROUP.advantages


def test_waits_while_the_queue_is_full() -> None:
    server = FakeServer(started_after=0, queue_sizes=[7, 4, 3])
    with connect(server) as client:
        client.register("sql", group_size=2, max_tokens=64, batches_ahead=2)  # room for 2 · 4 / 2 = 4 groups
        client.push(GROUP)
    assert server.paths().count("/status-env") == 3
    assert server.paths().count("/scored_data") == 1


def test_does_not_wait_for_ever() -> None:
    with (
        connect(FakeServer(started_after=10**9), patience_s=0.0) as client,
        pytest.raises(TimeoutError, match="wait for"),
    ):
        client.register("sql", group_size=2, max_tokens=64)
    server = FakeServer(started_after=0, queue_sizes=[99] * 10)
    with connect(server, patience_s=0.0) as client:
        client.register("sql", group_size=2, max_tokens=64)
        with pytest.raises(TimeoutError, match="99"):
            client.push(GROUP)
    assert "/scored_data" not in server.paths()


@pytest.mark.parametrize("group_size", [1, 3, 8])
def test_a_group_that_never_fills_a_batch_is_a_mistake(group_size: int) -> None:
    with connect(FakeServer(started_after=0)) as client, pytest.raises(ValueError, match="never fill"):
        client.register("sql", group_size=group_size, max_tokens=64)


def test_a_refused_group_is_not_sent() -> None:
    server = FakeServer(started_after=0)
    with connect(server) as client:
        client.register("sql", group_size=2, max_tokens=64)
        with pytest.raises(GroupRefused):
            client.push(replace(GROUP, scores=[math.nan, 0.0]))
    assert "/scored_data" not in server.paths()


@pytest.mark.parametrize(("failures", "pushes"), [([500, 503], 3), ([422], 1), ([500] * 9, 4)])
def test_tries_again_when_the_server_fails_and_not_when_it_refuses(
    failures: list[int], pushes: int, quick: None
) -> None:
    server = FakeServer(started_after=0, failures=list(failures))
    with connect(server) as client:
        client.register("sql", group_size=2, max_tokens=64)
        if pushes == 3:
            client.push(GROUP)
        else:
            with pytest.raises(AtroposError, match=rf"POST /scored_data: {failures[0]} failed"):
                client.push(GROUP)
    assert server.paths().count("/scored_data") == pushes


def test_a_push_that_may_have_arrived_is_not_repeated(quick: None) -> None:
    tried: list[str] = []
    inner = FakeServer(started_after=0)

    def server(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/scored_data":
            tried.append("push")
            raise httpx2.ReadTimeout("no answer", request=request)
        return inner(request)

    with connect(server) as client:
        client.register("sql", group_size=2, max_tokens=64)
        with pytest.raises(AtroposError, match="ReadTimeout"):
            client.push(GROUP)
    assert tried == ["push"]


# ---- play and push --------------------------------------------------------------------------------------------------

TOKENIZER = byte_tokenizer()
MODEL = tiny_llama(TOKENIZER, hidden=16, layers=1, heads=2, context=2048)
LIMITS = Limits(turn_tokens=4, episode_tokens=12, reply_tokens=4)


def scripted(monkeypatch: pytest.MonkeyPatch, *batches: list[Rollout]) -> list[int]:
    """`play_batch` answers with these; returns the list of how many tasks each call was given."""
    asked: list[int] = []
    script = iter(batches)

    def play(_environment: Any, tasks: list[Task], _generator: Any, limits: Limits) -> list[Rollout]:
        assert limits.max_fault_share == 1.0
        asked.append(len(tasks))
        return next(script)

    monkeypatch.setattr("rolloutgym.training.atropos.play_batch", play)
    return asked


BROKEN = replace(rollout(), fault=FAULT, episode_return=None, env_mask=[0] * 5)
NOTHING: Any = None


def test_groups_that_teach_nothing_or_have_a_fault_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = rollout(1.0), rollout(0.0)
    mute = replace(bad, env_mask=[0] * 5)
    asked = scripted(
        monkeypatch,
        [good, bad],
        [good, good],
        [good, BROKEN],
        [bad],
        [BROKEN, bad],
        [BROKEN],
        [good, mute],
        [good, bad],
    )
    server = FakeServer(started_after=0)
    tasks = (Task(index=number, seed=number) for number in range(10**9))
    with connect(server) as client:
        client.register("sql", group_size=2, max_tokens=64)
        counts = play_and_push(NOTHING, tasks, NOTHING, client, groups=6)
    assert vars(counts) == {"pushed": 3, "equal": 1, "faulted": 1, "unusable": 1, "replayed": 2}
    assert asked == [2, 2, 2, 1, 2, 1, 2, 2]
    pushed = [body["scores"] for path, body in server.calls if path == "/scored_data"]
    assert pushed == [[1.0, 0.0]] * 3


def test_a_service_that_is_down_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch, *[[BROKEN, BROKEN]] * 20)
    with connect(FakeServer(started_after=0)) as client:
        client.register("sql", group_size=2, max_tokens=64)
        with pytest.raises(TooManyFaults, match="worker_lost"):
            play_and_push(NOTHING, [Task(seed=0)] * 20, NOTHING, client)
    assert len(asked) == 10  # five groups, each played twice


def test_a_service_that_comes_back_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = [[BROKEN, BROKEN]] * 8  # four groups, each played twice
    scripted(monkeypatch, *lost, [rollout(1.0), rollout(0.0)], *lost)
    with connect(FakeServer(started_after=0)) as client:
        client.register("sql", group_size=2, max_tokens=64)
        counts = play_and_push(NOTHING, [Task(seed=0)] * 9, NOTHING, client)
    assert (counts.pushed, counts.faulted, counts.replayed) == (1, 8, 16)


def test_a_group_shares_its_seed() -> None:
    with pytest.raises(ValueError, match="seed"):
        play_group(NOTHING, Task(index=0), NOTHING, 2)


def test_a_played_group_is_what_the_trainer_wants(service_url: str) -> None:
    with RemoteEnvironment(service_url, "sql") as environment, evaluation_mode(MODEL):
        generator = TransformersGenerator(MODEL, TOKENIZER, seed=0)
        rollouts, replayed = play_group(environment, Task(split="train", index=0, seed=1), generator, 4, LIMITS)
    assert replayed == 0
    group = scored_group(rollouts, outcome_weight=1.0)
    group.check(4, 4096)
    for row, played in enumerate(rollouts):
        assert sum(kept != -100 for kept in group.masks[row]) == played.sampled_tokens
        assert sum(played.turn_rewards) == pytest.approx(played.episode_return)
    assert json.loads(json.dumps(group.messages)) == group.messages
    assert isinstance(group, ScoredGroup)
