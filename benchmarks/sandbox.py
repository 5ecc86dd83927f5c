"""Throughput and latency of the sandbox beside other ways to run a piece of Python, all measured in this run.

    python benchmarks/sandbox.py [--seconds 2]

Ratios are runs per second against `subprocess.run([python, "-I", "-c", code])` with as many at once (by the base
interpreter, which starts faster than a virtual environment's, where the code needs no package). A bare fork runs
the code in a fork of an unconfined process that has the libraries loaded: the floor below which no fork server gets.
smolagents' executor and bubblewrap are measured where they are installed; the first is no boundary."""

import argparse
import asyncio
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rolloutgym.server.sandbox.client import Sandbox, SandboxConfig, SandboxSession

PROGRAMS = {
    "print(1+1)": "print(1+1)",
    "sympy integral": "import sympy\nx = sympy.Symbol('x')\nprint(sympy.integrate(sympy.sin(x)**2, x))",
}
PYTHON_OF = {"print(1+1)": getattr(sys, "_base_executable", sys.executable), "sympy integral": sys.executable}
AT_ONCE = (1, 2, 16, 64)
WANTED_AT_16 = {
    ("live step", "print(1+1)"): 40.0,
    ("stateless run", "print(1+1)"): 1.6,
    ("stateless run", "sympy integral"): 20.0,
}
SUBPROCESS = "subprocess -I -c"


@dataclass(frozen=True)
class Measured:
    runs_per_s: float
    p50_ms: float
    p99_ms: float


def _summary(latencies_s: list[float], elapsed_s: float) -> Measured:
    ordered = sorted(latencies_s)
    return Measured(
        len(ordered) / elapsed_s,
        statistics.median(ordered) * 1e3,
        ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
    )


async def _measure_async(one: Callable[[int], Awaitable[object]], at_once: int, seconds: float) -> Measured:
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def worker(index: int) -> None:
        while time.perf_counter() < end:
            began = time.perf_counter()
            await one(index)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(worker(index) for index in range(at_once)))
    return _summary(latencies, time.perf_counter() - began)


def _measure_threads(one: Callable[[], object], at_once: int, seconds: float) -> Measured:
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    def worker() -> None:
        while time.perf_counter() < end:
            began = time.perf_counter()
            one()
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        for future in [pool.submit(worker) for _ in range(at_once)]:
            future.result()
    return _summary(latencies, time.perf_counter() - began)


_FORKER = """
import os, sys, time
sys.stdout = open(os.devnull, "w")
import sympy
code, at_once, end = compile(sys.argv[1], "code", "exec"), int(sys.argv[2]), time.perf_counter() + float(sys.argv[3])
began, runs, started = time.perf_counter(), [], {}
while time.perf_counter() < end or started:
    while len(started) < at_once and time.perf_counter() < end:
        now = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            exec(code, {})
            os._exit(0)
        started[pid] = now
    if started:
        pid, _ = os.wait()
        runs.append(time.perf_counter() - started.pop(pid))
print(time.perf_counter() - began, *runs, file=sys.stderr)
"""


def _measure_fork(program: str, at_once: int, seconds: float) -> Measured:
    answer = subprocess.run(
        [sys.executable, "-c", _FORKER, program, str(at_once), str(seconds)], capture_output=True, text=True, check=True
    )
    elapsed, *latencies = (float(number) for number in answer.stderr.split())
    return _summary(latencies, elapsed)


def _run_command(command: list[str]) -> Callable[[], object]:
    return lambda: subprocess.run(command, capture_output=True, check=True)


def _bubblewrap(program: str) -> list[str]:
    return [
        *("bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "--tmpfs", "/tmp"),
        *(sys.executable, "-I", "-c", program),
    ]


def _smolagents(program: str) -> Callable[[], object]:
    from smolagents.local_python_executor import LocalPythonExecutor

    executor: Any = LocalPythonExecutor(["sympy"])
    executor.send_tools({})
    return lambda: executor(program)


async def _measure_sandbox(sandbox: Sandbox, program: str, at_once: int, seconds: float) -> dict[str, Measured]:
    async def run(_: int) -> None:
        result = await sandbox.run(program)
        assert result.status == "ok", result

    sessions: list[SandboxSession] = [await sandbox.open_session() for _ in range(at_once)]

    async def step(index: int) -> None:
        result = await sessions[index].step(program)
        assert result.status == "ok", result

    try:
        return {
            "live step": await _measure_async(step, at_once, seconds),
            "stateless run": await _measure_async(run, at_once, seconds),
        }
    finally:
        for session in sessions:
            await session.close()


async def measure(seconds: float) -> dict[tuple[str, str, int], Measured]:
    """(method, program, at once) → figures."""
    table: dict[tuple[str, str, int], Measured] = {}
    sandbox = Sandbox(SandboxConfig())
    await sandbox.start()
    print(f"sandbox level: {sandbox.report.level.name.lower()}, {os.cpu_count()} CPUs")  # noqa: T201
    try:
        for name, program in PROGRAMS.items():
            for at_once in AT_ONCE:
                figures = await _measure_sandbox(sandbox, program, at_once, seconds)
                others: dict[str, Callable[[], Measured]] = {
                    "bare fork and wait": lambda p=program, n=at_once: _measure_fork(p, n, seconds),  # type: ignore[misc]
                    SUBPROCESS: lambda p=program, n=at_once, k=name: _measure_threads(  # type: ignore[misc]
                        _run_command([PYTHON_OF[k], "-I", "-c", p]), n, seconds
                    ),
                }
                if importlib.util.find_spec("smolagents"):
                    others["smolagents local"] = lambda p=program, n=at_once: _measure_threads(
                        _smolagents(p), n, seconds
                    )  # type: ignore[misc]
                if shutil.which("bwrap"):
                    others["bubblewrap"] = lambda p=program, n=at_once: _measure_threads(  # type: ignore[misc]
                        _run_command(_bubblewrap(p)), n, seconds
                    )
                for method, measure_other in others.items():
                    figures[method] = await asyncio.to_thread(measure_other)
                table |= {(method, name, at_once): figure for method, figure in figures.items()}
    finally:
        await sandbox.stop()
    return table


def show(table: dict[tuple[str, str, int], Measured]) -> None:
    methods = list(dict.fromkeys(method for method, _, _ in table))
    for name in PROGRAMS:
        print(f"\n{name}: p50/p99 ms, runs/s, ratio to the subprocess")  # noqa: T201
        print(f"{'':<20}" + "".join(f"{f'{n} at once':>34}" for n in AT_ONCE))  # noqa: T201
        for method in methods:
            cells = []
            for at_once in AT_ONCE:
                figure, base = table[method, name, at_once], table[SUBPROCESS, name, at_once]
                ratio = figure.runs_per_s / base.runs_per_s
                cells.append(f"{figure.p50_ms:.1f}/{figure.p99_ms:.1f}, {figure.runs_per_s:.0f}/s, {ratio:.1f}x")
            print(f"{method:<20}" + "".join(f"{cell:>34}" for cell in cells))  # noqa: T201
    print()  # noqa: T201
    for (method, name), wanted in WANTED_AT_16.items():
        ratio = table[method, name, 16].runs_per_s / table[SUBPROCESS, name, 16].runs_per_s
        print(f"{method}, {name}, 16 at once: {ratio:.1f}x (wanted {wanted:g}x)")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="per method, program and number at once")
    show(asyncio.run(measure(parser.parse_args().seconds)))


if __name__ == "__main__":
    main()
