"""Ways to a Redis, by password, TLS or socket; and what takes over for one, refuses, or hangs up."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from rolloutgym.server.errors import StoreUnavailable
from rolloutgym.server.settings import Settings
from rolloutgym.server.store import Key
from rolloutgym.server.store_redis import RedisStore

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

KEY = Key("sql", "e1")


@asynccontextmanager
async def store_at(address: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(Settings(store=address).store, idle_timeout_s=60.0, ended=10)
    try:
        yield store
    finally:
        await store.close()


# ---- ways to it ----

PASSWORD = "s/cret"


@pytest.fixture
def locked_redis(redis_server: Any, free_port: Callable[[], int], tmp_path: Path) -> Iterator[dict[str, str]]:
    """One that asks for a password, by the ways there are to it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=redis"]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    name = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", *certificate, *files, *name], check=True, capture_output=True)
    port = free_port()
    flags = {
        "requirepass": PASSWORD, "unixsocket": tmp_path / "socket", "tls-port": port, "tls-auth-clients": "no",
        "tls-key-file": tmp_path / "key", "tls-cert-file": tmp_path / "certificate",
    }  # fmt: skip
    server = type(redis_server)(
        tmp_path, *(str(part) for name, value in flags.items() for part in (f"--{name}", value))
    )
    yield {
        "redis": f"redis://:s%2Fcret@127.0.0.1:{server.port}/3",
        "rediss": f"rediss://:s%2Fcret@127.0.0.1:{port}/3?ssl_ca_certs={tmp_path}/certificate",
        "unix": f"unix://:s%2Fcret@{tmp_path}/socket?db=3",
        "wrong": f"redis://:another@127.0.0.1:{server.port}/3",
        "untrusted": f"rediss://:s%2Fcret@127.0.0.1:{port}/3",
    }
    server.stop()


@pytest.mark.parametrize("way", ["redis", "rediss", "unix"])
async def test_a_redis_has_a_password_a_number_and_several_ways_to_it(locked_redis: dict[str, str], way: str) -> None:
    async with store_at(locked_redis[way]) as store:
        await store.reserve(KEY, 1)
    with redis.Redis.from_url(locked_redis["redis"]) as third:
        assert third.exists("rolloutgym:places") == 1


@pytest.mark.parametrize("way", ["wrong", "untrusted"])
async def test_a_redis_that_is_refused_or_refuses_is_told_without_its_password(
    locked_redis: dict[str, str], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with store_at(locked_redis[way]) as store:
        with pytest.raises(StoreUnavailable):
            await store.count()
    (line,) = caplog.messages
    assert "invalid" in line or "certificate" in line
    assert not {"another", "cret"} & set(re.split(r"\W", line))


def test_an_option_that_is_none_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="ssl_ca_cert'"):
        RedisStore("rediss://127.0.0.1:1/0?ssl_ca_cert=/x", idle_timeout_s=1.0, ended=1)


# ---- what stands in its place ----

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def in_place_of_redis(talk: Talk) -> AsyncIterator[str]:
    """The address of what talks with a store like a Redis. The store has to be closed first."""
    talks: list[asyncio.Task[Any]] = []

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        doing = asyncio.current_task()
        assert doing is not None
        talks.append(doing)
        with suppress(ConnectionError):
            await talk(reader, writer)

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    await asyncio.wait(talks)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
    writer.close()


async def test_after_a_failover_the_new_master_is_asked(redis_server: Any, tmp_path: Path) -> None:
    """Behind one address, as managed ones are: a connection that is open stays with the old master."""
    successor = type(redis_server)(tmp_path)
    master = redis_server.port

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection("127.0.0.1", master)
        await asyncio.gather(pass_on(reader, before), pass_on(behind, writer))

    with redis.Redis.from_url(redis_server.url) as old:
        try:
            async with in_place_of_redis(connect) as address, store_at(address) as store:
                assert await store.count() == 0
                master = successor.port
                old.replicaof("127.0.0.1", 1)  # which it does not reach: what it has stays
                with pytest.raises(StoreUnavailable):
                    await store.reserve(KEY, 1)
                await store.reserve(KEY, 1)
            with redis.Redis.from_url(successor.url) as new:
                assert new.exists("rolloutgym:places") == 1
        finally:
            old.replicaof("NO", "ONE")
            successor.stop()


@pytest.mark.parametrize(
    "refusal",
    ["LOADING loading the dataset", "BUSY running a script", "MASTERDOWN link down", "NOAUTH who?", "CROSSSLOT keys"],
)
async def test_whatever_redis_refuses_with_is_a_fault_of_the_store_until_it_answers(refusal: str) -> None:
    said = f"-{refusal}"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                for command in re.findall(b"EVALSHA|SETINFO", piece):
                    writer.write(f"{said if command == b'EVALSHA' else '+OK'}\r\n".encode())
        finally:
            writer.close()

    async with in_place_of_redis(answer) as address, store_at(address) as store:
        with pytest.raises(StoreUnavailable):
            await store.count()
        said = ":7"
        assert await store.count() == 7


async def test_a_write_without_an_answer_is_not_sent_again() -> None:
    """It may have landed. Only the caller can tell whether what it finds then is its own."""
    sent = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while b"EVALSHA" not in (piece := await reader.read(65536)):
            writer.write(b"+OK\r\n" * piece.count(b"SETINFO"))
        sent += 1
        writer.close()

    async with in_place_of_redis(hang_up) as address, store_at(address) as store:
        with pytest.raises(StoreUnavailable):
            await store.reserve(KEY, 1)
    assert sent == 1
