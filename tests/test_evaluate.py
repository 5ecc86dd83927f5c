"""Evaluation: figures, records, an endpoint, and the command."""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rolloutgym.cli.commands import app
from rolloutgym.cli.terminal import console
from rolloutgym.models import Message, StopReason, ToolSpec
from rolloutgym.training.evaluation import EpisodeRecord, EvaluationError, Run, open_records, read_records
from rolloutgym.training.generators.base import Conversation, Turn
from rolloutgym.training.generators.openai import EndpointError, OpenAIGenerator
from rolloutgym.training.sampling import SamplingParams
from rolloutgym.training.statistics import paired_difference, pass_at_k, solve_interval, wilson
from rolloutgym.training.summaries import compare, summarise, summarise_groups
from rolloutgym.training.tiny import byte_tokenizer, tiny_llama

# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "solved", "k", "expected"),
    [
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),
        (4, 2, 2, 5 / 6),
        (4, 1, 4, 1.0),
        (10, 3, 5, 11 / 12),
    ],
)
def test_pass_at_k(attempts: int, solved: int, k: int, expected: float) -> None:
    assert pass_at_k(attempts, solved, k) == pytest.approx(expected)


@pytest.mark.parametrize(("attempts", "solved", "k"), [(2, 1, 3), (2, 3, 1), (2, 1, 0), (2, -1, 1)])
def test_pass_at_k_is_refused_where_it_means_nothing(attempts: int, solved: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(attempts, solved, k)


def test_wilson_against_published_values() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0.5, 0) == (0.0, 1.0)


def test_more_samples_of_the_same_tasks_are_not_more_tasks() -> None:
    once = solve_interval([[True], [False]] * 10)
    copied = solve_interval([[True] * 8, [False] * 8] * 10)
    assert copied == pytest.approx(once)


def test_attempts_that_vary_within_a_task_narrow_the_interval() -> None:
    low, high = solve_interval([[True, False]] * 20)
    alike_low, alike_high = solve_interval([[True, True], [False, False]] * 10)
    assert high - low < alike_high - alike_low


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), max_size=12))
def test_the_interval_holds_the_rate(tries: list[list[bool]]) -> None:
    low, high = solve_interval(tries)
    rate = sum(sum(one) / len(one) for one in tries) / len(tries) if tries else 0.0
    assert 0 <= low <= rate + 1e-12
    assert rate - 1e-12 <= high <= 1


def test_a_paired_difference_is_narrow_where_runs_agree() -> None:
    gap = paired_difference([0, 0, 1, 1], [0, 1, 1, 1])
    assert (gap.tasks, gap.mean, gap.better, gap.worse) == (4, 0.25, 1, 0)
    assert gap.interval == pytest.approx((0.25 - 0.49, 0.25 + 0.49), abs=1e-3)
    assert math.isnan(paired_difference([], []).mean)


# ---- records and summaries ------------------------------------------------------------------------------------------


def record(
    task: str, sample: int = 0, *, success: bool | None = True, fault: str | None = None, **fields: Any
) -> EpisodeRecord:
    values: dict[str, Any] = {
        "task_id": task,
        "sample": sample,
        "seed": sample,
        "tags": {"hardness": "easy"},
        "episode_return": None if fault else float(bool(success)),
        "success": None if fault else success,
        "components": {} if fault else {"answer": float(bool(success))},
        "stop_reason": None if fault else StopReason.ANSWERED,
        "turns": 2,
        "invalid_actions": 1,
        "sampled_tokens": 10,
        "fault": fault,
        "transcript": [],
    }
    return EpisodeRecord(**(values | fields))


RUN = Run(
    environment="sql",
    split="test",
    model="m",
    samples=2,
    limit=None,
    seed=0,
    options={},
    sampling={},
    limits={},
    versions={},
)


def test_a_summary_leaves_faults_out_and_counts_them() -> None:
    records = [
        record("a", 0),
        record("a", 1, success=False, tags={"hardness": "hard"}, stop_reason=StopReason.MAX_TOKENS),
        record("b", 0, success=False, sampled_tokens=40),
        record("b", 1, success=False, components={"answer": 0.0, "steps": -0.5}),
        record("c", 0, fault="sandbox_unavailable: gone"),
    ]
    summary = summarise(records)
    assert (summary.tasks, summary.episodes, summary.faults) == (2, 4, 1)
    assert summary.solve_rate == summary.mean_return == 0.25
    assert summary.pass_at_k == {1: 0.25, 2: 0.5}
    assert summary.components == {"answer": 0.25, "steps": -0.125}
    assert summary.invalid_action_rate == 0.5
    assert summary.stop_reasons == {"answered": 0.75, "max_tokens": 0.25}
    assert (summary.turns, summary.sampled_tokens) == (2.0, 17.5)
    groups = summarise_groups(records, "hardness")
    assert {name: group.episodes for name, group in groups.items()} == {"easy": 3, "hard": 1}
    assert summarise([]).pass_at_k == {}


