"""A service of one's own: a process on a free loopback port that lives as long as the block that asked for it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from rolloutgym.cli.terminal import errors, printable
from rolloutgym.client.errors import ConnectionFailed, ServiceFault

READY = "listening on "
_STOP_S = 20.0


@contextmanager
def own_service(environment: Mapping[str, str] | None = None, *arguments: str) -> Iterator[str]:
    """Start `rolloutgym serve --port 0`; yields its base URL. `ConnectionFailed` with its last words if it does not
    start; where it fails later, the end of its log is shown."""
    command = [sys.executable, "-m", "rolloutgym.cli", "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert process.stdout is not None
        try:
            yield _base_url(process.stdout, log)
        except ServiceFault:
            errors.print(printable("".join(_last_lines(log, 30))))
            raise
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _base_url(output: IO[str], log: IO[str]) -> str:
    for line in output:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    last_words = " ".join("".join(_last_lines(log, 4)).split())
    raise ConnectionFailed(f"the service did not start: {last_words or 'no word of why'}", retryable=False)


def _last_lines(log: IO[str], count: int) -> list[str]:
    log.seek(0)
    return log.readlines()[-count:]
