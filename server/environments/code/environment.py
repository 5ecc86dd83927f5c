r"""The code environment: a problem, a Python interpreter to think with, and a final answer that is checked.

A turn is raw text (its last `<code>` block runs; without one it is the final answer), `{code}` or `{answer}`. The
interpreter keeps its variables for the length of the episode. Model-written text never counts as output, and output
never counts as an answer.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, JsonValue

from rolloutgym.models import CodeAction, CodeInfo, CodeObservation, Message, StopReason, ToolSpec
from rolloutgym.server.environments.base import Environment, Episode, Options, Outcome
from rolloutgym.server.environments.code import prompts, rewards
from rolloutgym.server.environments.code.answers import extract_boxed
from rolloutgym.server.environments.code.checker import AnswerChecker
from rolloutgym.server.environments.code.judge import Judge
from rolloutgym.server.environments.code.loaders import load_tasks, shipped_tasks
from rolloutgym.server.environments.code.parsing import FinalAnswer, Reply, RunCode, parse_reply, program_of_answer
from rolloutgym.server.environments.code.reasoning import PREFIX, load_reasoning_tasks
from rolloutgym.server.environments.code.tasks import CodeTask
from rolloutgym.server.environments.seeding import seeded_random
from rolloutgym.server.environments.tasks import TaskSet
from rolloutgym.server.errors import InvalidRequest
from rolloutgym.server.sandbox.client import RunResult, Sandbox, SandboxSession, SessionLost
from rolloutgym.server.sandbox.policy import Limits, SandboxConfig
from rolloutgym.server.settings import Settings


class CodeOptions(Options):
    preset: rewards.Preset = "zero_one"
    """Which rewards: `binary` (+1/-1), `zero_one`, `shaped`, or `tests` (share of tests passed)."""
    max_turns: Annotated[int, Field(ge=1, le=100)] = 10
    """Actions until the episode is truncated; the final answer counts as one."""
    stateful: bool = True
    """Whether variables are kept from one block to the next."""
    fenced: bool = False
    """Whether a fenced Python block runs where a reply has no `<code>` block."""
    max_output_chars: Annotated[int, Field(ge=100, le=60_000)] = 8_000
    """Output shown to the model, characters; longer output loses its middle."""
    cpu_s: Annotated[float, Field(gt=0)] | None = None
    """Processor time of one run, seconds, up to the service's limit; null is that limit."""
    memory_mb: Annotated[int, Field(ge=64)] | None = None
    """Memory of the interpreter beyond its libraries, MiB, up to the service's limit; null is that limit."""


class CodeEpisode(Episode[CodeAction]):
    def __init__(self, environment: "CodeEnvironment", task: CodeTask, seed: int, options: CodeOptions) -> None:
        self._environment = environment
        self._task = task
        self._options = options
        self._interpreter_seed = seeded_random(seed, task.id, "interpreter").randrange(2**31)
        self._limits = environment.limits(options)
        self._session: SandboxSession | None = None
        self._kept_code: list[str] = []
        self._turn = 0
        self._ran = False

    async def reset(self) -> CodeObservation:
        system = prompts.system_prompt(
            program=self._task.is_program, turns=self._options.max_turns, stateful=self._options.stateful
        )
        return CodeObservation(
            messages=(Message(role="system", content=system), Message(role="user", content=self._task.prompt)),
            tools=tuple(prompts.CODE_TOOLS),
            info=CodeInfo(budget_remaining=self._options.max_turns),
        )

    async def step(self, action: CodeAction) -> Outcome:
        reply = self._reply(action)
        outcome = await (self._run(reply.code) if isinstance(reply, RunCode) else self._answer(reply.answer))
        if outcome.done:
            await self.close()
        return outcome

    async def truncate(self, reason: StopReason) -> Outcome:
        await self.close()
        components = rewards.no_answer_components(self._options.preset, ran_before=self._ran)
        return self._outcome(components, truncated=True, stop_reason=reason, success=False)

    def state(self) -> Mapping[str, JsonValue]:
        return {"turns_remaining": self._options.max_turns - self._turn}

    def tools(self) -> Sequence[ToolSpec]:
        return prompts.CODE_TOOLS

    def action_of_call(self, name: str, arguments: Mapping[str, JsonValue]) -> CodeAction:
        field = {"python": "code", "answer": "answer"}.get(name)
        if field is None:
            raise InvalidRequest(f"there is no tool {name!r}; there are python and answer")
        if arguments.keys() != {field} or not isinstance(arguments[field], str):
            raise InvalidRequest(f"{name} takes one text: {field}")
        return CodeAction.model_validate(arguments)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def _reply(self, action: CodeAction) -> Reply:
        program = self._task.is_program
        if action.text is not None:
            return parse_reply(action.text, program=program, fenced=self._options.fenced)
        if action.code is not None and action.answer is not None:
            raise InvalidRequest("give either code or answer")
        if action.code is not None:
            return RunCode(action.code)
        if action.answer is None:
            raise InvalidRequest("give code or answer")
        answer = program_of_answer(action.answer) if program else extract_boxed(action.answer) or action.answer
        return FinalAnswer(answer)

    async def _run(self, code: str) -> Outcome:
        result = await self._execute(code)
        self._turn += 1
        ran = result.status == "ok"
        components = rewards.run_components(self._options.preset, ran=ran, ran_before=self._ran)
        self._ran = self._ran or ran
        shown = prompts.show_result(result, max_chars=self._options.max_output_chars, stateful=self._options.stateful)
        exhausted = self._turn >= self._options.max_turns
        if exhausted:
            ending = rewards.no_answer_components(self._options.preset, ran_before=self._ran)
            components = {**components, **ending}
        return self._outcome(
            components,
            messages=(prompts.interpreter_message(shown, turns_left=self._options.max_turns - self._turn),),
            truncated=exhausted,
            stop_reason=StopReason.BUDGET_EXHAUSTED if exhausted else None,
            success=False if exhausted else None,
            output=shown,
            error=None if ran else result.status,
            unsafe=result.unsafe,
        )

    async def _execute(self, code: str) -> RunResult:
        if not self._options.stateful:
            return await self._environment.sandbox.run(code, limits=self._limits, seed=self._interpreter_seed)
        result = None
        if self._session is not None:
            with suppress(SessionLost):  # put aside while idle
                result = await self._session.step(code)
        if result is None:
            result = await self._execute_anew(code)
        if result.state_kept:
            self._kept_code.append(code)
        else:
            self._kept_code.clear()
            await self.close()
        return result

    async def _execute_anew(self, code: str) -> RunResult:
        """In a new interpreter, after what the variables came from. Earlier code that ends the interpreter this time
        (it may go by the clock) is the model's doing and the step's result: no fault, and no reward to be spared."""
        self._session = await self._environment.sandbox.open_session(seed=self._interpreter_seed, limits=self._limits)
        for earlier in self._kept_code:
            result = await self._session.step(earlier)
            if not result.state_kept:
                return result
        return await self._session.step(code)

    async def _answer(self, answer: str | None) -> Outcome:
        await self.close()  # what the model's code holds must not stand in the way of grading
        share = 0.0 if answer is None else await self._environment.grade(self._task, answer)
        self._turn += 1
        correct = share == 1.0
        components = rewards.answer_components(
            self._options.preset, correct=correct, well_formed=answer is not None, share_passed=share
        )
        return self._outcome(
            components, terminated=True, stop_reason=StopReason.ANSWERED, success=correct, invalid_action=answer is None
        )

    def _outcome(
        self,
        components: rewards.Components,
        *,
        messages: tuple[Message, ...] = (),
        output: str | None = None,
        error: str | None = None,
        terminated: bool = False,
        truncated: bool = False,
        stop_reason: StopReason | None = None,
        success: bool | None = None,
        invalid_action: bool = False,
        unsafe: bool = False,
    ) -> Outcome:
        info = CodeInfo(
            terminated=terminated,
            truncated=truncated,
            stop_reason=stop_reason,
            success=success,
            reward_components=components,
            turn=self._turn,
            budget_remaining=self._options.max_turns - self._turn,
            invalid_action=invalid_action,
            unsafe_sandbox=unsafe,
        )
        observation = CodeObservation(messages=messages, info=info, output=output, error=error)
        return Outcome(observation, sum(components.values()))


