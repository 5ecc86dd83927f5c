"""Plain data as text, between the tests' process and the program's process.

Its source is run inside both sandboxed processes, so it needs the standard library only. Values are taken apart by
their built-in kind: an object that compares equal to everything arrives as an `Opaque`, which equals nothing.
"""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 60
MAX_CHARS = 400_000


class Opaque:
    """Stands for a value that is no plain data: it equals nothing, itself included."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any) -> str:
    """JSON text of a value: `{"kind": content}` for what JSON has no form for. Large or deep values become opaque."""
    text = json.dumps(_pack(value, 0))
    return text if len(text) <= MAX_CHARS else json.dumps({"opaque": "value too large"})


def decode(text: str) -> Any:
    return _unpack(json.loads(text))


def _pack(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {"opaque": "value too deep"}
    if value is None or value is True or value is False:
        return value
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        value = value.tolist()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__add__(value, 0)
    for kind, name in ((float, "float"), (complex, "complex")):
        if isinstance(value, kind):
            return {name: kind.__repr__(value)}
    if isinstance(value, (Fraction, Decimal)):
        return {type(value).__name__: str(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, depth + 1), _pack(item, depth + 1)] for key, item in dict.items(value)]}
    for name, sequence in _SEQUENCES.items():
        if isinstance(value, sequence):
            return {name: [_pack(item, depth + 1) for item in sequence.__iter__(value)]}
    return {"opaque": type(value).__name__}


_SCALARS: dict[str, Any] = {
    "float": float,
    "complex": complex,
    "Fraction": Fraction,
    "Decimal": Decimal,
    "bytes": bytes.fromhex,
    "opaque": Opaque,
}
_SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def _unpack(packed: Any) -> Any:
    if packed is None or isinstance(packed, (str, int)):
        return packed
    ((kind, content),) = packed.items()
    if kind in _SCALARS:
        return _SCALARS[kind](content)
    if kind == "dict":
        return {_unpack(key): _unpack(item) for key, item in content}
    return _SEQUENCES[kind](map(_unpack, content))
