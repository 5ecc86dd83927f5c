"""The command line: what it prints, how it ends, and that mistakes end it in one line."""

import os
import re
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from rolloutgym.cli import main as console_script
from rolloutgym.cli.terminal import components, printable


class Ended(NamedTuple):
    status: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run `rolloutgym` in this process."""
    for name in os.environ:
        if name.startswith("ROLLOUTGYM_"):
            monkeypatch.delenv(name)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["rolloutgym", *arguments])
        with pytest.raises(SystemExit) as ended:
            console_script()
        out, err = capfd.readouterr()
        code = ended.value.code
        return Ended(code, out, err) if isinstance(code, int) else Ended(1, out, f"{err}{code}\n")

    return run


def in_a_process(*arguments: str, text: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTGYM_")}
    return subprocess.run(
        [sys.executable, "-m", "rolloutgym.cli", *arguments],
        env=environment | variables,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "words", ["", "serve", "demo", "play", "tasks", "tasks list", "tasks show", "tasks generate", "eval", "audit"]
)
def test_every_command_explains_itself(command: Command, words: str) -> None:
    ended = command(*words.split(), "--help")
    assert ended.status == 0
    assert f"Usage: rolloutgym {words}".strip() in ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("serve --prot 80", "No such option: --prot"),
        ("sreve", "No such command 'sreve'"),
        ("play", "Missing argument 'environment'"),
        ("demo --seed -1", "Invalid value for '--seed'"),
        ("demo --episodes many", "Invalid value for '--episodes'"),
        ("tasks generate sql", "--check"),
        ("tasks generate nothing --check", "'nothing' is not one of sql, toolcall, code"),
        ("serve --port 99999", "--port (ROLLOUTGYM_PORT): Input should be less than or equal to 65535"),
        ("serve --port eighty", "--port (ROLLOUTGYM_PORT): Input should be a valid integer"),
        ("serve --environments sql,chess", "--environments (ROLLOUTGYM_ENVIRONMENTS)"),
        ("serve --capacity 0 --grace-s nan", "--grace-s (ROLLOUTGYM_GRACE_S)"),
        ("serve --environments toolcall --toolcall-data /no/such/file", "/no/such/file"),
        ("tasks list chess", "--environments (ROLLOUTGYM_ENVIRONMENTS)"),
        ("tasks list toolcall --split holdout", "no split 'holdout'"),
        ("tasks show toolcall no-such-task", "no task 'no-such-task'"),
        ("play sql --url localhost:8000", "http://"),
        ("play sql --url http://127.0.0.1:9", "connection_failed"),
    ],
)
def test_a_mistake_ends_in_one_line(command: Command, words: str, message: str) -> None:
    ended = command(*words.split())
    assert ended.status != 0
    assert message in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert ended.err.startswith("rolloutgym: ")
    assert ended.out == ""


def test_an_unknown_variable_is_a_mistake(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTGYM_CAPACTY", "3")
    ended = command("serve", "--port", "0")
    assert (ended.status, ended.err) == (1, "rolloutgym: unknown variable ROLLOUTGYM_CAPACTY\n")


def test_without_a_command_there_is_help(command: Command) -> None:
    ended = command()
    assert ended.status == 2
    assert "Usage: rolloutgym" in ended.out
    assert ended.err == ""


# ---- serve ----------------------------------------------------------------------------------------------------------


def test_serve_says_where_it_listens_and_stops_when_asked() -> None:
    environment = os.environ | {"ROLLOUTGYM_PORT": "1", "ROLLOUTGYM_ENVIRONMENTS": "toolcall,code"}
    flags = ["--port", "0", "--environments", "toolcall", "--api-key", "sesame"]
    with subprocess.Popen(
        [sys.executable, "-m", "rolloutgym.cli", "serve", *flags],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert re.fullmatch(r"listening on http://127\.0\.0\.1:\d+\n", line)
            url = line.removeprefix("listening on ").strip()
            # Flags win over variables, and the service is ready once it says so.
            assert httpx2.get(f"{url}/ready", timeout=60).status_code == 200
            assert httpx2.get(f"{url}/list_environments", timeout=60).status_code == 401
            answer = httpx2.get(f"{url}/list_environments", headers={"authorization": "Bearer sesame"}, timeout=60)
            assert answer.json() == ["toolcall"]
        finally:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert "sesame" not in err


def test_a_port_that_is_taken_is_a_mistake(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = command("serve", "--environments", "toolcall", "--port", str(taken.getsockname()[1]))
    assert ended.status == 1
    assert "in use" in ended.err
    assert len(ended.err.strip().splitlines()) == 1


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_and_shown(command: Command) -> None:
    listed = command("tasks", "list", "code", "--split", "test")
    assert listed.status == 0
    (task_id, *_) = re.findall(r"^│ (\S+) +│ test ", listed.out, re.MULTILINE)
    shown = command("tasks", "show", "code", task_id)
    assert shown.status == 0
    assert f'"id": "{task_id}"' in shown.out
    assert '"answer":' not in re.sub(r'"tags": \{.*?\}', "", shown.out, flags=re.DOTALL)


def test_the_shipped_tasks_are_made_again_byte_for_byte(command: Command) -> None:
    """Each environment's own tests check its generator; this one is the quickest."""
    ended = command("tasks", "generate", "code", "--check")
    assert (ended.status, ended.out) == (0, "the same, byte for byte\n")


