"""JSON in and out of HTTP, without a detour through Python's own parser and FastAPI's encoder."""

from typing import TypeVar

from fastapi import Request, Response
from pydantic import TypeAdapter

from rolloutgym.server.codec import read_json
from rolloutgym.server.errors import PayloadTooLarge

T = TypeVar("T")


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body. `PayloadTooLarge` as soon as it is known to exceed `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise PayloadTooLarge(f"the body exceeds {limit} bytes")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise PayloadTooLarge(f"the body exceeds {limit} bytes")
        parts.append(part)
    return b"".join(parts)


async def read(request: Request, adapter: TypeAdapter[T], limit: int) -> T:
    return read_json(adapter, await read_body(request, limit))


class JsonBytes(Response):
    """A body that is JSON already."""

    media_type = "application/json"
