"""What the model is told, and how output is shown to it. `PROMPT_VERSION` changes with every word here."""

import re

from rolloutgym.models import FunctionSpec, Message, ToolSpec
from rolloutgym.server.sandbox.client import RunResult

PROMPT_VERSION = "1"

_INTERPRETER = (
    "You can run Python while you think. Write the code between <code> and </code> and stop there; what it prints, and "
    "the value of its last expression, comes back between <interpreter> and </interpreter>. {state} "
    "numpy, sympy and mpmath are installed; there are no files of yours, no network and no other programs. "
    "You have {turns} turns in all."
)
_KEPT = "Variables are kept from one block to the next."
_FRESH = "Every block runs in a fresh interpreter: nothing is kept."
_ANSWER = "Solve the problem. When you know the answer, write it as \\boxed{answer}; that ends the episode."
_PROGRAM = (
    "Write the Python program that is asked for. When it is ready, write the whole of it between <answer> and "
    "</answer>; that ends the episode, and hidden tests then decide."
)

CODE_TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        function=FunctionSpec(
            name="python",
            description="Run Python code and return what it prints and the value of its last expression.",
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string", "description": "The code to run."}},
                "required": ["code"],
                "additionalProperties": False,
            },
        )
    ),
    ToolSpec(
        function=FunctionSpec(
            name="answer",
            description="Give the final answer (or the whole final program). This ends the episode.",
            parameters={
                "type": "object",
                "properties": {"answer": {"type": "string", "description": "The final answer."}},
                "required": ["answer"],
                "additionalProperties": False,
            },
        )
    ),
)


def system_prompt(*, program: bool, turns: int, stateful: bool) -> str:
    interpreter = _INTERPRETER.format(state=_KEPT if stateful else _FRESH, turns=turns)
    return f"{_PROGRAM if program else _ANSWER}\n\n{interpreter}"


_TAG = re.compile(r"<(?=\s*+/?\s*+(?:interpreter|code|answer)\b)", re.IGNORECASE)

_STOPPED: dict[str, str] = {
    "interrupted": "the code interrupted itself",
    "cpu_limit": "stopped at the processor-time limit",
    "wall_limit": "stopped at the time limit",
    "memory_limit": "stopped at the memory limit",
    "output_limit": "stopped for too much output",
    "disk_limit": "stopped at the file-space limit",
    "thread_limit": "stopped for too many threads",
    "crashed": "the interpreter crashed",
    "exited": "the code ended the interpreter",
}


def show_result(result: RunResult, *, max_chars: int, stateful: bool) -> str:
    """The output as the model sees it: printed text, last value, traceback, and a note where the run was cut short.

    Longer output loses its middle. Tags of the protocol are broken, so that no output can pose as anything else.
    """
    parts = [result.output.rstrip("\n")]
    if result.value is not None:
        parts.append(result.value)
    if result.traceback is not None:
        parts.append(result.traceback.rstrip("\n"))
    text = _cut("\n".join(part for part in parts if part), max_chars)
    note = _note(result, stateful)
    if note:
        text = f"{text}\n{note}" if text else note
    return _TAG.sub("&lt;", text)


def _note(result: RunResult, stateful: bool) -> str:
    if result.status in ("ok", "error"):
        return "[output was cut]" if result.truncated_output else ""
    kept = ""
    if stateful:
        kept = "; variables are kept" if result.state_kept else "; variables are lost"
    return f"[{_STOPPED[result.status]}{kept}]"


def _cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    head = max_chars * 2 // 3
    tail = max_chars - head
    return f"{text[:head]}\n[… {len(text) - head - tail} characters left out …]\n{text[-tail:]}"


def interpreter_message(text: str, *, turns_left: int) -> Message:
    """What the model reads after a run."""
    content = f"<interpreter>\n{text}\n</interpreter>" if text else "<interpreter>\n</interpreter>"
    if turns_left == 1:
        content += "\nThis is your last turn: give the final answer."
    return Message(role="user", content=content)
