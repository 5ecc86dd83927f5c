"""Where a reply's reasoning ends and its visible text begins.

Reasoning is one block at the start: opened by the model, or by the prompt (`prefilled`); without its closing tag all of
the text is reasoning. A block that the prompt opened is recognised without the option too, by a closing tag that stands
before any call, or between calls: then those before it are drafts.
"""

import re
from typing import NamedTuple

from rolloutgym.server.environments.toolcall.parsing.reply import ParseOptions
from rolloutgym.server.environments.toolcall.parsing.values import skip_space

TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
)
"""Opening and closing tags of the families."""


class Reasoning(NamedTuple):
    span: tuple[int, int] | None
    """The text between the tags; null without reasoning."""
    body: int
    """Where the visible text begins."""
    opened: bool = True
    """Whether the block was opened, by the model or, as the option says, by the prompt."""
    closed: bool = True


def split_reasoning(text: str, options: ParseOptions, opening: re.Pattern[str]) -> Reasoning:
    """`opening` finds the first mark of a call."""
    start = skip_space(text, 0)
    pairs = (options.think_tags,) if options.think_tags else TAGS
    for opener, closer in pairs:
        if text.startswith(opener, start):
            begin = start + len(opener)
            end = text.find(closer, begin)
            if end < 0:
                return Reasoning((begin, len(text)), len(text), closed=False)
            return Reasoning((begin, end), end + len(closer))
    ends = [(end, closer) for _, closer in pairs if (end := text.find(closer, start)) >= 0]
    if ends:
        end, closer = min(ends)
        drafted = opening.search(text, 0, end)
        if options.prefilled_think or not drafted or opening.search(text, end):
            return Reasoning((start, end), end + len(closer), opened=options.prefilled_think)
    elif options.prefilled_think:
        return Reasoning((start, len(text)), len(text), closed=False)
    return Reasoning(None, start, opened=False)
