"""Temporary folders that outlive their process are removed by the next; others never."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rolloutgym.server.sandbox.roots import make_root, sweep


def aged(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_sweep_leaves_live_roots_and_other_files(tmp_path: Path) -> None:
    live = make_root("mine-", tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "mine-file").touch()
    (tmp_path / "mine-link").symlink_to(tmp_path / "other")
    (tmp_path / "mine-new").mkdir()  # being made this moment: not locked yet
    for name in ("other", "mine-file", live.path.name):
        aged(tmp_path / name)
    assert sweep("mine-", tmp_path) == 0
    assert live.path.stat().st_mode & 0o777 == 0o700
    os.close(live.lock)
    assert sweep("mine-", tmp_path) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"other", "mine-file", "mine-link", "mine-new"}


def test_a_root_is_in_use_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from rolloutgym.server.sandbox.roots import make_root\n"
        "root = make_root('mine-', Path(sys.argv[1])); (root.path / 'copy').touch(); print('made', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        (root,) = tmp_path.iterdir()
        aged(root)
        assert sweep("mine-", tmp_path) == 0
        process.kill()
    assert sweep("mine-", tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_removed_is_unlocked(tmp_path: Path) -> None:
    root = make_root("mine-", tmp_path)
    again = os.open(root.path, os.O_RDONLY)
    root.remove()
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    assert list(tmp_path.iterdir()) == []
