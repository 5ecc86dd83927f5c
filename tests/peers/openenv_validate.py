"""OpenEnv's own validator. Standard input: `{"urls", "root", "serve": {name: {"command", "plan"}}}`: running services,
a copy of the repository, and for each environment the command that serves it, less its port, and its probe's actions,
where they are not the repository's.

Its runtime checks start a container; here a process takes that place, so that the same graders judge the same evidence.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from openenv.cli._validation import validate_running_environment
from openenv.validation import ExecResult, Level, ProviderCapability, run_validation
from openenv.validation.providers import StartupError


class RunningProcess:
    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.base_url = url

    def inspect(self) -> dict[str, Any]:
        return {"pid": self._process.pid, "engine": "process"}

    def logs(self, max_bytes: int = 65536) -> str:
        return ""

    def exec(self, argv: list[str], timeout_s: float) -> ExecResult:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s)
        return ExecResult(done.returncode, done.stdout, done.stderr, 0.0)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class ProcessProvider:
    name = "process"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD, ProviderCapability.EXEC})
    supported_network_modes = frozenset({"public", "no-network"})

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def build(self, root: Path, execution: Any) -> str:
        return "sha256:" + "0" * 64

    def start(self, spec: Any) -> RunningProcess:
        process = subprocess.Popen(
            [*self._command, "0"], env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            process.kill()
            raise StartupError("it does not listen")
        return RunningProcess(process, line.removeprefix("listening on ").strip())


def validate(root: Path, level: Level, provider: ProcessProvider | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as artifacts:
        report = run_validation(
            root, max_level=level, skip_build=provider is None, provider=provider, artifacts_dir=Path(artifacts)
        )
    results = {
        one.check_id: {"status": one.status.value, "evidence": [str(each)[:500] for each in one.evidence[:3]]}
        for one in report.results
    }
    return {"verdict": report.verdict.value, "results": results}


def run(root: Path, command: list[str], actions: list[Any] | None) -> dict[str, Any]:
    """The copy's runtime level; with a probe of these actions for the time."""
    file = root / "validation" / "runtime.json"
    shipped = file.read_text()
    if actions is not None:
        file.write_text(json.dumps(json.loads(shipped) | {"actions": actions}))
    try:
        return validate(root, Level.RUNTIME, ProcessProvider(command))
    finally:
        file.write_text(shipped)


def main() -> None:
    work = json.load(sys.stdin)
    root = Path(work["root"])
    found = {
        "urls": {url: validate_running_environment(url) for url in work["urls"]},
        "static": validate(root, Level.STATIC, None),
        "runtime": {name: run(root, one["command"], one["plan"]) for name, one in work["serve"].items()},
    }
    json.dump(found, sys.stdout, default=str)


main()
