"""A follower in this process gets the pieces of a reply before its entry, and none after it."""

from callboard.core import Note, TextPiece
from callboard.jobs import streams as streams_module
from callboard.jobs.streams import JobStreams

FIRST, SECOND = TextPiece("first"), TextPiece("second")


async def read_all(news):
    found = []
    while (each := await news.next(0)) is not None:
        found.append(each)
    return found


async def test_pieces_come_before_their_entry():
    streams = JobStreams()
    with streams.subscribe("job") as news, streams.subscribe("job", pieces=False) as entries:
        streams.publish("job", FIRST)
        streams.publish("job", Note("alert", "told by its entry"))
        streams.publish("other", SECOND)
        streams.announce("job", 1)
        assert await read_all(news) == [FIRST, 1]
        assert await read_all(entries) == [1]


async def test_pieces_of_an_entry_that_was_read_are_dropped():
    streams = JobStreams()
    with streams.subscribe("job") as news:
        streams.publish("job", FIRST)
        streams.announce("job", 1)
        streams.publish("job", SECOND)
        news.drop(1)
        assert await read_all(news) == [SECOND]


async def test_pieces_of_an_entry_that_was_read_before_it_was_announced_are_dropped_too():
    streams = JobStreams()
    with streams.subscribe("job") as news:
        streams.publish("job", FIRST)
        news.drop(1)
        streams.publish("job", FIRST)
        streams.announce("job", 1)
        streams.publish("job", SECOND)
        news.drop(1)
        assert await read_all(news) == [SECOND]


async def test_a_late_follower_knows_earlier_announcements(monkeypatch):
    monkeypatch.setattr(streams_module, "JOBS", 2)
    streams = JobStreams()
    streams.announce("job", 3)
    with streams.subscribe("job") as news:
        news.drop(3)
        streams.publish("job", FIRST)
        assert await read_all(news) == [FIRST]
    for name in ("b", "c"):
        streams.announce(name, 1)
    with streams.subscribe("job") as news:
        news.drop(3)
        streams.publish("job", FIRST)
        assert await read_all(news) == []