def test_runs_are_compared_task_by_task() -> None:
    gap = compare([record("a"), record("b", success=False), record("c")], [record("a"), record("b"), record("d")])
    assert (gap.tasks, gap.mean, gap.better, gap.worse) == (2, 0.5, 1, 0)


def test_a_record_file_resumes_and_forgets_faults_and_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.jsonl"
    assert open_records(path, RUN) == {}
    lines = [record("a"), record("b", fault="internal: no"), record("c")]
    with path.open("a") as file:
        file.write("".join(one.model_dump_json() + "\n" for one in lines) + '{"kind": "epis')
    assert set(open_records(path, RUN)) == {("a", 0), ("c", 0)}
    with path.open("a") as file:
        file.write(record("b").model_dump_json() + "\n")
    run, records = read_records(path)
    assert run == RUN
    assert {one.task_id: one.fault for one in records} == {"a": None, "b": None, "c": None}


def test_a_record_file_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    open_records(path, RUN)
    with pytest.raises(EvaluationError, match="model, samples differ"):
        open_records(path, RUN.model_copy(update={"model": "other", "samples": 3}))
    path.write_text("no\n")
    with pytest.raises(EvaluationError, match="no record"):
        open_records(path, RUN)


# ---- the endpoint ---------------------------------------------------------------------------------------------------