class CodeEnvironment(Environment[CodeTask, CodeOptions, CodeAction, CodeObservation]):
    name = "code"
    version = "1"
    prompt_version = prompts.PROMPT_VERSION
    description = "Problems solved with a Python interpreter: code runs in a sandbox, the final answer is checked"
    action_type = CodeAction
    observation_type = CodeObservation
    options_type = CodeOptions

    def __init__(self, tasks: TaskSet[CodeTask], sandbox: Sandbox) -> None:
        self.tasks = tasks
        self.sandbox = sandbox
        self._checker = AnswerChecker()
        self._judge = Judge(sandbox, sandbox.config.limits)

    async def start(self) -> None:
        await self.sandbox.start()

    async def stop(self) -> None:
        await self._checker.stop()
        await self.sandbox.stop()

    def episode(self, task: CodeTask, seed: int, options: CodeOptions) -> CodeEpisode:
        return CodeEpisode(self, task, seed, options)

    def limits(self, options: CodeOptions) -> Limits:
        """The service's limits, lowered as the options ask. Wall clock depends on the machine's load, so it stays."""
        limits = self.sandbox.config.limits
        cpu_s = limits.cpu_s if options.cpu_s is None else min(options.cpu_s, limits.cpu_s)
        memory = limits.memory if options.memory_mb is None else min(options.memory_mb * 2**20, limits.memory)
        return replace(limits, cpu_s=cpu_s, memory=memory)

    async def grade(self, task: CodeTask, answer: str) -> float:
        """How right an answer is, in [0, 1]; 1 is right, less is wrong (the share of tests passed for a program)."""
        if task.tests is not None:
            return (await self._judge.judge(answer, task.tests)).share
        if task.scorer is not None:
            return await self._checker.score(task.scorer, answer)
        return float(await self._checker.equal(task.answer, answer))

    def tools(self) -> Sequence[ToolSpec]:
        return prompts.CODE_TOOLS

    def reward_range(self) -> tuple[float, float]:
        return rewards.REWARD_RANGES[CodeOptions().preset]

    def details(self) -> Mapping[str, Any]:
        ranges = {preset: list(limits) for preset, limits in rewards.REWARD_RANGES.items()}
        return {"sandbox": self.sandbox.report.as_json(), "presets": ranges}

    def health(self) -> Mapping[str, Any]:
        return {"sandbox": self.sandbox.report.as_json(), "answers": self._checker.counts()}


def from_settings(settings: Settings) -> CodeEnvironment:
    """`BadTaskFile` or `OSError` for tasks that cannot be read."""
    return CodeEnvironment(_tasks(settings.code_data), Sandbox(SandboxConfig.from_settings(settings)))


def _tasks(data: str | None) -> TaskSet[CodeTask]:
    if data is None:
        return shipped_tasks()
    if data.startswith(PREFIX):
        return load_reasoning_tasks(data.removeprefix(PREFIX).split(","))
    return load_tasks(data)
