"""uvicorn's protocols, with an end to what one peer may take: a request's head, the time over it, unread pongs."""

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

HEAD_BYTES = 2**16
"""Of a request's line and headers, beyond what is read at once."""
HEAD_S = 30.0
"""For a request's line and headers, from its connection's begin or their own first byte."""

connection_log = logging.getLogger("uvicorn.error.websocket")
"""WebSockets that come and go: as many lines as episodes."""


class HttpProtocol(HttpToolsProtocol):
    """A parser keeps the whole head of a request, so that somebody has to stop it."""

    _reading_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, transport.close)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._reading_head = False
        self._stop_timer()

    def data_received(self, data: bytes) -> None:
        went_on = self._reading_head
        super().data_received(data)
        if went_on and self._reading_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The request's head is too long.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.conn.logger = connection_log

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # The library has refused the handshake by itself, and its answer lies there still.
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def pause_writing(self) -> None:
        """A peer that does not read is not read either: else its pings would pile up pongs without end."""
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Also while the peer is closing; else one such peer would break off the service's whole shutdown."""
        try:
            super().shutdown()
        except InvalidState:
            self.transport.close()
