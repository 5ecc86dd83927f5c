"""Reading tool calls out of what a model wrote: one parser for every family, in training and in evaluation."""

from rolloutgym.server.environments.toolcall.parsing.parser import MAX_CHARS, parse, parse_structured
from rolloutgym.server.environments.toolcall.parsing.reply import (
    MAX_CALLS,
    Call,
    Family,
    ParseOptions,
    Problem,
    ProblemCode,
    Reply,
    Schemas,
)
from rolloutgym.server.environments.toolcall.parsing.values import MAX_DEPTH

__all__ = [
    "MAX_CALLS",
    "MAX_CHARS",
    "MAX_DEPTH",
    "Call",
    "Family",
    "ParseOptions",
    "Problem",
    "ProblemCode",
    "Reply",
    "Schemas",
    "parse",
    "parse_structured",
]
