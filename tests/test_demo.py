"""The demo: everything from the service's start to its stop, and a failure that does not look like success."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import httpx2
import psutil
import pytest
import typer

from rolloutgym.cli import demo as demo_module
from rolloutgym.cli import playing, service
from rolloutgym.cli.policies import toolcall


def _demo(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROLLOUTGYM_")}
    command = [sys.executable, "-m", "rolloutgym.cli", "demo", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment | {"COLUMNS": "200"} | variables, capture_output=True, text=True, timeout=240
    )


def test_one_episode_of_each_environment_is_solved_and_nothing_is_left(tmp_path: Path) -> None:
    done = _demo(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^│ (\w+) +│ (\S+) +│ +(\d+) +│ +([\d.]+) +│ (\w+) +│ (\w+)", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["sql", "toolcall", "code"]
    assert {row[4] for row in rows} == {"yes"}
    assert all(int(turns) > 0 and float(reward) > 0.9 for _, _, turns, reward, _, _ in rows)
    (url,) = re.findall(r"service at (http://127\.0\.0\.1:\d+)", done.stdout)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")
    assert not [process for process in psutil.process_iter() if _works_in(process, tmp_path)]
    assert list(tmp_path.iterdir()) == []


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return bool(process.cwd() == str(folder))
    except (psutil.Error, OSError):  # another's, or one that is just ending
        return False


def test_an_unsolved_episode_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], service_url: str
) -> None:
    monkeypatch.setenv("ROLLOUTGYM_ENVIRONMENTS", "toolcall")
    monkeypatch.setattr(service, "own_service", lambda: nullcontext(service_url))
    monkeypatch.setattr(playing, "oracle", lambda environment: toolcall.do_nothing())
    with pytest.raises(typer.Exit) as ended:
        demo_module.demo()
    assert ended.value.exit_code == 1
    assert re.search(r"│ toolcall .*│ no ", capfd.readouterr().out)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ROLLOUTGYM_TOOLCALL_DATA": "/no/such/file"}, "/no/such/file"),
        ({"ROLLOUTGYM_CAPACITY": "0"}, "ROLLOUTGYM_CAPACITY"),
        ({"ROLLOUTGYM_ENVIRONMENTS": "code", "ROLLOUTGYM_SANDBOX_PYTHON": "/no/such/python"}, "/no/such/python"),
    ],
)
def test_a_service_that_cannot_start_fails_the_demo(variables: dict[str, str], message: str, tmp_path: Path) -> None:
    done = _demo(cwd=tmp_path, **{"ROLLOUTGYM_ENVIRONMENTS": "toolcall", **variables})
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
