"""WebSocket framing without I/O: bytes in; whole text messages, and the bytes to answer with, out."""

import base64
import secrets
from typing import NamedTuple

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import ProtocolError

__all__ = ["Ended", "Frames", "ProtocolError", "Received", "handshake_headers"]


class Ended(Exception):
    """The service ended the connection, with this close code."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"the service closed the connection ({code}{': ' if reason else ''}{reason})")
        self.code = code


class Received(NamedTuple):
    messages: list[str]
    """Whole messages, oldest first."""
    reply: bytes
    """To be written at once: answers to pings."""


class Frames:
    """One connection after its handshake."""

    def __init__(self) -> None:
        self._connection = Connection(ConnectionType.CLIENT)
        self._partial: list[str] = []
        self.end: Ended | None = None
        """Set when the service has ended the connection; its last messages may have come with the end."""

    def text(self, message: str) -> bytes:
        return self._connection.send(TextMessage(data=message))

    def ping(self) -> bytes:
        return self._connection.send(Ping())

    def close(self) -> bytes:
        return self._connection.send(CloseConnection(code=1000))

    def receive(self, data: bytes) -> Received:
        """Take what the socket gave; nothing means that it has ended. Raises `ProtocolError`, and `Ended` where there
        is no message left to give."""
        messages: list[str] = []
        reply = b""
        if data:
            self._connection.receive_data(data)
            for event in self._connection.events():
                reply += self._take(event, messages)
        else:
            self.end = self.end or Ended(1006)
        if self.end is not None and not messages:
            raise self.end
        return Received(messages, reply)

    def _take(self, event: Event, messages: list[str]) -> bytes:
        match event:
            case TextMessage():
                self._partial.append(event.data)
                if event.message_finished:
                    messages.append("".join(self._partial))
                    self._partial.clear()
            case Ping():
                return self._connection.send(event.response())
            case CloseConnection():
                self.end = Ended(event.code, event.reason or "")
            case BytesMessage():
                self.end = Ended(1003, "a binary frame")
        return b""


def handshake_headers() -> dict[str, str]:
    """Of the request that turns an HTTP connection into a WebSocket."""
    return {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "sec-websocket-version": "13",
    }
