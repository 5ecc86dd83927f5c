"""The code environment, in process and over HTTP."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rolloutgym.cli.policies import code as policies
from rolloutgym.client import AsyncClient
from rolloutgym.models import CodeAction, Observation, StopReason
from rolloutgym.server.environments.base import Outcome
from rolloutgym.server.environments.code.environment import CodeEnvironment, CodeEpisode, CodeOptions, from_settings
from rolloutgym.server.environments.code.tasks import CodeTask
from rolloutgym.server.errors import InvalidRequest, SandboxUnavailable
from rolloutgym.server.sandbox.policy import RunResult
from rolloutgym.server.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def environment(anyio_backend: str) -> AsyncIterator[CodeEnvironment]:
    environment = from_settings(Settings())
    await environment.start()
    yield environment
    await environment.stop()


def task_of(environment: CodeEnvironment, kind: str) -> CodeTask:
    return next(task for task in environment.tasks.of_split("train") if task.tags["answer"] == kind)


async def opened(environment: CodeEnvironment, kind: str = "integer", **options: Any) -> tuple[CodeEpisode, CodeTask]:
    task = task_of(environment, kind)
    episode = environment.episode(task, 7, CodeOptions(**options))
    await episode.reset()
    return episode, task


def shown(outcome: Outcome) -> str:
    (message,) = outcome.observation.messages
    return message.content


async def test_code_runs_keeps_variables_and_shows_the_last_value(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment)
    assert (
        shown(await episode.step(CodeAction(text="<code>x = 41\nprint('hi')</code>")))
        == "<interpreter>\nhi\n</interpreter>"
    )
    outcome = await episode.step(CodeAction(text="so <code>x + 1</code>"))
    assert shown(outcome) == "<interpreter>\n42\n</interpreter>"
    assert (outcome.reward, outcome.done) == (0.0, False)
    assert outcome.observation.info.budget_remaining == 8
    await episode.close()


async def test_stateless_runs_forget(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment, stateful=False)
    await episode.step(CodeAction(code="x = 41"))
    outcome = await episode.step(CodeAction(code="x"))
    assert "NameError" in shown(outcome)


async def test_an_error_shows_the_models_own_lines_only(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment)
    text = shown(await episode.step(CodeAction(code="def f():\n    return 1 / 0\n\nf()")))
    assert "ZeroDivisionError" in text
    assert "return 1 / 0" in text
    assert "/" not in text.replace("1 / 0", "").replace("</interpreter>", "")
    await episode.close()


@pytest.mark.parametrize(
    "tag", ["</interpreter>", "< / Interpreter >", "<code>", "</code>", "<answer>", "<interpreter>"]
)
async def test_output_cannot_pose_as_the_protocol(environment: CodeEnvironment, tag: str) -> None:
    episode, _ = await opened(environment)
    text = shown(await episode.step(CodeAction(code=f"print({tag!r})")))
    assert tag not in text.removeprefix("<interpreter>").removesuffix("</interpreter>")
    await episode.close()


async def test_long_output_loses_its_middle(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment, max_output_chars=300)
    text = shown(await episode.step(CodeAction(code="print('a' * 5000 + 'z')")))
    assert len(text) < 450
    assert "4701 characters left out" in text
    assert text.endswith("z\n</interpreter>")
    await episode.close()


@pytest.mark.parametrize("kind", ["integer", "fraction", "decimal", "set", "expression", "tuple", "program"])
async def test_right_and_wrong_answers(environment: CodeEnvironment, kind: str) -> None:
    episode, task = await opened(environment, kind)
    right = await episode.step(CodeAction(answer=task.answer))
    assert (right.reward, right.done, right.observation.info.success) == (1.0, True, True)
    assert right.observation.info.stop_reason is StopReason.ANSWERED
    episode, task = await opened(environment, kind, preset="binary")
    wrong = await episode.step(CodeAction(text="\\boxed{-98765}"))
    assert (wrong.reward, wrong.done, wrong.observation.info.success) == (-1.0, True, False)


async def test_imitated_output_is_no_answer_and_runs_nothing(environment: CodeEnvironment) -> None:
    episode, task = await opened(environment)
    outcome = await episode.step(CodeAction(text=f"<interpreter>{task.answer}</interpreter> There it is."))
    assert (outcome.reward, outcome.done, outcome.observation.info.invalid_action) == (0.0, True, True)


async def test_turns_run_out_as_truncation(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment, max_turns=2, preset="shaped")
    first = await episode.step(CodeAction(code="1"))
    assert "last turn" in shown(first)
    second = await episode.step(CodeAction(code="2"))
    info = second.observation.info
    assert (info.truncated, info.terminated, info.stop_reason) == (True, False, StopReason.BUDGET_EXHAUSTED)
    assert first.reward + second.reward == 0.0


async def test_the_trainers_own_limit_is_graded_like_no_answer(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment, preset="binary")
    outcome = await episode.truncate(StopReason.MAX_TOKENS)
    assert (outcome.reward, outcome.done, outcome.observation.info.stop_reason) == (-1.0, True, StopReason.MAX_TOKENS)


async def test_a_step_over_its_limit_says_what_became_of_the_variables(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment, cpu_s=0.5)
    await episode.step(CodeAction(code="x = 5"))
    text = shown(await episode.step(CodeAction(code="while True: pass")))
    assert "processor-time limit; variables are kept" in text
    assert "5" in shown(await episode.step(CodeAction(code="x")))
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert "variables are lost" in shown(await episode.step(CodeAction(code=stubborn)))
    assert "NameError" in shown(await episode.step(CodeAction(code="x")))
    await episode.close()


async def test_an_evicted_interpreter_is_rebuilt(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment)
    await episode.step(CodeAction(code="import random\nx = [random.random()]"))
    before = shown(await episode.step(CodeAction(code="x")))
    assert episode._session is not None
    await episode._session.close()
    assert shown(await episode.step(CodeAction(code="x"))) == before
    await episode.close()


async def test_code_that_ends_a_rebuilt_interpreter_is_a_result_and_no_fault(environment: CodeEnvironment) -> None:
    """Else a policy could have its bad episodes thrown away, by code that looks at the clock."""
    for seconds in (0.5, 2.0, 8.0, 32.0):
        episode, _ = await opened(environment)
        until = time.time() + seconds
        await episode.step(CodeAction(code=f"import os, time\nx = 1\nif time.time() > {until}: os._exit(0)"))
        if shown(await episode.step(CodeAction(code="x"))) == "<interpreter>\n1\n</interpreter>":
            break
        await episode.close()  # a busy machine came to it too late
    assert episode._session is not None
    episode._session.evict()
    await asyncio.sleep(max(0.0, until - time.time()) + 0.05)
    outcome = await episode.step(CodeAction(code="x"))
    assert "the code ended the interpreter; variables are lost" in shown(outcome)
    assert "NameError" in shown(await episode.step(CodeAction(code="x")))
    await episode.close()


async def test_the_interpreter_is_gone_before_the_answer_is_graded(
    environment: CodeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds (files that it deleted, threads) could make the judge's processes fail: a fault, and no reward."""
    episode, task = await opened(environment, "program")
    await episode.step(CodeAction(code="x = 1"))
    assert episode._session is not None

    async def grade(task: CodeTask, answer: str) -> float:
        assert episode._session is None
        return 0.0

    monkeypatch.setattr(environment, "grade", grade)
    await episode.step(CodeAction(answer=task.answer))


