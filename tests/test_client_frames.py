"""Framing: whatever the service says arrives whole and in order, however the network cuts it."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from rolloutgym.client.frames import Ended, Frames, ProtocolError

texts = st.text(max_size=300)
said = st.one_of(
    st.tuples(st.just("text"), texts),
    st.tuples(st.just("parts"), texts),
    st.tuples(st.just("ping"), st.just("are you there")),
    st.tuples(st.just("pong"), st.just("")),
)


def _bytes(server: Connection, kind: str, text: str) -> bytes:
    match kind:
        case "text":
            return server.send(TextMessage(data=text))
        case "parts":
            middle = len(text) // 2
            return server.send(TextMessage(data=text[:middle], message_finished=False)) + server.send(
                TextMessage(data=text[middle:])
            )
        case "ping":
            return server.send(Ping(payload=text.encode()))
        case _:
            return server.send(Pong())


@given(st.lists(said, max_size=6), st.lists(st.integers(1, 40), max_size=40), st.sampled_from([1000, 1011, None]))
def test_messages_arrive_whole_and_pings_are_answered(
    script: list[tuple[str, str]], cuts: list[int], end: Literal[1000, 1011] | None
) -> None:
    server = Connection(ConnectionType.SERVER)
    data = b"".join(_bytes(server, kind, text) for kind, text in script)
    if end is not None:
        data += server.send(CloseConnection(code=end))
    frames = Frames()
    messages: list[str] = []
    reply = b""
    ended: Ended | None = None
    for size in [*cuts, len(data) or 1]:
        piece, data = data[:size], data[size:]
        if not piece:
            break
        try:
            received = frames.receive(piece)
        except Ended as error:
            ended = error
            break
        messages += received.messages
        reply += received.reply
    assert messages == [text for kind, text in script if kind in ("text", "parts")]
    ended = ended or frames.end
    assert end == (None if ended is None else ended.code)
    if end is not None:
        return  # a side that has said goodbye reads no more pongs
    server.receive_data(reply)
    answers: list[Event] = list(server.events())
    pings = [kind for kind, _ in script if kind == "ping"]
    assert [type(answer) for answer in answers] == [Pong] * len(pings)


def test_a_socket_that_ends_is_an_end() -> None:
    with pytest.raises(Ended) as caught:
        Frames().receive(b"")
    assert caught.value.code == 1006


def test_the_last_message_is_not_lost_with_the_end() -> None:
    server = Connection(ConnectionType.SERVER)
    data = server.send(TextMessage(data="why")) + server.send(CloseConnection(code=1000, reason="bye"))
    frames = Frames()
    assert frames.receive(data).messages == ["why"]
    with pytest.raises(Ended, match="1000: bye"):
        frames.receive(b"")


def test_a_binary_frame_is_an_end() -> None:
    server = Connection(ConnectionType.SERVER)
    with pytest.raises(Ended, match="binary"):
        Frames().receive(server.send(BytesMessage(data=b"x")))


def test_what_is_no_frame_is_an_error() -> None:
    with pytest.raises((ProtocolError, Ended)):
        Frames().receive(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
