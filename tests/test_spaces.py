"""The repository is a Hugging Face Space as it is: what the README's front matter promises is what the image does."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
LARGEST_PLAIN_FILE = 10 * 2**20
"""Bytes; what is larger the Hub takes by other means only."""


@pytest.fixture(scope="module")
def front() -> dict[str, Any]:
    opening, block, _ = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert opening == ""
    found = yaml.safe_load(block)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def image() -> str:
    """The last stage of the Dockerfile, its continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return "FROM" + re.split(r"^FROM", text, flags=re.MULTILINE)[-1]


def test_the_front_matter_is_that_of_a_docker_space(front: dict[str, Any]) -> None:
    assert front["sdk"] == "docker"
    assert isinstance(front["app_port"], int)
    assert {front["colorFrom"], front["colorTo"]} <= COLOURS
    assert len(front["short_description"]) <= 60
    assert "openenv" in front["tags"]


def test_the_image_listens_where_the_space_looks(front: dict[str, Any], image: str) -> None:
    port = front["app_port"]
    assert re.search(rf"^EXPOSE {port}$", image, re.MULTILINE)
    assert re.search(rf"\bROLLOUTGYM_PORT={port}\b", image)
    assert re.search(r"\bROLLOUTGYM_HOST=0\.0\.0\.0\b", image)


def test_the_image_runs_as_any_user_and_writes_only_where_all_may(image: str) -> None:
    user = re.findall(r"^USER (\d+)", image, re.MULTILINE)
    assert user
    assert "0" not in user
    assert re.search(r"\bHOME=/tmp\b", image)
    assert "--chown" not in image, "files of one user's own would be closed to the user that a Space runs as"


def test_a_plain_push_takes_every_file() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    contents = {name: (ROOT / name).read_bytes() for name in names.split("\0") if name and (ROOT / name).is_file()}
    assert "Dockerfile" in contents
    assert [name for name, content in contents.items() if len(content) > LARGEST_PLAIN_FILE] == []
    assert [name for name, content in contents.items() if b"\0" in content] == [], "the Hub takes only text this way"
