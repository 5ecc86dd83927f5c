"""The session protocol of the Open Reward Standard: a trainer creates a session for a task, and plays by tool calls.

A session's id is its episode's. The protocol's clients know no prefix and name no environment in some requests; the
session does, whichever of the `known` environments it is played in. A tool call is a step, rewarded and counted.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Annotated, Any
from weakref import WeakValueDictionary

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from rolloutgym.models import EpisodeId
from rolloutgym.server import ors
from rolloutgym.server.codec import read_json
from rolloutgym.server.environments.registry import AnyEnvironment
from rolloutgym.server.errors import EpisodeDone, EpisodeNotFound, InvalidRequest, NotFound, ServiceError
from rolloutgym.server.routes.bodies import body_of, read_body
from rolloutgym.server.service import Service
from rolloutgym.server.store import Record

SessionId = Annotated[EpisodeId, Header(alias="x-session-id")]

_KEEP_ALIVE_S = 10.0
"""Clients give up on a stream that is silent for 30 s."""
_UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_CREATE: TypeAdapter[ors.CreateRequest] = TypeAdapter(ors.CreateRequest)
_CALL: TypeAdapter[ors.CallRequest] = TypeAdapter(ors.CallRequest)
_SESSION: TypeAdapter[ors.SessionRequest] = TypeAdapter(ors.SessionRequest)


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


class Players:
    """The sessions of ORS clients."""

    def __init__(self, service: Service, environment: AnyEnvironment, known: Mapping[str, AnyEnvironment]) -> None:
        self._service = service
        self._sessions = service.sessions
        self._environment = environment
        self._known = known
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, session: str, request: ors.CreateRequest) -> None:
        name = self._environment.name if request.env_name is None else request.env_name.lower()
        # Clients without a variant call a service's only environment by any name.
        if name not in self._known:
            raise NotFound(f"no such environment; there are {', '.join(self._known)}")
        environment = self._known[name]
        await self._sessions.reset(environment, request.reset(session, environment.tool_options))

    async def find(self, session: str) -> tuple[AnyEnvironment, Record]:
        """The environment that a session is played in: most likely this one."""
        others = (one for one in self._known.values() if one is not self._environment)
        for environment in (self._environment, *others):
            with suppress(EpisodeNotFound):
                return environment, await self._sessions.record(environment, session)
        raise EpisodeNotFound(f"no session {session!r}", episode_id=session)

    async def delete(self, session: str) -> None:
        with suppress(EpisodeNotFound):
            await self._sessions.delete((await self.find(session))[0], session)

    async def call(self, session: str, call: ors.CallRequest) -> AsyncGenerator[bytes]:
        """The events of one call. One call after another, so that the number that names it is its own. Of a client that
        has gone, the step has not happened, and its number is free to be asked for again."""
        try:
            async with self._turns.setdefault(session, asyncio.Lock()):
                environment, _ = await self.find(session)
                step = call.task_id
                if step is None:
                    # What another of the session's clients does just now comes before.
                    step = (await self._sessions.settled(environment, session)).step_count
                yield ors.event("task_id", str(step))
                for part in ors.result_events(await self._result(environment, session, call, step)):
                    yield part
        except ServiceError as error:
            self._service.metrics.errors[error.code] += 1
            yield ors.event("error", f"{error.code}: {error.message}".replace("\n", " "))

    async def _result(self, environment: AnyEnvironment, session: str, call: ors.CallRequest, step: int) -> bytes:
        try:
            answer = await self._sessions.call_tool(environment, session, call.name, call.input, step=step)
        except EpisodeDone as error:
            return ors.mistake(error.message, "episode_finished")
        except InvalidRequest as error:
            names = {tool.function.name for tool in await self._sessions.tools(environment, session)}
            return ors.mistake(error.message, "input_validation" if call.name in names else "not_found")
        return ors.output(answer)


def add_ors_routes(
    app: FastAPI, service: Service, environment: AnyEnvironment, known: Mapping[str, AnyEnvironment]
) -> None:
    players = Players(service, environment, known)
    options: Any = {"tags": ["ors"]}

    @app.post("/create_session", response_class=EventStream, **options)
    async def create_session(request: Request) -> Response:
        """A session's id, as a stream of events. Nothing is kept before `create`."""
        content = await read_body(request)
        if content:
            read_json(_SESSION, content)
        events = ors.event("task_id", uuid.uuid4().hex) + ors.event("end", "")
        return EventStream(iter([events]), headers=_UNBUFFERED)

    @app.post("/create", openapi_extra=body_of(ors.CreateRequest), **options)
    async def create(request: Request, session: SessionId) -> dict[str, str]:
        """Begin the session's episode."""
        await players.create(session, read_json(_CREATE, await read_body(request)))
        return {"sid": session}

    @app.post("/delete", **options)
    @app.post("/delete_session", **options)
    async def delete(session: SessionId) -> dict[str, str]:
        """End the session's episode, whether or not there is one."""
        await players.delete(session)
        return {"sid": session}

    @app.post("/ping", **options)
    async def ping(session: SessionId) -> dict[str, str]:
        """The session is still wanted."""
        await players.find(session)
        return {"status": "ok"}

    @app.get("/tools", **options)
    async def tools() -> dict[str, Any]:
        """The tools of every episode."""
        return ors.listed(environment.tools())

    @app.get("/task_tools", **options)
    async def task_tools(session: SessionId) -> dict[str, Any]:
        """The tools of the session's episode."""
        played, _ = await players.find(session)
        return ors.listed(await service.sessions.tools(played, session))

    @app.get("/prompt", **options)
    async def prompt(session: SessionId) -> list[dict[str, Any]]:
        return ors.prompt((await players.find(session))[1].first)

    @app.get("/messages", **options)
    async def messages(session: SessionId) -> list[dict[str, Any]]:
        """The prompt as a conversation."""
        return ors.conversation((await players.find(session))[1].first)

    @app.post("/call", response_class=EventStream, openapi_extra=body_of(ors.CallRequest), **options)
    async def call(request: Request, session: SessionId) -> Response:
        """Call a tool; the answer is a stream of events."""
        asked = read_json(_CALL, await read_body(request))
        await players.find(session)
        return EventStream(_kept_alive(players.call(session, asked)), headers=_UNBUFFERED)


async def _kept_alive(events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """The events, and comments while they take long. Where nobody reads on, they end."""
    async with aclosing(events):
        while True:
            doing = asyncio.ensure_future(anext(events, None))
            try:
                while not (await asyncio.wait({doing}, timeout=_KEEP_ALIVE_S))[0]:
                    yield b": at it\n\n"
            finally:
                doing.cancel()
                await asyncio.wait({doing})
            event = doing.result()
            if event is None:
                return
            yield event