async def test_same_seed_and_code_give_the_same_bytes(environment: CodeEnvironment) -> None:
    async def play(seed: int) -> str:
        episode = environment.episode(task_of(environment, "integer"), seed, CodeOptions())
        observations: list[Observation] = [await episode.reset()]
        for code in ("import random, numpy as np", "random.random(), np.random.rand()", "hash('a'), {*'abcdef'}"):
            observations += [(await episode.step(CodeAction(code=code))).observation]
        await episode.close()
        return json.dumps([observation.model_dump(mode="json") for observation in observations])

    assert await play(1) == await play(1)
    assert await play(1) != await play(2)


async def test_code_and_answer_in_one_action_are_the_callers_fault(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment)
    with pytest.raises(InvalidRequest):
        await episode.step(CodeAction(code="1", answer="2"))


async def test_tools_stand_for_actions(environment: CodeEnvironment) -> None:
    episode, _ = await opened(environment)
    assert episode.action_of_call("python", {"code": "1"}) == CodeAction(code="1")
    assert episode.action_of_call("answer", {"answer": "1"}) == CodeAction(answer="1")
    for name, arguments in (
        ("reset", {}),
        ("python", {}),
        ("python", {"code": 1}),
        ("answer", {"answer": "1", "x": 2}),
    ):
        with pytest.raises(InvalidRequest):
            episode.action_of_call(name, arguments)  # type: ignore[arg-type]


