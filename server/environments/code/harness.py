"""What runs inside the sandboxed processes when hidden tests judge a program; follows `transport` in one namespace.

Two processes, one wall: the program's process sees arguments and never an expectation; the tests' process sees results
as plain data and never a line of the program. So a program can neither read the tests, nor patch them, nor forge a
verdict.
"""

import base64
import builtins
import io
import json
import random
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Any

from rolloutgym.server.environments.code.transport import decode, encode

Call = dict[str, str]
"""`args` and `kwargs` of a call; then `result` or `error`, and `after` (its arguments, as it left them) if changed."""


def pack(calls: list[Call]) -> str:
    """Calls as a short text that can stand in code: arguments come several times in them."""
    return base64.b85encode(zlib.compress(json.dumps(calls).encode())).decode()


def unpack(text: str) -> list[Call]:
    calls: list[Call] = json.loads(zlib.decompress(base64.b85decode(text)))
    return calls


class CallMissing(BaseException):
    """The tests made a call whose result is not known yet. No `except Exception` of a test may swallow it."""


def perform(function: Callable[..., Any], call: Call) -> Call:
    """Make one call: what came of it, and the arguments if it changed them. What it prints is dropped."""
    args, kwargs = decode(call["args"]), decode(call["kwargs"])
    outcome: Call = {}
    nowhere = io.TextIOWrapper(_Nowhere(), write_through=True)  # type: ignore[type-var]
    try:
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            outcome["result"] = encode(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - the program may raise anything; what it raised is its result
        outcome["error"] = type(error).__name__
    after = encode(args)
    return outcome if after == call["args"] else {**outcome, "after": after}


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return len(data)


def perform_all(function: Callable[..., Any], calls: list[Call], mark: str) -> None:
    """In the program's process: make the calls and print a line for each at once, so that a crash loses no earlier
    one."""
    for call in calls:
        print(mark + json.dumps(perform(function, call)), flush=True)  # noqa: T201 - the channel to the service


class Candidate:
    """In the tests' process: stands for the program's function and answers from the record of its calls."""

    def __init__(self, record: list[Call], reference: Callable[..., Any] | None = None) -> None:
        self.record = record
        self.missing: Call | None = None
        self.position = 0
        self._reference = reference

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = {"args": encode(args), "kwargs": encode(kwargs)}
        if self._reference is not None:
            self.record.append({**call, **perform(self._reference, call)})
        known = self.record[self.position] if self.position < len(self.record) else None
        if known is None or (known["args"], known["kwargs"]) != (call["args"], call["kwargs"]):
            self.missing = self.missing or call
            raise CallMissing
        self.position += 1
        if "after" in known:
            _apply_mutation(args, decode(known["after"]))
        if "error" in known:
            kind = getattr(builtins, known["error"], RuntimeError)
            raise kind() if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(known["error"])
        return decode(known["result"])


def _apply_mutation(args: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    for before, now in zip(args, after, strict=True):
        if isinstance(before, list) and isinstance(now, list):
            before[:] = now
        elif isinstance(before, (dict, set)) and type(before) is type(now):
            before.clear()
            before.update(now)


class Tally:
    """Counts the assertions of a test, whose source was rewritten so that each goes through `holds`."""

    def __init__(self) -> None:
        self.passed = 0
        self.total = 0

    def holds(self, assertion: Callable[[], Any]) -> None:
        self.total += 1
        with suppress(Exception):
            self.passed += bool(assertion())


def run_check(namespace: dict[str, Any], candidate: Candidate, mark: str) -> None:
    """Run `check(candidate)` once, from the same random state each time, and print the report."""
    random.seed(0)
    tally = namespace["__tally__"] = Tally()
    error = ""
    try:
        namespace["check"](candidate)
    except CallMissing:
        pass
    except Exception as failure:  # noqa: BLE001 - whatever the test raised outside an assertion fails it
        error = type(failure).__name__
    report = {
        "passed": tally.passed,
        "total": tally.total,
        "error": error,
        "missing": candidate.missing,
        "position": candidate.position,
        "calls": pack(candidate.record),
    }
    print("\n" + mark + json.dumps(report), flush=True)  # noqa: T201 - the channel to the service
