"""The base package is enough for the client, and brings neither the service nor a web framework along; the image's
extras are enough for the service.
"""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PLAY = """
import json
import httpx2
from rolloutgym.client import Client, AsyncClient

def handler(request):
    body = json.loads(request.content)
    step = "step" in body
    return httpx2.Response(200, json={"observation": {}, "reward": 1.0 if step else None, "done": step,
                                      "episode_id": body["episode_id"], "step_count": int(step)})

with Client(http_transport=httpx2.MockTransport(handler)) as client:
    assert client.sql.reset().step("ANSWER 1").reward == 1.0
"""

_ALLOW_ONLY = """
import sys
class OnlyThese:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in allowed or root in sys.stdlib_module_names or root.startswith(("__editable__", "_sysconfigdata")):
            return None
        raise ModuleNotFoundError(f"No module named {name!r} (not of the base package)", name=root)
sys.meta_path.insert(0, OnlyThese())
"""

_WHICH = """
loaded = {name for name in sys.modules if name.startswith("rolloutgym.")}
assert not {name for name in loaded if name.split(".")[1] in ("server", "cli", "training")}, loaded
"""


def _modules(*extras: str) -> set[str]:
    """Top-level modules of what the package with these extras depends on, theirs included."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    waiting = [Requirement(text) for text in named]
    needed = {canonicalize_name(requirement.name) for requirement in waiting}
    while waiting:
        parent = waiting.pop()
        for text in metadata.distribution(parent.name).requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in ("", *parent.extras)):
                continue
            if canonicalize_name(requirement.name) not in needed:
                needed.add(canonicalize_name(requirement.name))
                waiting.append(requirement)
    return {
        module
        for module, owners in metadata.packages_distributions().items()
        if any(canonicalize_name(owner) in needed for owner in owners)
    }


def _run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_client_plays_with_the_base_package_alone(tmp_path: Path) -> None:
    allowed = _modules() | {"rolloutgym"}
    assert {"httpx2", "pydantic", "stamina", "wsproto"} <= allowed
    assert not {"fastapi", "starlette", "uvicorn", "typer", "rich", "torch"} & allowed
    done = _run(f"allowed = {allowed!r}\n{_ALLOW_ONLY}{_PLAY}{_WHICH}", tmp_path)
    assert done.returncode == 0, done.stderr


_IMPORT_THE_SERVICE = """
import importlib, pkgutil
import rolloutgym.cli.commands, rolloutgym.cli.serve, rolloutgym.server
for module in pkgutil.walk_packages(rolloutgym.server.__path__, "rolloutgym.server."):
    # These two are for extras of their own.
    if not module.name.endswith((".openenv_adapter", ".reasoning_process")):
        importlib.import_module(module.name)
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings
create_app(Settings())
"""


def test_the_image_installs_what_its_service_imports(tmp_path: Path) -> None:
    allowed = _modules("server", "redis") | {"rolloutgym"}
    assert not {"torch", "transformers", "openenv", "gradio", "docker"} & allowed
    done = _run(f"allowed = {allowed!r}\n{_ALLOW_ONLY}{_IMPORT_THE_SERVICE}", tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("blocked", "command", "extra"),
    [
        ("typer", "--help", "server"),
        ("rich", "--help", "server"),
        ("pydantic_settings", "serve", "server"),
        ("fastapi", "serve", "server"),
        ("torch", "train-demo", "train"),
    ],
)
def test_the_command_line_says_what_it_needs(blocked: str, command: str, extra: str, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.modules[{blocked!r}] = None\n"
        f"sys.argv = ['rolloutgym', {command!r}]\n"
        "from rolloutgym.cli import main; main()"
    )
    done = _run(code, tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"rolloutgym: {blocked} is not installed; this command needs: pip install 'rolloutgym[{extra}]'"
    )