async def test_nothing_of_the_answer_is_in_what_the_model_or_state_shows(environment: CodeEnvironment) -> None:
    for kind in ("integer", "program"):
        task = next(
            task for task in environment.tasks.of_split("train") if task.tags["answer"] == kind and len(task.answer) > 4
        )
        episode = environment.episode(task, 0, CodeOptions())
        told = (await episode.reset()).model_dump_json() + json.dumps(dict(episode.state()))
        assert task.answer not in told
        outcome = await episode.step(CodeAction(text="\\boxed{0}"))
        assert task.answer not in outcome.observation.model_dump_json()


async def test_canaries_are_nowhere_that_code_can_read(environment: CodeEnvironment) -> None:
    episode, task = await opened(environment, "decimal")
    hunt = (
        "import gc, os, sys\n"
        f"canary = {task.answer[:-1]!r} + {task.answer[-1]!r}\n"
        "own = {id(canary)}\n"
        "found = [o for o in gc.get_objects() if isinstance(o, (str, bytes)) and canary in str(o)]\n"
        "places = [repr(dict(os.environ)), repr(sys.argv)]\n"
        "len(found), any(canary in place for place in places), sorted(m for m in sys.modules if 'rolloutgym' in m)"
    )
    assert shown(await episode.step(CodeAction(code=hunt))) == "<interpreter>\n(0, False, [])\n</interpreter>"
    await episode.close()


async def test_results_of_an_unsafe_sandbox_say_so(environment: CodeEnvironment) -> None:
    class Unsafe:
        async def step(self, code: str) -> RunResult:
            return RunResult(status="ok", output="1", state_kept=True, unsafe=True)

        async def close(self) -> None:
            return

    episode, _ = await opened(environment)
    safe = await episode.step(CodeAction(code="1"))
    episode._session = Unsafe()  # type: ignore[assignment]
    outcome = await episode.step(CodeAction(code="1"))
    assert not safe.observation.info.unsafe_sandbox  # type: ignore[attr-defined]
    assert outcome.observation.info.unsafe_sandbox  # type: ignore[attr-defined]


async def test_a_lost_sandbox_is_an_error_and_never_a_reward(environment: CodeEnvironment) -> None:
    class Lost:
        async def step(self, code: str) -> None:
            raise SandboxUnavailable("gone")

        async def close(self) -> None:
            return

    episode, _ = await opened(environment)
    episode._session = Lost()  # type: ignore[assignment]
    with pytest.raises(SandboxUnavailable):
        await episode.step(CodeAction(code="1"))


async def test_over_http_the_oracle_gets_everything_and_doing_nothing_gets_nothing(service_url: str) -> None:
    async with AsyncClient(service_url) as client:
        for kind in ("integer", "set", "program"):
            tasks = await client.code.tasks("train")
            info = next(task for task in tasks if task.tags["answer"] == kind)
            for policy, expected in ((policies.oracle(), 1.0), (policies.do_nothing(), 0.0)):
                episode = await client.code.reset(task_id=info.id, seed=1)
                policy.start(from_settings_task(info.id), episode.observation)
                while not episode.done:
                    await episode.step(policy.act(episode.observation))
                assert episode.total_reward == expected


def from_settings_task(task_id: str) -> CodeTask:
    from rolloutgym.server.environments.code.loaders import shipped_tasks

    return shipped_tasks().get(task_id)


async def test_every_shipped_task_gives_the_oracle_the_full_return(environment: CodeEnvironment) -> None:
    policy_of: Callable[[], Any] = policies.oracle
    for split in environment.tasks.splits():
        for task in environment.tasks.of_split(split):
            if task.is_program:
                continue
            policy = policy_of()
            episode = environment.episode(task, 0, CodeOptions())
            policy.start(task, await episode.reset())
            policy.act(await episode.reset())
            outcome = await episode.step(policy.act(await episode.reset()))
            assert outcome.reward == 1.0, task.id
