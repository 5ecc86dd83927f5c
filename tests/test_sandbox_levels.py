"""The level is what the self-test proved, and below the required one nothing starts unless that is asked for."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from rolloutgym.server.errors import SandboxUnavailable
from rolloutgym.server.sandbox.client import RunResult, Sandbox, SandboxConfig, SandboxReport
from rolloutgym.server.sandbox.policy import Level
from rolloutgym.server.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process sandbox is Linux's")

HELLO = "import math\nprint('hello')\nmath.comb(4, 2)"


def _start(config: SandboxConfig) -> tuple[SandboxReport, RunResult]:
    async def main() -> tuple[SandboxReport, RunResult]:
        sandbox = Sandbox(config)
        await sandbox.start()
        try:
            return sandbox.report, await sandbox.run(HELLO)
        finally:
            await sandbox.stop()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("config", "most", "least"),
    [
        (SandboxConfig(), Level.NAMESPACES, Level.LANDLOCK),
        (SandboxConfig(use_namespaces=False), Level.LANDLOCK, Level.LANDLOCK),
        (SandboxConfig(use_namespaces=False, use_private_uid=False), Level.LANDLOCK, Level.LANDLOCK),
        (SandboxConfig(use_namespaces=False, use_landlock=False), Level.SEALED, Level.SEALED),
        (SandboxConfig(use_landlock=False), Level.SEALED, Level.SEALED),
        (SandboxConfig(use_seccomp=False, allow_unsafe=True), Level.UNSAFE, Level.UNSAFE),
        (
            SandboxConfig(use_landlock=False, use_sealed=False, use_namespaces=False, allow_unsafe=True),
            Level.UNSAFE,
            Level.UNSAFE,
        ),
    ],
)
def test_level(config: SandboxConfig, most: Level, least: Level) -> None:
    report, result = _start(config)
    assert least <= report.level <= most
    assert bool(report.failed) == (report.level is Level.UNSAFE)
    assert (result.status, result.output, result.value) == ("ok", "hello\n", "6")
    assert result.unsafe == (report.level < config.required)
    if report.level < config.required:
        assert any("not sealed" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (SandboxConfig(use_seccomp=False), "attacks that were not held: .*fork"),
        (SandboxConfig(use_landlock=False, use_sealed=False, use_namespaces=False), "read a file outside"),
        (SandboxConfig(use_landlock=False, required=Level.LANDLOCK), "reaches level sealed, not landlock"),
        (SandboxConfig(use_namespaces=False, required=Level.NAMESPACES), "reaches level landlock, not namespaces"),
        (SandboxConfig(python=Path("/nonexistent/python")), "cannot be prepared"),
        (SandboxConfig(python=Path("/bin/true")), "cannot be prepared"),
    ],
)
def test_refuses_to_start(config: SandboxConfig, reason: str) -> None:
    with pytest.raises(SandboxUnavailable, match=reason):
        _start(config)


def test_refuses_other_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolloutgym.server.sandbox.processes.sys.platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="darwin"):
        asyncio.run(Sandbox(SandboxConfig()).start())


def test_refuses_other_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolloutgym.server.sandbox.launch.platform.machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        asyncio.run(Sandbox(SandboxConfig()).start())


def test_report_is_plain_json() -> None:
    report, _ = _start(SandboxConfig())
    shown = json.loads(json.dumps(report.as_json()))
    assert shown["level"] in {"landlock", "namespaces"}
    assert shown["required"] == "sealed"
    assert len(shown["passed"]) >= 12
    assert shown["failed"] == []
    assert shown["limits"]["cpu_s"] == 4.0
    assert shown["backend"] == "process"


def test_private_uid_is_given_up_where_it_cannot_read_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch below a folder that no other uid may enter."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    report, result = _start(SandboxConfig(scratch=closed, use_namespaces=False))
    assert not report.private_uid
    assert any("share the server's uid" in warning for warning in report.warnings)
    assert result.status == "ok"


def test_from_settings() -> None:
    config = SandboxConfig.from_settings(
        Settings(
            sandbox_level="landlock",
            allow_unsafe_sandbox=True,
            sandbox_cpu_s=1.5,
            sandbox_wall_s=7,
            sandbox_memory_mb=100,
            sandbox_disk_mb=3,
            sandbox_running=5,
            sandbox_sessions=9,
            sandbox_idle_s=60,
        )
    )
    assert (config.required, config.allow_unsafe, config.running, config.sessions) == (Level.LANDLOCK, True, 5, 9)
    limits = config.limits
    assert (limits.cpu_s, limits.wall_s, limits.memory, limits.disk) == (1.5, 7, 100 << 20, 3 << 20)
    assert config.idle_s == 60


def test_levels_are_ordered() -> None:
    assert Level.UNSAFE < Level.SEALED < Level.LANDLOCK < Level.NAMESPACES
