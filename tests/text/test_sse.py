"""The framing of server-sent events: what is given does not depend on where the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import ProviderError
from callboard.text.sse import Frame, SSEDecoder, encode_frame


def data(*texts):
    return [Frame("", text, "") for text in texts]


CASES = [
    ("one frame", b"data: a\n\n", data("a")),
    ("CR LF", b"data: a\r\n\r\ndata: b\r\n\r\n", data("a", "b")),
    ("CR LF within a frame", b"data: a\r\ndata: b\r\n\r\n", data("a\nb")),
    ("CR alone", b"data: a\r\rdata: b\r\r", data("a", "b")),
    ("line breaks of every kind", b"data: a\n\r\ndata: b\r\r\ndata: c\r\n\n", data("a", "b", "c")),
    ("no blank line at the end", b"data: a\n\ndata: b\n", data("a", "b")),
    ("no line break at the end", b"data: a\n\ndata: [DONE]", data("a", "[DONE]")),
    ("comments", b": keepalive\n\n:\ndata: a\n: x\n\n:\n\n", data("a")),
    ("byte order mark", b"\xef\xbb\xbfdata: a\n\n", data("a")),
    ("a byte order mark later is part of the field's name", b"data: a\n\n\xef\xbb\xbfdata: b\n\n", data("a")),
    ("several data lines", b"data: a\ndata:\ndata: b\n\n", data("a\n\nb")),
    ("no space, and more than one", b"data:a\n\ndata:  b\n\n", data("a", " b")),
    ("a colon in the value", b"data: a: b\n\n", data("a: b")),
    ("data without a colon is empty", b"data\n\ndata:\n\n", data("", "")),
    ("unknown fields and retry", b"retry: 10\nfoo: bar\nDATA: x\n data: y\ndata: a\n\n", data("a")),
    ("event names last one frame", b"event: x\ndata: a\n\ndata: b\n\n", [Frame("x", "a", ""), Frame("", "b", "")]),
    ("no data, no frame", b"event: x\n\ndata: b\n\n", data("b")),
    ("identifiers last", b"id: 7\ndata: a\n\ndata: b\n\n", [Frame("", "a", "7"), Frame("", "b", "7")]),
    ("an identifier with a null is none", b"id: 7\0\ndata: a\n\n", data("a")),
    ("UTF-8, and line breaks that are none here", "data: é⛅\u2028\x85\n\n".encode(), data("é⛅\u2028\x85")),
    ("bytes that are no UTF-8", b"data: a\xffb\n\n", data("a\ufffdb")),
    ("nothing", b"", []),
]
ALL = b"".join(stream + b"\n\n" for _, stream, _ in CASES)


def decode(*chunks, why="stop", **options):
    decoder = SSEDecoder(**options)
    return [frame for chunk in chunks for frame in decoder.feed(chunk)] + decoder.finish(why)


@table(("stream", "frames"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_frames(stream, frames):
    assert decode(stream) == frames
    assert decode(*[stream[i : i + 1] for i in range(len(stream))]) == frames
    for cut in range(len(stream)):
        assert decode(stream[:cut], b"", stream[cut:]) == frames


@given(st.lists(st.integers(0, len(ALL))))
def test_any_split_gives_the_same_frames(cuts):
    edges = [0, *sorted(cuts), len(ALL)]
    assert decode(*[ALL[a:b] for a, b in pairwise(edges)]) == decode(ALL)


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_are_taken(chunks):
    assert decode(*chunks) == decode(b"".join(chunks))


def test_a_frame_is_given_with_its_blank_line_not_later():
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == data("a")
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.feed(b"\n") == data("b")


def test_after_a_cut_the_last_frame_is_not_given():
    assert decode(b"data: a\n\ndata: b\n", why="cut") == data("a")
    assert decode(b'data: {"x', why="cut") == []


@table(
    "stream",
    [b"data: " + b"x" * 200, b"data: " + b"x" * 200 + b"\n\n", b"data: xxxxxxxxx\n" * 20, b":" + b"x" * 200],
    ids=["an endless line", "a long line", "endless lines", "an endless comment"],
)
def test_a_frame_over_the_limit(stream):
    for step in (1, 7, len(stream)):
        with pytest.raises(ProviderError, match="larger than 100 bytes") as caught:
            decode(*[stream[at : at + step] for at in range(0, len(stream), step)], limit=100)
        assert caught.value.code == "too_large"


def test_many_small_frames_are_under_the_limit():
    assert len(SSEDecoder(limit=100).feed(b": c\ndata: xxxxxxxxx\n\n" * 1000)) == 1000


@given(st.text(), st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
def test_what_is_encoded_is_decoded(text, event):
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert decode(encode_frame(text.encode(), event.encode())) == [Frame(event, lines, "")]


def test_a_frame_as_bytes():
    assert encode_frame(b"{}") == b"data: {}\n\n"
    assert encode_frame(b"a\r\nb", b"x") == b"event: x\ndata: a\ndata: b\n\n"
