"""The hostile suite: every attack is held, and the service and another live session are intact after each.

The list is in `attacks/cases.py`, what looks at the damage in `attacks/arena.py`.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
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
_SYSTEM_PYTHON = "/usr/bin/python3"
MODES: dict[str, dict[str, Any]] = {
    "all layers": {},
    "no namespaces": {"use_namespaces": False},
    "sealed": {"use_landlock": False, "use_namespaces": False, "use_private_uid": False},
    "shared uid": {"use_private_uid": False},
    "private uid without namespaces": {"use_namespaces": False, "python": Path(_SYSTEM_PYTHON)},
}
DIFFERENT_WHEN_SEALED = {"files", "metadata", "proc", "inherited memory", "descriptors"}


def _name(attack: Any) -> str:
    return f"{attack.kind}: {attack.name}"


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest) -> Iterator[Any]:
    config = MODES[request.param]
    if "python" in config and not config["python"].exists():
        pytest.skip("needs a system Python that other users can run")
    arena = arena_module.Arena(**config)
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
@pytest.mark.parametrize(
    "arena", ["no namespaces", "sealed", "shared uid", "private uid without namespaces"], indirect=True
)
@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_attack_is_held_in_every_mode(arena: Any, attack: Any) -> None:
    assert arena.play(attack).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("arena", ["all layers"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_attack_is_held_in_a_session(arena: Any, attack: Any) -> None:
    problems = arena.play(attack, in_session=True).problems
    # A session does not end with its step, and a step ends with a reply that has its token.
    unfinished = attack.name in {"endless thread", "exit handler"} or attack.name.startswith("true token")
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
def copied() -> Iterator[Path]:
    """The package and the attacks in a folder that anybody can read (pytest's own temporary folders are private)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        ignored = shutil.ignore_patterns(".*", "tests", "build", "__pycache__")
        shutil.copytree(Path(__file__).parent.parent, folder / "rolloutgym", ignore=ignored)
        shutil.copytree(HERE, folder / "attacks")
        yield folder


def _site_packages() -> str:
    return next(path for path in sys.path if path.endswith("site-packages"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "level"),
    [([], "namespaces"), (["--no-namespaces"], "landlock"), (["--no-landlock", "--no-namespaces"], "sealed")],
    ids=["namespaces", "landlock", "sealed"],
)
def test_attacks_are_held_as_an_ordinary_user(copied: Path, mode: list[str], level: str) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    probe = [_SYSTEM_PYTHON, "-c", "import sys; print(*sys.version_info[:2])"]
    if not Path(_SYSTEM_PYTHON).exists() or subprocess.check_output(probe).split() != [
        b"3",
        b"%d" % sys.version_info[1],
    ]:
        pytest.skip("needs a system Python of this version, which other users can run")
    summary = _play_elsewhere(
        [
            "setpriv",
            "--reuid=61001",
            "--regid=61001",
            "--clear-groups",
            "--no-new-privs",
            _SYSTEM_PYTHON,
            "-P",
            str(copied / "attacks" / "arena.py"),
            *mode,
        ],
        cwd="/",
        env={"PYTHONPATH": f"{copied}:{_site_packages()}", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert (summary["lost"], summary["private_uid"], summary["level"]) == ({}, False, level)


HARDENED = ["--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=1000", "--read-only", "--tmpfs=/tmp"]


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.parametrize(
    ("options", "mode", "level", "private_uid"),
    [
        ([], [], "landlock", True),
        (["--user=1000"], [], "landlock", False),
        (HARDENED, [], "landlock", False),
        (HARDENED, ["--no-landlock"], "sealed", False),
        (["--cap-drop=ALL"], [], "landlock", False),
    ],
    ids=["default", "user", "hardened", "hardened and sealed", "root without capabilities"],
)
def test_attacks_are_held_in_a_container(
    copied: Path, options: list[str], mode: list[str], level: str, private_uid: bool
) -> None:
    """In an image with a Python of this version; the packages are mounted from here."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs a Docker engine")
    image = os.environ.get("TEST_IMAGE", "python:3.11-slim")
    mounts = [f"--volume={copied}:/copied:ro", f"--volume={_site_packages()}:/site:ro"]
    summary = _play_elsewhere(
        [
            "docker",
            "run",
            "--rm",
            "--network=none",
            *options,
            *mounts,
            "--env=PYTHONPATH=/copied:/site",
            image,
            "python3",
            "-P",
            "/copied/attacks/arena.py",
            *mode,
        ]
    )
    assert (summary["lost"], summary["private_uid"], summary["level"]) == ({}, private_uid, level)
