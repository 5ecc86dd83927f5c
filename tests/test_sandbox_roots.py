"""Temporary folders that outlive their process are removed by the next; others never."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rolloutgym.server.sandbox.roots import make_root, sweep


def test_sweep_leaves_live_roots_and_other_files(tmp_path: Path) -> None:
    live = make_root("mine-", tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "mine-file").touch()
    (tmp_path / "mine-link").symlink_to(tmp_path / "other")
    (tmp_path / "mine-new").mkdir()  # being made this moment: no lock file yet
    assert sweep("mine-", tmp_path) == 0
    assert live.path.stat().st_mode & 0o777 == 0o700
    os.close(live.lock)
    assert sweep("mine-", tmp_path) == 1
    kept = {"other", "mine-file", "mine-link", "mine-new"}
    assert {entry.name for entry in tmp_path.iterdir()} == kept
    os.utime(tmp_path / "mine-new", (0, 0))  # half removed by one that was killed too
    assert sweep("mine-", tmp_path) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == kept - {"mine-new"}


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
        assert sweep("mine-", tmp_path) == 0
        process.kill()
    assert sweep("mine-", tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_is_removed_is_unlocked(tmp_path: Path) -> None:
    root = make_root("mine-", tmp_path)
    again = os.open(root.path / ".lock", os.O_RDWR)
    root.remove()
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    assert list(tmp_path.iterdir()) == []
