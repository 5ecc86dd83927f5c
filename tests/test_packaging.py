"""What is on disk, what is listed and what a wheel holds are the same."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("cli", "client", "server", "training")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages_on_disk() -> set[str]:
    files = [file for folder in SHIPPED for file in (ROOT / folder).rglob("__init__.py")]
    return {"rolloutgym", *(".".join(("rolloutgym", *file.parent.relative_to(ROOT).parts)) for file in files)}


def test_every_package_is_listed(project: dict[str, Any]) -> None:
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(packages_on_disk())


def test_every_module_is_in_a_package() -> None:
    modules = [file for folder in SHIPPED for file in (ROOT / folder).rglob("*.py")]
    assert modules
    assert [file for file in modules if not (file.parent / "__init__.py").exists()] == []


def test_the_root_holds_no_other_module() -> None:
    """Each would be shipped, and imported under a second name."""
    assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "models.py"}


def test_the_license_is_the_one_that_is_declared(project: dict[str, Any]) -> None:
    assert project["project"]["license"] == "MIT"
    assert "MIT License" in (ROOT / "LICENSE").read_text()


def test_a_wheel_holds_the_code_and_the_data(tmp_path: Path) -> None:
    """Built from a copy, so that the working tree stays as it is."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    source = tmp_path / "source"
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    build = "import setuptools.build_meta as b; print(b.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (source / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    wanted = {
        f"rolloutgym/{path.relative_to(source)}"
        for path in source.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and _shipped(path.relative_to(source))
    }
    assert held == wanted


def _shipped(path: Path) -> bool:
    if len(path.parts) == 1:
        return path.suffix == ".py" or path.name == "py.typed"
    return path.parts[0] in SHIPPED
