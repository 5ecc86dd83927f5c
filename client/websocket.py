"""Episodes over WebSocket: a connection each, which is opened again and resumes its episode after a drop.

Requests and answers alternate, so an answer that was not waited for would be taken for the next one's: whatever breaks
into an exchange (a time-out, an interrupt) also ends its connection. Idle connections are pinged from one thread for
all, so neither long generations nor the proxies on the way let them die.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, TypeVar

import httpcore2
import httpx2
import stamina

from rolloutgym.client.forks import renew_in_children
from rolloutgym.client.frames import Ended, Frames, ProtocolError, handshake_headers
from rolloutgym.client.protocol import Call, encode, error_of, read_frame
from rolloutgym.client.rest import RestTransport, connection_failed
from rolloutgym.client.retries import RetryPolicy

T = TypeVar("T")

PING_INTERVAL_S = 10.0
CLOSE_FRAME = '{"type":"close"}'
FAULTS = (httpx2.RequestError, httpcore2.NetworkError, httpcore2.TimeoutException, ProtocolError, Ended)
"""What a connection can die of."""

READ_BYTES = 65536
FAREWELL_S = 5.0


def one_answer(messages: list[str]) -> str:
    """`Ended` where there are more: which of them is the answer?"""
    if len(messages) > 1:
        raise Ended(1002, "several answers to one message")
    return messages[0]


class Link:
    """One open connection."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.extensions["network_stream"]
        self._frames = Frames()
        # Held during an exchange, so that a ping never reads an answer away.
        self._lock = threading.Lock()
        self.closed = False

    @classmethod
    def open(cls, http: httpx2.Client, path: str, params: dict[str, str], call: Call[Any]) -> Self:
        """Shake hands, for the sake of `call`. Raises the error of a service that refuses, and one of `FAULTS`."""
        request = http.build_request("GET", path, params=params, headers=handshake_headers())
        response = http.send(request, stream=True)
        if response.status_code == 101:
            return cls(response)
        try:
            content = response.read()
        finally:
            response.close()
        raise error_of(call, response.status_code, content, response.headers.get("retry-after"))

    def exchange(self, message: str, timeout_s: float) -> str:
        """Send a message and wait for its answer. Raises one of `FAULTS`; the link is closed then."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            try:
                self._stream.write(self._frames.text(message), timeout_s)
                messages: list[str] = []
                while not messages:
                    messages = self._read(max(deadline - time.monotonic(), 0.001))
                if self._frames.end is not None:
                    self.close()
                return one_answer(messages)
            except BaseException:
                self.close()
                raise

    def ping(self) -> None:
        """Keep an idle link alive: ask for a sign of life, and answer the service's own pings."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._stream.write(self._frames.ping(), PING_INTERVAL_S)
            while self._stream.get_extra_info("is_readable"):
                self._read(0.1)
        except httpcore2.ReadTimeout:
            pass
        except FAULTS:
            self.close()
        finally:
            self._lock.release()

    def close(self) -> None:
        self.closed = True
        try:
            with suppress(ProtocolError, httpcore2.NetworkError, httpcore2.TimeoutException):
                self._stream.write(self._frames.close(), 1.0)
        finally:
            self._response.close()

    def _read(self, timeout_s: float) -> list[str]:
        messages, reply = self._frames.receive(self._stream.read(READ_BYTES, timeout_s))
        self._stream.write(reply, timeout_s)
        return messages


class Links:
    """A client's open connections, and the thread that keeps them alive."""

    def __init__(self, connect: Callable[[], httpx2.Client], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._connect = connect
        self._links: set[Link] = set()
        self._begin()
        renew_in_children(self)

    def _begin(self) -> None:
        self._http = self._connect()
        # Protects the set: episodes of many threads come and go while the pinging thread reads it.
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def forked(self) -> None:
        for link in self._links:
            # The connection is the parent's; its episode is resumed on another one.
            link.closed = True
        self._links = set()
        self._begin()

    def open(self, path: str, params: dict[str, str], call: Call[Any]) -> Link:
        link = Link.open(self._http, path, params, call)
        with self._lock:
            self._links.add(link)
            if self._thread is None:
                self._thread = threading.Thread(target=self._ping_all, name="rolloutgym-pings", daemon=True)
                self._thread.start()
        return link

    def remove(self, link: Link) -> None:
        with self._lock:
            self._links.discard(link)

    def close(self) -> None:
        self._stop.set()
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.close()
        if self._thread is not None:
            self._thread.join()
        self._http.close()

    def _ping_all(self) -> None:
        while not self._stop.wait(PING_INTERVAL_S):
            with self._lock:
                links = tuple(self._links)
            for link in links:
                link.ping()


class WebSocketChannel:
    """The way on which one episode is played. One thread at a time."""

    def __init__(
        self,
        links: Links,
        rest: RestTransport,
        retry: RetryPolicy,
        *,
        environment: str,
        episode_id: str,
        live: bool,
    ) -> None:
        """`live`: whether the episode exists already, and is to be resumed."""
        self._links = links
        self._rest = rest
        self._retry = retry
        self._path = f"/{environment}/ws"
        self._episode_id = episode_id
        self._live = live
        self._link: Link | None = None

    def request(self, call: Call[T]) -> T:
        """The call's answer, after as many tries as the policy allows."""
        assert call.frame is not None
        message = encode(call.frame)
        for attempt in stamina.retry_context(on=self._retry.backoff, **self._retry.arguments()):
            with attempt:
                answer = read_frame(call, self._exchange(call, message))
                self._live = True
                return answer
        raise AssertionError("the last attempt returns or raises")

    def end(self, call: Call[Any]) -> None:
        """End the episode: on its connection, or by REST where there is none or no clean farewell."""
        link, self._link = self._link, None
        if link is not None and not link.closed:
            self._links.remove(link)
            try:
                link.exchange(CLOSE_FRAME, FAREWELL_S)
            except Ended as end:
                if end.code == 1000:
                    return
            except FAULTS:
                pass
        self._rest.request(call)

    def _exchange(self, call: Call[Any], message: str) -> str:
        try:
            return self._connected(call).exchange(message, self._links.timeout_s)
        except FAULTS as error:
            raise connection_failed(call, error) from error

    def _connected(self, call: Call[Any]) -> Link:
        if self._link is None or self._link.closed:
            if self._link is not None:
                self._links.remove(self._link)
            params = {"episode_id": self._episode_id} if self._live else {}
            self._link = self._links.open(self._path, params, call)
        return self._link