def endpoint(answer: Callable[[Mapping[str, Any]], httpx2.Response], **settings: Any) -> OpenAIGenerator:
    """A generator whose endpoint answers each chat completion with `answer`."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/models"):
            return httpx2.Response(200, json={"data": [{"id": "only"}]})
        return answer(json.loads(request.content))

    return OpenAIGenerator("http://model/v1", transport=httpx2.MockTransport(handle), **settings)


def completion(content: str | None, finish: str = "stop", **message: Any) -> httpx2.Response:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return httpx2.Response(
        200, json={"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}, "object": "x"}
    )


def say(generator: OpenAIGenerator, budget: int = 50, tools: tuple[ToolSpec, ...] = ()) -> Turn:
    batch = generator.begin([Conversation((Message(role="user", content="ask"),), tools)])
    return batch.generate({0: budget})[0]


def test_an_endpoint_is_asked_for_the_whole_conversation() -> None:
    asked: list[Mapping[str, Any]] = []

    def answer(body: Mapping[str, Any]) -> httpx2.Response:
        asked.append(body)
        return completion(f"turn {len(asked)}")

    sampling = SamplingParams(temperature=0.5, top_p=0.9, top_k=5, min_p=0.1)
    with endpoint(answer, sampling=sampling, extra_body={"seed": 3}) as generator:
        batch = generator.begin([Conversation((Message(role="user", content="ask"),))])
        first = batch.generate({0: 50})[0]
        assert batch.reply(0, [Message(role="user", content="seen")], room=0)
        batch.generate({0: 20})
        assert (first.action, first.complete, first.tokens) == ("turn 1", True, 3)
        assert (batch.used(0).completion, batch.trace(0)) == (6, None)
    assert asked[0] == {
        "model": "only", "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3,
        "messages": [{"role": "user", "content": "ask"}],
    }  # fmt: skip
    assert [message["content"] for message in asked[1]["messages"]] == ["ask", "turn 1", "seen"]


def test_tool_calls_become_a_structured_action() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    tool = ToolSpec.model_validate({"function": {"name": "look"}})
    with endpoint(lambda body: completion(None, "tool_calls", tool_calls=[call])) as generator:
        turn = say(generator, tools=(tool,))
    assert turn.action == {"tool_calls": [call]}
    assert turn.message.tool_calls is not None
    assert turn.complete


@pytest.mark.parametrize(
    ("content", "finish", "expected"),
    [
        ("think <code>1+1", "stop", "think <code>1+1</code>"),
        ("<code>1</code> then <answer>2", "stop", "<code>1</code> then <answer>2</answer>"),
        ("<code>1</code> done", "stop", "<code>1</code> done"),
        ("<code>1+", "length", "<code>1+"),
    ],
)
def test_the_stop_tag_that_endpoints_leave_out_is_put_back(content: str, finish: str, expected: str) -> None:
    with endpoint(lambda body: completion(content, finish), stop_tags=["</code>", "</answer>"]) as generator:
        turn = say(generator)
    assert turn.action == expected
    assert turn.complete == (finish == "stop")


def test_an_endpoint_may_want_the_newer_name_of_the_limit() -> None:
    asked: list[set[str]] = []

    def answer(body: Mapping[str, Any]) -> httpx2.Response:
        asked.append({name for name in body if name.startswith("max_")})
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return httpx2.Response(400, json={"error": {"message": message}})
        return completion("hi")

    generator = endpoint(answer)
    assert [say(generator).action for _ in range(2)] == ["hi", "hi"]
    assert asked == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


def test_a_full_context_ends_the_turn() -> None:
    full = httpx2.Response(400, json={"error": {"message": "maximum context length is 10", "code": None}})
    with endpoint(lambda body: full) as generator:
        turn = say(generator)
    assert (turn.complete, turn.context_full) == (False, True)


def test_what_may_pass_is_tried_again() -> None:
    answers = [
        httpx2.Response(429, headers={"retry-after": "0.01"}),
        httpx2.Response(503, headers={"retry-after": "0.01"}),
        completion("at last"),
    ]
    with endpoint(lambda body: answers.pop(0)) as generator:
        assert say(generator).action == "at last"


@pytest.mark.parametrize(
    ("response", "fatal", "says"),
    [
        (httpx2.Response(401, text="no key"), True, "401: no key"),
        (httpx2.Response(503), False, "503"),
        (httpx2.Response(200, text="<html>"), False, "no chat completion"),
        (httpx2.Response(200, json={"choices": []}), False, "without a choice"),
    ],
)
def test_what_does_not_pass_is_an_error(response: httpx2.Response, fatal: bool, says: str) -> None:
    with endpoint(lambda body: response, retries=0) as generator, pytest.raises(EndpointError, match=says) as raised:
        say(generator)
    assert raised.value.fatal is fatal


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model_url() -> Iterator[str]:
    """A real endpoint over HTTP whose model answers every question with 1, after one look."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"data": [{"id": "scripted"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            looked = any(message["role"] == "assistant" for message in body["messages"])
            content = "ANSWER: 1" if looked else "QUERY: SELECT 1"
            choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
            self._send({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})

        def _send(self, answer: Any) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def run_command(*arguments: str) -> str:
    with patch.object(console, "_width", 200):  # wide enough for every column's name
        result = CliRunner().invoke(app, ["eval", *arguments])
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_the_command_evaluates_an_endpoint_resumes_and_compares(
    tmp_path: Path, service_url: str, model_url: str
) -> None:
    out = tmp_path / "records.jsonl"
    arguments = ["--model", model_url, "--url", service_url, "--limit", "4", "--samples", "2", "--out", str(out)]
    printed = run_command(*arguments)
    for measure in ("solve rate", "pass@2", "mean return", "invalid actions", "tokens per episode", "ended: answered"):
        assert measure in printed
    run, records = read_records(out)
    assert (run.model, run.environment, run.samples) == ("scripted", "sql", 2)
    assert len(records) == 8
    assert {(one.turns, one.sampled_tokens, one.stop_reason) for one in records} == {(2, 6, "answered")}
    assert [message.role for message in records[0].transcript][:3] == ["system", "user", "assistant"]
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:4]))  # three episodes are left
    again = run_command(*arguments, "--baseline", str(out))
    assert len(read_records(out)[1]) == 8
    assert whole.splitlines()[:4] == out.read_text().splitlines()[:4]
    assert "this − that" in again


def test_the_command_says_what_is_wrong(tmp_path: Path, service_url: str, model_url: str) -> None:
    out = tmp_path / "records.jsonl"
    run_command("--model", model_url, "--url", service_url, "--limit", "1", "--out", str(out))
    runner = CliRunner()
    other = runner.invoke(app, ["eval", "--model", model_url, "--url", service_url, "--limit", "2", "--out", str(out)])
    assert other.exit_code == 1
    assert "another run" in other.output
    neither = runner.invoke(app, ["eval", "--model", str(tmp_path / "nothing"), "--url", service_url])
    assert neither.exit_code == 2
    assert "neither a folder nor a URL" in neither.output
    nothing = runner.invoke(app, ["eval", "--model", model_url, "--url", service_url, "--top-p", "0"])
    assert nothing.exit_code == 2
    assert "0 would keep no token" in nothing.output


def test_the_command_evaluates_a_local_model(tmp_path: Path, service_url: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    tiny_llama(tokenizer, hidden=16, layers=1, context=4096).save_pretrained(tmp_path / "model")
    out = tmp_path / "records.jsonl"
    run_command(
        "--model",
        str(tmp_path / "model"),
        "--url",
        service_url,
        "--limit",
        "2",
        "--turn-tokens",
        "3",
        "--out",
        str(out),
    )
    records = read_records(out)[1]
    assert [one.stop_reason for one in records] == ["max_tokens"] * 2
    assert [one.sampled_tokens for one in records] == [3, 3]
