"""Executes the model's code inside the child, cell by cell, in one `__main__`. Standard library only.

The last expression's value is taken by splitting the syntax tree. Tracebacks keep the code's own frames. What this
module keeps for itself is bound early, since the code may patch any module that it shares with it.
"""

import ast
import atexit
import builtins
import contextlib
import io
import json
import linecache
import os
import random
import signal
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, Final

MAX_VALUE: Final = 64 << 10
MAX_TRACEBACK: Final = 16 << 10
_dumps = json.dumps
_print_exception_type = traceback.TracebackException
_extract = traceback.StackSummary.from_list

FRAME: Final = struct.Struct("=I")
"""Length before each message on the channel."""
REQUEST: Final = struct.Struct("=QB")
"""Token of the step and whether it is the last; the code follows."""


def _open_output() -> tuple[io.TextIOWrapper, io.TextIOWrapper]:
    """Two streams over one buffer, so that standard output and error stay in the order printed. Flushed at each line:
    what was printed survives a kill."""
    shared = io.BufferedWriter(io.FileIO(1, "w", closefd=False), 16384)

    def stream() -> io.TextIOWrapper:
        return io.TextIOWrapper(
            shared, encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=True
        )

    return stream(), stream()


def seed_randomness(seed: int) -> None:
    """Every usual source of randomness follows from the seed, the operating system's included."""
    random.seed(seed)
    entropy = random.Random(seed).randbytes

    def urandom(size: int, /) -> bytes:
        return entropy(size)

    os.urandom = urandom
    random._urandom = urandom  # type: ignore[attr-defined]  # SystemRandom, secrets, numpy's unseeded generators
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed & 0xFFFFFFFF)


class Interpreter:
    """One `__main__` module and the state around it."""

    def __init__(self, *, seed: int, scratch: str | None, library_roots: tuple[str, ...]) -> None:
        self._cells = 0
        self._scratch = scratch
        self._library_roots = library_roots
        self._in_code = False
        self.stdout, self.stderr = _open_output()
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.stderr  # type: ignore[misc]
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.FileIO(0, "r", closefd=False), encoding="utf-8")  # type: ignore[misc]
        sys.argv = ["code"]
        sys.orig_argv = ["python"]
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self._namespace = main.__dict__
        if scratch is not None:
            sys.path.insert(0, scratch)
        for name in ("exit", "quit"):  # put there by `site`, which is not loaded
            setattr(builtins, name, sys.exit)
        sys.set_int_max_str_digits(0)  # CPU time bounds it
        threading.excepthook = self._thread_failed
        sys.excepthook = lambda _type, error, _traceback: self._show(error)
        signal.signal(signal.SIGINT, self._interrupted)
        seed_randomness(seed)

    def _interrupted(self, _signal: int, _frame: types.FrameType | None) -> None:
        if self._in_code:  # else the step is over already and the signal came late
            raise KeyboardInterrupt

    def _show(self, error: BaseException | None) -> None:
        if error is not None:
            self.stderr.write(self.render(error))

    def _thread_failed(self, arguments: threading.ExceptHookArgs) -> None:
        self._show(arguments.exc_value)

    # -- tracebacks

    def _is_own(self, filename: str) -> bool:
        if filename.startswith(("<frozen ", "<sandbox ")):
            return False
        return not filename.startswith("/") or (self._scratch is not None and filename.startswith(self._scratch + "/"))

    def _keep_own_frames(self, report: traceback.TracebackException, depth: int = 0) -> None:
        report.stack = _extract([frame for frame in report.stack if self._is_own(frame.filename)])
        related = [report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())]
        for other in related:
            if other is not None and depth < 50:
                self._keep_own_frames(other, depth + 1)

    def render(self, error: BaseException) -> str:
        try:
            report = _print_exception_type(type(error), error, error.__traceback__, compact=True)
            self._keep_own_frames(report)
            text = "".join(report.format())
        except BaseException:  # noqa: BLE001  # the error's own methods are the model's code
            text = f"{type(error).__name__}: <could not be shown>\n"
        if self._scratch is not None:
            text = text.replace(self._scratch + "/", "")
        for root in self._library_roots:  # some messages name a library's file
            text = text.replace(root, root.rpartition("/")[2])
        if len(text) > MAX_TRACEBACK:
            half = MAX_TRACEBACK // 2
            text = f"{text[:half]}\n... [{len(text) - 2 * half} characters left out] ...\n{text[-half:]}"
        return text

    # -- execution

    def _compile(self, source: str, name: str) -> tuple[types.CodeType | None, types.CodeType | None]:
        """The cell's statements, and its last expression apart."""
        tree = ast.parse(source, name)
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        return (
            compile(tree, name, "exec", dont_inherit=True) if tree.body else None,
            compile(last, name, "eval", dont_inherit=True) if last is not None else None,
        )

    def _execute(self, source: str, name: str) -> str | None:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        statements, expression = self._compile(source, name)
        if statements is not None:
            exec(statements, self._namespace)
        value = eval(expression, self._namespace) if expression is not None else None
        return None if value is None else repr(value)

    def run_cell(self, source: str) -> dict[str, Any]:
        """Run one cell; the outcome as the message to send. The code's own failures never escape."""
        self._cells += 1
        value = error_text = None
        status = "ok"
        try:
            try:
                self._in_code = True
                value = self._execute(source, f"<cell {self._cells}>")
            finally:
                self._in_code = False
        except SystemExit as error:
            status = "exited"
            if error.code is not None and not isinstance(error.code, int):
                self._write(f"{error.code}\n")
        except MemoryError as error:
            status, error_text = "memory_limit", self.render(error)
        except KeyboardInterrupt as error:
            status, error_text = "interrupted", self.render(error)
        except BaseException as error:  # noqa: BLE001  # whatever the model raises is its result
            status, error_text = "error", self.render(error)
        return {"status": status, "value": _cut(value), "traceback": error_text}

    def _write(self, text: str) -> None:
        with contextlib.suppress(BaseException):  # the model may have closed it
            self.stderr.write(text)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, self.stdout):
            with contextlib.suppress(BaseException):  # the model may have closed or replaced it
                stream.flush()

    def finish(self) -> None:
        """What Python does at its end: wait for threads, run exit handlers."""
        try:
            self._in_code = True
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        except BaseException as error:  # noqa: BLE001  # exit handlers are the model's code
            self._write(self.render(error))
        finally:
            self._in_code = False


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."


def serve(interpreter: Interpreter, receive: Callable[[int], bytes], send: Callable[[bytes], None]) -> None:
    """Answer requests until the last one or until the server closes the channel."""
    while True:
        header = receive(FRAME.size)
        if not header:
            return
        body = receive(FRAME.unpack(header)[0])
        if not body:
            return
        token, last = REQUEST.unpack_from(body)
        outcome = interpreter.run_cell(body[REQUEST.size :].decode("utf-8", "surrogatepass"))
        if last:
            interpreter.finish()
        interpreter.flush()
        outcome["token"] = token
        message = _dumps(outcome).encode()
        send(FRAME.pack(len(message)) + message)
        if last:
            return
