"""The hostile suite: every attack is held, and the service and another live session are intact after each.

The list is in `attacks/cases.py`, what looks at the damage in `attacks/arena.py`.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "attacks"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")


def _load_arena() -> Any:
    spec = importlib.util.spec_from_file_location("arena", HERE / "arena.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


arena_module = _load_arena()
ATTACKS = arena_module.ATTACKS
MODES: dict[str, dict[str, bool]] = {
    "all layers": {},
    "no namespaces": {"use_namespaces": False},
    "sealed": {"use_landlock": False, "use_namespaces": False, "use_private_uid": False},
    "shared uid": {"use_private_uid": False},
}
DIFFERENT_WHEN_SEALED = {"files", "metadata", "proc", "inherited memory", "descriptors"}


def _name(attack: Any) -> str:
    return f"{attack.kind}: {attack.name}"


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest) -> Iterator[Any]:
    arena = arena_module.Arena(**MODES[request.param])
    yield arena
    arena.close()


@pytest.mark.parametrize("arena", ["all layers"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_attack_is_held(arena: Any, attack: Any) -> None:
    assert arena.play(attack).problems == ()


@pytest.mark.parametrize("arena", ["sealed"], indirect=True)
@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.kind in DIFFERENT_WHEN_SEALED], ids=_name)
def test_attack_is_held_without_landlock(arena: Any, attack: Any) -> None:
    assert arena.play(attack).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("arena", ["no namespaces", "sealed", "shared uid"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_attack_is_held_in_every_mode(arena: Any, attack: Any) -> None:
    assert arena.play(attack).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("arena", ["all layers"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_attack_is_held_in_a_session(arena: Any, attack: Any) -> None:
    problems = arena.play(attack, in_session=True).problems
    unfinished = attack.name in {"endless thread", "exit handler"}  # a session does not end with its step
    assert [p for p in problems if not (unfinished and p.startswith("it ended"))] == []


# Each layer switched off, and attacks that then win: harmless ones only, as they do win.
CONTROLS = {
    "no seccomp": (
        {"use_seccomp": False},
        {
            "processes: fork",
            "memory: memfd",
            "signals: pidfd of itself",
            "network: datagram pair to a path",
            "system calls: trace me",
        },
    ),
    "no landlock": (
        {"use_landlock": False, "use_namespaces": False, "use_sealed": False},
        {
            "files: read the gold file",
            "files: symbolic link",
            "files: list its folder",
            "files: password file",
            "proc: mounts",
        },
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_without_a_layer_attacks_win(control: str) -> None:
    config, expected = CONTROLS[control]
    arena = arena_module.Arena(**config, allow_unsafe=True)
    try:
        assert arena.sandbox.report.level.name == "UNSAFE"
        won = {_name(attack) for attack in ATTACKS if _name(attack) in expected and arena.play(attack).problems}
    finally:
        arena.close()
    assert won == expected


def _play_elsewhere(command: list[str], **keywords: Any) -> dict[str, Any]:
    finished = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, **keywords)
    assert finished.stdout, finished.stderr[-2000:]
    summary: dict[str, Any] = json.loads(finished.stdout)
    return summary


@pytest.fixture(scope="module")
def plain_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """A command prefix that runs the arena as an ordinary user, who can read this interpreter and its packages."""
    if os.geteuid() != 0 or not Path("/usr/bin/python3").exists() or shutil.which("setpriv") is None:
        pytest.skip("needs root, setpriv and a system Python that other users can run")
    base = subprocess.run(
        ["/usr/bin/python3", "-c", f"import sys; print(sys.version_info[:2] == {tuple(sys.version_info[:2])})"],
        capture_output=True,
        text=True,
        check=True,
    )
    if base.stdout.strip() != "True":
        pytest.skip("the system Python is of another version than the packages")
    folder = tmp_path_factory.mktemp("plain")
    package = Path(__file__).parent.parent
    ignored = shutil.ignore_patterns(".*", "tests", "build", "__pycache__")
    shutil.copytree(package, folder / "rolloutgym", ignore=ignored)
    shutil.copytree(HERE, folder / "attacks")
    for path in [folder, *folder.parents]:
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o755)
    yield ["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups", "--no-new-privs", "/usr/bin/python3", "-P"]
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [[], ["--no-namespaces"], ["--no-landlock", "--no-namespaces"]], ids=str)
def test_attacks_are_held_as_an_ordinary_user(
    plain_python: list[str], mode: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = next(tmp_path_factory.getbasetemp().glob("plain*"))
    site = next(p for p in sys.path if p.endswith("site-packages"))
    summary = _play_elsewhere(
        [*plain_python, str(folder / "attacks" / "arena.py"), *mode],
        cwd="/",
        env={"PYTHONPATH": f"{folder}:{site}", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert summary["lost"] == {}
    assert not summary["private_uid"]
    assert summary["level"] == {0: "namespaces", 1: "landlock", 2: "sealed"}[len(mode)]
