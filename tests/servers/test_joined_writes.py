"""The writes of one turn reach the connection as one, in order, and before it closes."""

from __future__ import annotations

import asyncio

from callboard.servers.joined_writes import JoinedWrites


class Recorder(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.writes = []
        self.closed = False

    def write(self, data):
        self.writes.append(data)

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def set_protocol(self, protocol):
        self.writes.append("protocol")


def connect():
    recorder = Recorder()
    return JoinedWrites(recorder), recorder


async def test_a_head_and_its_body_are_one_write():
    joined, recorder = connect()
    joined.write(b"head ")
    joined.write(b"body")
    assert recorder.writes == []
    await asyncio.sleep(0)
    joined.write(b"next")
    await asyncio.sleep(0)
    assert recorder.writes == [b"head body", b"next"]


async def test_much_data_is_written_at_once_so_that_the_transport_can_stop_its_sender():
    joined, recorder = connect()
    for _ in range(3):
        joined.write(b"x" * 60_000)
    assert sum(map(len, recorder.writes)) == 120_000
    await asyncio.sleep(0)
    assert sum(map(len, recorder.writes)) == 180_000


async def test_closing_writes_what_is_left():
    joined, recorder = connect()
    joined.write(b"last words")
    joined.close()
    await asyncio.sleep(0)
    assert (recorder.writes, recorder.closed) == ([b"last words"], True)


async def test_another_protocol_begins_after_what_was_written():
    joined, recorder = connect()
    joined.write(b"before")
    joined.set_protocol(asyncio.Protocol())
    assert recorder.writes == [b"before", "protocol"]


async def test_nothing_is_written_to_a_connection_that_was_lost():
    joined, recorder = connect()
    joined.write(b"too late")
    recorder.closed = True
    await asyncio.sleep(0)
    assert recorder.writes == []


async def test_the_rest_is_the_transports_own():
    joined, _ = connect()
    assert joined.get_extra_info("peername") == ("127.0.0.1", 1)