def test_a_difference_is_found(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(folder: Path) -> None:
        (folder / "problems.jsonl").write_text("{}")
        (folder / "more").mkdir()
        (folder / "more" / "file").write_text("")

    broken = types.ModuleType("broken_generator")
    broken.generate = generate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rolloutgym.server.environments.code.generator", broken)
    ended = command("tasks", "generate", "code", "--check")
    assert ended.status == 1
    assert ended.out.splitlines() == [
        "differs from what is shipped: more/file",
        "differs from what is shipped: problems.jsonl",
    ]


def test_tasks_are_written_where_they_are_wanted(command: Command, tmp_path: Path) -> None:
    ended = command("tasks", "generate", "code", "--out", str(tmp_path / "new" / "folder"))
    assert ended.status == 0
    assert any((tmp_path / "new" / "folder").iterdir())


# ---- play -----------------------------------------------------------------------------------------------------------


def test_a_person_plays_in_the_terminal(service_url: str) -> None:
    typed = "QUERY SELECT 1,\n2 AS two\n\n\nANSWER nobody knows\n\n"
    done = in_a_process("play", "sql", "--url", service_url, "--split", "test", "--index", "3", text=typed)
    assert done.returncode == 0, done.stderr
    assert "Question: " in done.stdout
    assert re.search(r"1 +\| +2|1 \| 2", done.stdout)
    assert "answered, success False" in done.stdout
    assert re.search(r"return -?[\d.]+", done.stdout)


def test_a_person_may_leave(service_url: str) -> None:
    done = in_a_process("play", "code", "--url", service_url, text="<code>1 + 1</code>\n\nhalf an answ")
    assert done.returncode == 0, done.stderr
    assert "left before the end" in done.stdout


def test_a_player_without_a_service_gets_one() -> None:
    done = in_a_process("play", "toolcall", text="", ROLLOUTGYM_ENVIRONMENTS="toolcall")
    assert done.returncode == 0, done.stderr
    assert "starting a service" in done.stdout
    assert "left before the end" in done.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("[bold]not markup[/]", "[bold]not markup[/]"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("\x9b0m\x7f\r", "\\x9b0m\\x7f\\x0d"),
        ("lone \ud800", "lone \\ud800"),
    ],
)
def test_text_of_a_model_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert printable(text).plain == shown


@pytest.mark.parametrize(
    ("parts", "line"), [({}, "-"), ({"a": 0.0}, "-"), ({"a": 1.0, "b": -0.25, "c": 0.0}, "a +1, b -0.25")]
)
def test_reward_components_in_one_line(parts: Mapping[str, float], line: str) -> None:
    assert components(parts) == line
