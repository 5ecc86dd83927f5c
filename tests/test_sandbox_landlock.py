"""Rule sets as the kernel enforces them, each tried in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from rolloutgym.server.sandbox import landlock

pytestmark = pytest.mark.skipif(sys.platform != "linux" or landlock.abi() == 0, reason="this kernel has no Landlock")

_CONFINED = """
import os, sys
from rolloutgym.server.sandbox import kernel, landlock
allowed, scratch, version = sys.argv[1], sys.argv[2], int(sys.argv[3])
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
def confine(paths, rights):
    rules = landlock.Ruleset(version)
    opened = landlock.Opened(paths, rights)
    opened.allow_in(rules)
    more = landlock.Opened([scratch], landlock.SCRATCH)
    more.allow_in(rules)
    rules.enforce()
confine([allowed], landlock.READ)
def works(f):
    try: f()
    except OSError: return 'no'
    return 'yes'
"""


def _ask(tmp_path: Path, question: str, version: int | None = None) -> str:
    allowed, scratch, other = (tmp_path / name for name in ("allowed", "scratch", "other"))
    for folder in (allowed, scratch, other):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text("text")
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{_CONFINED}\nother = {str(other)!r}\nprint({question})",
            str(allowed),
            str(scratch),
            str(version or landlock.abi()),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("works(lambda: open(allowed + '/file').read())", "yes"),
        ("works(lambda: os.listdir(allowed))", "yes"),
        ("works(lambda: open(allowed + '/file', 'w'))", "no"),
        ("works(lambda: os.mkdir(allowed + '/new'))", "no"),
        ("works(lambda: os.unlink(allowed + '/file'))", "no"),
        ("works(lambda: open(scratch + '/new', 'w').write('x'))", "yes"),
        ("works(lambda: os.makedirs(scratch + '/a/b'))", "yes"),
        ("works(lambda: os.rename(scratch + '/file', scratch + '/moved'))", "yes"),
        ("works(lambda: os.symlink(other, scratch + '/link')) + works(lambda: os.listdir(scratch + '/link'))", "yesno"),
        ("works(lambda: os.mkfifo(scratch + '/pipe'))", "no"),
        ("works(lambda: open(other + '/file').read())", "no"),
        ("works(lambda: os.listdir(other))", "no"),
        ("works(lambda: os.link(other + '/file', scratch + '/hard'))", "no"),
        ("works(lambda: os.rename(other + '/file', scratch + '/mine'))", "no"),
        ("works(lambda: os.listdir('/'))", "no"),
        ("works(lambda: open('/etc/passwd'))", "no"),
        ("works(lambda: os.posix_spawn('/bin/true', ['true'], {}))", "no"),
    ],
)
def test_rights(tmp_path: Path, question: str, answer: str) -> None:
    assert _ask(tmp_path, question) == answer


@pytest.mark.parametrize("version", [v for v in range(1, 8) if v <= landlock.abi()])
def test_every_version_of_the_interface_up_to_this_kernels(tmp_path: Path, version: int) -> None:
    question = "works(lambda: open(allowed + '/file').read()) + works(lambda: open(other + '/file').read())"
    assert _ask(tmp_path, question, version) == "yesno"


def test_layers_only_take_away(tmp_path: Path) -> None:
    question = (
        "confine([other], landlock.READ) or works(lambda: os.listdir(allowed)) + works(lambda: os.listdir(other))"
    )
    assert _ask(tmp_path, question) == "nono"
