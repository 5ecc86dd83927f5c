"""Settings: defaults that make sense, lists with commas, and no misspelt variable that goes unnoticed."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from rolloutgym.server.settings import Settings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("ROLLOUTGYM_"):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = Settings()
    assert settings.environments == ("sql", "toolcall", "code")
    assert (settings.host, settings.capacity, settings.idle_timeout_s, settings.grace_s) == (
        "127.0.0.1",
        1024,
        1800,
        60,
    )
    assert settings.drain_s < 8, "a container has ten seconds to end"


@pytest.mark.parametrize(
    ("text", "names"),
    [("sql", ("sql",)), ("sql,code", ("sql", "code")), (" code , sql ,", ("code", "sql"))],
)
def test_lists_have_commas(monkeypatch: pytest.MonkeyPatch, text: str, names: tuple[str, ...]) -> None:
    monkeypatch.setenv("ROLLOUTGYM_ENVIRONMENTS", text)
    assert Settings().environments == names


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ROLLOUTGYM_CAPACTIY", "7", "unknown variable ROLLOUTGYM_CAPACTIY"),
        ("rolloutgym_grace", "7", "unknown variable rolloutgym_grace"),
        ("ROLLOUTGYM_CAPACITY", "0", "greater than 0"),
        ("ROLLOUTGYM_CAPACITY", "many", "valid integer"),
        ("ROLLOUTGYM_ENVIRONMENTS", "sql,chess", "'sql', 'toolcall' or 'code'"),
        ("ROLLOUTGYM_ENVIRONMENTS", ",", "at least 1 item"),
        ("ROLLOUTGYM_ENVIRONMENTS", "sql,sql", "twice"),
        ("ROLLOUTGYM_STEP_TIMEOUT_S", "nan", "finite"),
        ("ROLLOUTGYM_IDLE_TIMEOUT_S", "inf", "finite"),
        ("ROLLOUTGYM_STORE", "mysql://x", "memory"),
        ("ROLLOUTGYM_STORE", "redis://host/main", "pattern"),
    ],
)
def test_a_wrong_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=said):
        Settings()


def test_the_key_and_the_stores_password_are_not_shown() -> None:
    assert "hush" not in repr(Settings(api_key="hush", store="redis://:hush@host/0"))


def test_a_key_is_what_a_header_can_carry() -> None:
    key = Settings(api_key=" hush\n").api_key
    assert key is not None
    assert key.get_secret_value() == "hush"
    for empty in ("", " \n"):
        # Asked for, and not given: that must not mean that everybody may call.
        with pytest.raises(ValidationError):
            Settings(api_key=empty)


@pytest.mark.parametrize("module", ["rolloutgym.server.app", "rolloutgym.cli"])
def test_the_service_fails_with_one_clear_line(module: str) -> None:
    arguments = ["serve", "--port", "0"] if module.endswith("cli") else []
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={"ROLLOUTGYM_CAPACTIY": "7", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "unknown variable ROLLOUTGYM_CAPACTIY" in line
