"""What is kept of an output."""

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.sandbox.process import BoundedOutput


def fed_output(pieces, limit):
    output = BoundedOutput(limit)
    for piece in pieces:
        output.feed(piece)
    return output


@table(
    ("data", "limit", "value"),
    [
        (b"", 10, b""),
        (b"0123456789", 10, b"0123456789"),
        (b"0123456789a", 10, b"01234\n[1 bytes are missing here]\n6789a"),
        (b"0123456789a", 3, b"01\n[8 bytes are missing here]\na"),
        (b"0123", 0, b"\n[4 bytes are missing here]\n"),
    ],
)
def test_cases(data, limit, value):
    assert fed_output([data], limit).value() == value


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_any_pieces(pieces, limit):
    whole = b"".join(pieces)
    output = fed_output(pieces, limit)
    assert output.total == len(whole)
    assert output.value() == fed_output([whole], limit).value()
    if len(whole) <= limit:
        assert output.value() == whole
    else:
        line = re.search(rb"\n\[(\d+) bytes are missing here\]\n", output.value())
        assert line
        assert len(output.value()) - len(line[0]) + int(line[1]) == len(whole)


def test_memory_is_bounded():
    output = fed_output([bytes(1000)] * 1000, 5000)
    assert len(output._beginning) + len(output._end) < 12000
