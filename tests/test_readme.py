"""The README's first screen is true: its snippet runs, its commands exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _snippet() -> str:
    (snippet, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return str(snippet)


def test_the_snippet_is_short_and_plays_an_episode(service_url: str, tmp_path: Path) -> None:
    snippet = _snippet()
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 10
    assert snippet.count("http://127.0.0.1:8000") == 1
    code = snippet.replace("http://127.0.0.1:8000", service_url)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\S+ -?[\d.e-]+ (True|False)\n", done.stdout), done.stdout


def test_the_first_screen_says_how_to_begin() -> None:
    after_front_matter = README.split("---\n", 2)[2]
    first_screen = "\n".join(after_front_matter.strip().splitlines()[:40])
    for command in ("docker run -p 8000:8000 rolloutgym", "make demo", "make test", "```python"):
        assert command in first_screen
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_front_matter_suits_a_space() -> None:
    front = dict(line.split(": ", 1) for line in README.split("---\n")[1].strip().splitlines())
    assert (front["sdk"], front["app_port"], front["license"]) == ("docker", "8000", "mit")
    assert len(front["short_description"]) <= 60
    assert len(front["title"]) > 0


def test_the_extras_that_are_named_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"rolloutgym\[(\w+)\]", README))
    assert named
    assert named <= set(extras)
