"""Whatever a user can set, call or run is documented, and what is documented is there."""

import ast
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from typer.main import get_command

from rolloutgym.cli.commands import app as command_line
from rolloutgym.models import ErrorCode
from rolloutgym.server import errors
from rolloutgym.server.app import create_app
from rolloutgym.server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))}
WIRE = PAGES["docs/wire.md"].read_text(encoding="utf-8")


def test_the_settings_page_is_the_settings() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "docs" / "settings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert PAGES["docs/settings.md"].read_text(encoding="utf-8") == module.page(), "run `make format`"


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_route_is_documented(noop: Any) -> None:
    application = create_app(Settings(), {"noop": noop})
    documented = {
        (method, path.replace("/E/", "/")) for method, path in re.findall(r"`(GET|POST|DELETE) (/[^`?]*)`", WIRE)
    }
    served = {
        (method.upper(), path.replace("/{environment}/", "/"))
        for path, operations in application.openapi()["paths"].items()
        for method in operations
    }
    assert served - documented == set()
    assert documented - served == set()
    assert "`/E/ws`" in WIRE


def test_every_error_is_documented_as_it_is() -> None:
    documented = {
        code: (int(status), answer == "yes")
        for code, status, answer in re.findall(r"^\| `(\w+)` \| (\d{3}) \| (yes|no) \|", WIRE, re.MULTILINE)
    }
    real = {cls.code.value: (cls.status, cls.retryable) for cls in errors.ServiceError.__subclasses__()}
    assert documented == real
    assert set(documented) == {code.value for code in ErrorCode}


def _commands(group: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*prefix, name))
        else:
            yield (*prefix, name), command


SELF_EXPLAINING = {"temperature", "top_p", "min_p", "max_turns", "seed"}
COMMANDS = dict(_commands(get_command(command_line)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_and_is_in_the_readme(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.help
    undescribed = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, typer.core.TyperOption | typer.core.TyperArgument)
        and not parameter.help
        and parameter.name not in SELF_EXPLAINING
    ]
    assert undescribed == []
    readme = PAGES["README.md"].read_text(encoding="utf-8")
    assert f"`rolloutgym {' '.join(words)}" in readme or f"`{' '.join(words)}`" in readme


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = PAGES[page].parent / name if name else PAGES[page]
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_from_the_readme() -> None:
    readme = PAGES["README.md"].read_text(encoding="utf-8")
    assert [page for page in PAGES if f"]({page})" not in readme and page != "README.md"] == []


def _names_in(module: str) -> set[str]:
    """What a module defines or imports at its top, read and not run."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names: set[str] = set()
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES)
def test_python_in_the_documents_imports_what_exists(page: str) -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGES[page].read_text(encoding="utf-8"), re.DOTALL):
        block = block.replace(", ...)", ")")  # more arguments, of the reader's own
        for node in ast.walk(compile(block, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rolloutgym"):
                names = {name.name for name in node.names} - _names_in(str(node.module))
                assert [name for name in names if importlib.util.find_spec(f"{node.module}.{name}") is None] == []


@pytest.mark.parametrize("page", PAGES)
def test_json_in_the_documents_is_json(page: str) -> None:
    for block in re.findall(r"```json\n(.*?)```", PAGES[page].read_text(encoding="utf-8"), re.DOTALL):
        json.loads(block)


def test_the_curl_commands_of_the_wire_page_work(service_url: str) -> None:
    """Sent as curl would: that content type, and the method that `-d` implies."""
    (block,) = [block for block in re.findall(r"```console\n(.*?)```", WIRE, re.DOTALL) if "curl" in block]
    answers = []
    for line in block.strip().splitlines():
        found = re.fullmatch(r"curl -s (?:-X (\w+) )?localhost:8000(\S+)(?: -d '(.*)')?", line)
        assert found is not None, line
        method, path, body = found.groups()
        headers = {"content-type": "application/x-www-form-urlencoded"} if body else {}
        response = httpx2.request(
            method or ("POST" if body else "GET"), service_url + path, content=body, headers=headers, timeout=60
        )
        answers.append(response.json())
        assert response.status_code == 200, response.text
    assert [answer.get("done") for answer in answers] == [False, True, None]
