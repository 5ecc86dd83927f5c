"""What commands print with. Model and environment text never reaches the terminal as markup or control codes."""

import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

# A log or a pipe has no width of its own, and tables need some.
_WIDTH = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120

console = Console(highlight=False, width=_WIDTH)
errors = Console(stderr=True, highlight=False)

# C0 and C1 controls but newline and tab, and DEL: shown as their escapes, so that no text can drive the terminal.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> Text:
    """`text` as it is to be read: no markup, no control codes."""
    return Text(text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode())


def components(parts: Mapping[str, float]) -> str:
    """Reward components in one line, zeros left out."""
    return ", ".join(f"{name} {value:+.3g}" for name, value in parts.items() if value) or "-"
